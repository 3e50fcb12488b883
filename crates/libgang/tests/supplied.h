/* The declarations that the program of LLNL's paper leaves out, and nothing else: it is included
 * before the header of the interface. */
extern int cpu_count;
void Parallel_Code(void);
#ifdef TYPE_OF_MAIN
#define main TYPE_OF_MAIN main
#endif
