/* How long calls of libgang take, beside as many jobs of one sleeping process each.
 *
 *     calls JOBS TIMES
 *
 * Needs a daemon without other work. Every child sleeps, and dies with this process.
 */
#include <gang.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void must(const char *what, gang_result result)
{
    if (result != GANG_OK) {
        fprintf(stderr, "%s: %s\n", what, gang_error());
        exit(1);
    }
}

static pid_t sleeper(void)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return child;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void say(const char *what, uint64_t *took_ns, int times)
{
    qsort(took_ns, (size_t)times, sizeof *took_ns, ascending);
    printf("\"%s_us_median\": %.1f, \"%s_us_p99\": %.1f, ", what, (double)took_ns[times / 2] / 1e3,
           what, (double)took_ns[(times * 99 + 99) / 100 - 1] / 1e3);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int jobs = atoi(argv[1]), times = atoi(argv[2]);
    uint64_t *registered = calloc((size_t)times, sizeof *registered);
    uint64_t *added = calloc((size_t)times, sizeof *added);
    uint64_t *first_added = calloc((size_t)times, sizeof *added);
    pid_t *children = calloc((size_t)(jobs + 2 * times + 1), sizeof *children);
    int count = 0;
    gang_spec spec;
    gang_job *job;
    const gang_page *page;

    gang_spec_init(&spec);
    spec.name = "calls";
    spec.cpus = 1;
    for (; count < jobs; count++) {
        children[count] = sleeper();
        must("register", gang_register(&spec, &job));
        must("add", gang_add_process(job, children[count]));
        gang_close(job);
    }
    for (int i = 0; i < times; i++) {
        pid_t first = children[count++] = sleeper(), second = children[count++] = sleeper();
        uint64_t begun = now_ns();
        must("register", gang_register(&spec, &job));
        registered[i] = now_ns() - begun;
        begun = now_ns();
        must("add", gang_add_process(job, first));
        first_added[i] = now_ns() - begun;
        begun = now_ns();
        must("add another", gang_add_process(job, second));
        added[i] = now_ns() - begun;
        if (i == 0)
            must("open the slot page", gang_page_open(job, &page));
        gang_close(job);
        /* The job ends with them: there are never more than one above the others. */
        kill(first, SIGKILL);
        kill(second, SIGKILL);
        waitpid(first, NULL, 0);
        waitpid(second, NULL, 0);
    }

    const int reads = 20000000;
    int running = 0;
    uint64_t begun = now_ns();
    for (int i = 0; i < reads; i++)
        running += gang_page_running(page);
    double read_ns = (double)(now_ns() - begun) / reads;

    /* The job of the loop: those above have ended. */
    pid_t child = children[count++] = sleeper();
    must("register", gang_register(&spec, &job));
    must("add", gang_add_process(job, child));
    const int reports = 2000000;
    uint64_t longest_ns = 0, last = begun = now_ns();
    for (int i = 0; i < reports; i++) {
        must("report", gang_job_progress(job, i, reports));
        uint64_t now = now_ns();
        if (i > 0 && now - last > longest_ns)
            longest_ns = now - last;
        last = now;
    }
    double report_ns = (double)(last - begun) / reports;

    printf("{");
    say("register", registered, times);
    say("add_first", first_added, times);
    say("add_another", added, times);
    printf("\"page_read_ns\": %.3f, \"running\": %d, ", read_ns, running > 0);
    printf("\"progress_ns\": %.1f, \"progress_us_max\": %.1f}\n", report_ns, (double)longest_ns / 1e3);
    for (int i = 0; i < jobs; i++)
        kill(children[i], SIGKILL);
    kill(child, SIGKILL);
    return 0;
}
