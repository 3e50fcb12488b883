/* Two threads that work, add up under a lock, and meet: they spin while the slot of the gang runs.
 *
 *     cc barrier.c -lgang -lpthread -o barrier-example && ./barrier-example
 */
#include <gang.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 2, ROUNDS = 2000 };

static gang_barrier barrier;
static gang_mutex lock;
static long sum, wrong;

static void *work(void *unused)
{
    for (long round = 1; round <= ROUNDS; round++) {
        gang_mutex_lock(&lock);
        sum++;
        gang_mutex_unlock(&lock);
        gang_barrier_wait(&barrier);
        /* All have added, and nobody adds again before all have looked. */
        if (sum != round * THREADS)
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
        gang_barrier_wait(&barrier);
    }
    return unused;
}

int main(void)
{
    gang_spec spec;
    gang_job *job;
    const gang_page *page;
    pthread_t other;

    gang_spec_init(&spec);
    spec.cpus = THREADS;
    spec.min_cpus = 1;
    if (gang_register(&spec, &job) != GANG_OK || gang_add_process(job, 0) != GANG_OK
        || gang_page_open(job, &page) != GANG_OK) {
        fprintf(stderr, "no gang: %s\n", gang_error());
        return 1;
    }
    if (gang_barrier_init(&barrier, THREADS, page) != GANG_OK
        || gang_mutex_init(&lock, page) != GANG_OK) {
        fprintf(stderr, "no barrier: %s\n", gang_error());
        return 1;
    }
    if (pthread_create(&other, NULL, work, NULL) != 0)
        return 1;
    work(NULL);
    pthread_join(other, NULL);
    printf("%d threads met %d times, %ld sums were wrong\n", THREADS, 2 * ROUNDS, wrong);
    gang_barrier_destroy(&barrier);
    gang_mutex_destroy(&lock);
    gang_page_close(page);
    gang_close(job);
    return wrong != 0;
}
