/* An MPI program whose ranks exchange values with their neighbours and agree on their sum, many
 * times. Messages are short, and ranks spin for them.
 *
 * exchange SIZE TIMES computes SIZE steps between two exchanges, and prints one line of JSON. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EXCHANGES = 100 };

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int size = argc > 1 ? atoi(argv[1]) : 10000;
  int times = argc > 2 ? atoi(argv[2]) : 10;
  double own = rank, sum = 0;
  for (int n = 0; n < times * EXCHANGES; n++) {
    for (int step = 0; step < size; step++)
      own = own * 0.999 + 0.001;
    double other;
    MPI_Sendrecv(&own, 1, MPI_DOUBLE, (rank + 1) % ranks, 0, &other, 1, MPI_DOUBLE,
                 (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    own = (own + other) / 2;
    MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  if (rank == 0) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("{\"finished_at_ns\": %lld, \"sum\": %g}\n", now.tv_sec * 1000000000LL + now.tv_nsec, sum);
    fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
