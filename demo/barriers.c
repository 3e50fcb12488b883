/* Threads that work, meet, and count how often, at the barrier that was asked for.
 *
 *     barriers KIND THREADS WORK START_NS LENGTH_NS
 *
 * KIND is gang (libgang's, with the slot page where this is a job), fixed (libgang's without one:
 * it spins for 50 us and blocks then), libgomp (that of OpenMP; OMP_WAIT_POLICY says how it waits)
 * or pthread. WORK is iterations of a loop between two barriers. Threads work from the start; the
 * meetings between two points of CLOCK_REALTIME count.
 */
#include <gang.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum place { BEFORE, INSIDE, AFTER };

static gang_barrier gangs;
static pthread_barrier_t pthreads;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Keeps a CPU busy, and no memory. */
static void work(long turns)
{
    for (long i = 0; i < turns; i++)
        __asm__ volatile("" ::: "memory");
}

/* Called by all threads of a parallel region, so that its barrier is theirs. */
static void meet(char kind)
{
    if (kind == 'g' || kind == 'f')
        gang_barrier_wait(&gangs);
    else if (kind == 'p')
        pthread_barrier_wait(&pthreads);
    else {
#pragma omp barrier
    }
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    char kind = argv[1][0];
    int threads = atoi(argv[2]);
    long turns = atol(argv[3]);
    uint64_t start_ns = strtoull(argv[4], NULL, 10);
    uint64_t end_ns = start_ns + strtoull(argv[5], NULL, 10);
    const gang_page *page = NULL;
    gang_job *job;

    if (kind == 'g' && gang_current(&job) == GANG_OK && gang_page_open(job, &page) != GANG_OK) {
        fprintf(stderr, "slot page: %s\n", gang_error());
        return 1;
    }
    if (gang_barrier_init(&gangs, (uint32_t)threads, page) != GANG_OK) {
        fprintf(stderr, "barrier: %s\n", gang_error());
        return 1;
    }
    pthread_barrier_init(&pthreads, NULL, (unsigned)threads);

    /* The first thread looks at the clock before it comes; the others read the result after. So all
     * end after the same round. It writes the same place two rounds later, when they have read. */
    static volatile enum place seen[2];
    uint64_t rounds = 0, ready_ns = 0;
#pragma omp parallel num_threads(threads)
    {
        int first = 0;
#pragma omp single
        first = 1;
        for (unsigned turn = 0;; turn = !turn) {
            work(turns);
            if (first) {
                uint64_t now = now_ns();
                seen[turn] = now < start_ns ? BEFORE : now < end_ns ? INSIDE : AFTER;
            }
            meet(kind);
            if (first && ready_ns == 0)
                ready_ns = now_ns();
            if (seen[turn] == AFTER)
                break;
            if (first && seen[turn] == INSIDE)
                rounds++;
        }
    }
    printf("{\"iterations\": %llu, \"page\": %s, \"ready_at_ns\": %llu}\n",
           (unsigned long long)rounds, page ? "true" : "false", (unsigned long long)ready_ns);
    return 0;
}
