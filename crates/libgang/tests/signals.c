/* Calls in the middle of which signals come, whose handler calls what the header lets it call; in
 * one thread, in two, and in children of a fork. No call may fail or hang for it, and none starts a
 * thread. */
#include "expect.h"

#include <dirent.h>
#include <gang.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const gang_page *page;
static volatile sig_atomic_t heard, wrong, is_on;

/* The next alarm comes some time after the last one was dealt with. Where a handler takes longer
 * than that, a timer that goes on by itself would leave the program no moment. */
static void next_alarm(void)
{
    struct itimerval once = {{0, 0}, {0, 0}};
    once.it_value.tv_usec = is_on ? 300 : 0;
    if (setitimer(ITIMER_REAL, &once, NULL) != 0)
        wrong = 1;
}

static void handler(int signal)
{
    (void)signal;
    /* No process was added: the job has no slot. */
    if (gang_page_running(page) || gang_page_on_cpus(page) || gang_page_until_ns(page) == 1)
        wrong = 1;
    (void)gang_page_is_valid(page);
    for (int result = -1; result <= GANG_UNSUPPORTED + 1; result++)
        if (!*gang_result_text((gang_result)result))
            wrong = 1;
    heard = heard + 1;
    next_alarm();
}

/* Some thousand times a second, from now on or no more. A child of a fork has no timer. */
static void alarms(int on)
{
    is_on = on;
    next_alarm();
}

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count - 2;
}

/* Calls that ask the daemon, and calls that do not, again and again. */
static void calls(int rounds, int64_t id)
{
    gang_barrier barrier;
    gang_mutex mutex;
    EXPECT(GANG_OK, gang_barrier_init(&barrier, 1, page));
    EXPECT(GANG_OK, gang_mutex_init(&mutex, page));
    for (int round = 0; round < rounds; round++) {
        gang_job *job, *other;
        const gang_page *same;
        gang_change change;
        gang_use use;
        gang_load load;
        gang_spec spec;
        int64_t found = 0;
        use.size = sizeof use, load.size = sizeof load;
        EXPECT(GANG_OK, gang_open(id, &job));
        EXPECT(GANG_OK, gang_id(job, &found));
        EXPECT(1, found == id);
        EXPECT(GANG_OK, gang_get_use(job, &use));
        EXPECT(GANG_OK, gang_get_load(&load));
        EXPECT(GANG_OK, gang_job_progress(job, round, rounds));
        gang_change_init(&change);
        change.weight = 1 + round;
        EXPECT(GANG_OK, gang_resize(job, &change));
        EXPECT(GANG_OK, gang_page_open(job, &same));
        EXPECT(GANG_OK, gang_page_close(same));
        gang_spec_init(&spec);
        spec.cpus = 1;
        EXPECT(GANG_OK, gang_register(&spec, &other));
        EXPECT(GANG_NO_SUCH_PROCESS, gang_remove_process(other, 4194303));
        EXPECT(1, strlen(gang_error()) > 0);
        EXPECT(GANG_OK, gang_close(other));
        EXPECT(GANG_OK, gang_close(job));
        EXPECT(GANG_OK, gang_mutex_lock(&mutex));
        EXPECT(GANG_OK, gang_barrier_wait(&barrier));
        EXPECT(GANG_OK, gang_mutex_unlock(&mutex));
    }
}

/* Another thread, which asks all the time. */
static volatile int is_over;

static void *ask(void *id)
{
    while (!is_over)
        calls(1, *(int64_t *)id);
    return NULL;
}

static void children(int count, int64_t id, int own_threads)
{
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarms(1);
            calls(3, id);
            EXPECT(1, threads());
            EXPECT(0, wrong);
            _exit(0);
        }
        int status;
        EXPECT(1, child > 0);
        while (waitpid(child, &status, 0) < 0)
            ;
        EXPECT(0, status);
        calls(2, id);
        EXPECT(own_threads, threads());
    }
}

int main(void)
{
    static const int flags[] = {0, SA_RESTART};
    gang_spec spec;
    gang_job *job;
    int64_t id;
    pthread_t thread;
    gang_spec_init(&spec);
    spec.cpus = 1;
    EXPECT(GANG_OK, gang_register(&spec, &job));
    EXPECT(GANG_OK, gang_id(job, &id));
    EXPECT(GANG_OK, gang_page_open(job, &page));
    for (int i = 0; i < 2; i++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = handler;
        action.sa_flags = flags[i];
        EXPECT(0, sigaction(SIGALRM, &action, NULL));
        alarms(1);
        heard = 0;
        while (heard < 100)
            calls(2, id);
        EXPECT(1, threads());
        children(3, id, 1);
        is_over = 0;
        EXPECT(0, pthread_create(&thread, NULL, ask, &id));
        children(3, id, 2);
        is_over = 1;
        EXPECT(0, pthread_join(thread, NULL));
        alarms(0);
        EXPECT(1, threads());
        EXPECT(0, wrong);
    }
    return 0;
}
