/* The parallel part of the program of LLNL's paper: it goes on until its input ends. */
#include <stdio.h>

int cpu_count = 2;

void Parallel_Code(void)
{
    puts("parallel");
    fflush(stdout);
    while (getchar() != EOF)
        ;
}
