/* Barriers of MPI until there is a file `stop`, for ten minutes at most; then each rank says where
 * it was. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks, length;
    long barriers = 0;
    char host[MPI_MAX_PROCESSOR_NAME];
    double start;
    int wants = 1, goes_on = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(host, &length);
    for (start = MPI_Wtime(); goes_on; barriers++) {
        if (barriers % 1000 == 0)
            wants = MPI_Wtime() < start + 600 && access("stop", F_OK) != 0;
        MPI_Allreduce(&wants, &goes_on, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    printf("rank %d of %d on %s: %ld barriers\n", rank, ranks, host, barriers);
    MPI_Finalize();
    return 0;
}
