/*
 * Each rank says in which job it is, after MEETINGS with the others. THREADED: it is to have
 * threads.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static void say(int rank)
{
    char line[4096];
    FILE *groups = fopen("/proc/self/cgroup", "r");
    while (groups && fgets(line, sizeof line, groups))
        if (strncmp(line, "0::", 3) == 0)
            printf("rank %d in %s", rank, line + 3);
    fclose(groups);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int rank, sum = 0;
#ifdef THREADED
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
#else
    MPI_Init(&argc, &argv);
#endif
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < MEETINGS; i++)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say(rank);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
