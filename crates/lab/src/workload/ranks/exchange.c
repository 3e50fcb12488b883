/* Two ranks compute for some time of their CPUs, and send each other a message, again and again.
   They sleep while messages travel, as MPI does that waits for sockets. The second argument is the
   time in microseconds, the third one the bytes of a message. */
#include <time.h>

static int64_t cpu_time_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    volatile int64_t *page = begin(&argc, &argv);
    int64_t compute_us = atoll(argv[2]);
    int bytes = atoi(argv[3]), other = 1 - rank;
    char *out = calloc(bytes, 1), *in = calloc(bytes, 1);
    for (;;) {
        int64_t until_us = cpu_time_us() + compute_us;
        while (cpu_time_us() < until_us)
            ;
        MPI_Request both[2];
        MPI_Status statuses[2];
        int done = 0;
        MPI_Irecv(in, bytes, MPI_CHAR, other, 0, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(out, bytes, MPI_CHAR, other, 0, MPI_COMM_WORLD, &both[1]);
        for (;;) {
            MPI_Testall(2, both, &done, statuses);
            if (done)
                break;
            usleep(200);
        }
        if (rank == 0)
            page[0]++;
    }
}
