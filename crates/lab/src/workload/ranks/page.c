/* A page of memory that the lab reads: how far the program is, then the process of each rank. The
   first argument of each program is the file. */
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int rank, ranks;

static volatile int64_t *begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int file = open((*argv)[1], O_RDWR);
    volatile int64_t *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 1);
    page[1 + rank] = getpid();
    return page;
}
