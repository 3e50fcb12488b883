/* Every call with null, foreign, stale and garbage arguments gives its documented result, and
 * leaves what its arguments point to as it was. */
#include "expect.h"

#include <GangUserAPI.h>
#include <gang.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __cplusplus
_Static_assert(sizeof(gang_spec) == 56 && offsetof(gang_spec, mem_bytes) == 32, "gang_spec");
_Static_assert(sizeof(gang_change) == 40, "gang_change");
_Static_assert(sizeof(gang_use) == 72 && offsetof(gang_use, slots) == 24, "gang_use");
_Static_assert(sizeof(gang_load) == 64, "gang_load");
_Static_assert(sizeof(gang_page) == 48 && offsetof(gang_page, validity) == 36, "gang_page");
_Static_assert(sizeof(gang_barrier) == 384 && sizeof(gang_mutex) == 32, "barrier and lock");
_Static_assert(sizeof(struct GangUse) == 40 && sizeof(struct GangLoad) == 32, "LLNL");
_Static_assert(sizeof(struct GangJobId) == 16 && sizeof(struct GangResources) == 272, "LLNL");
#endif

static gang_job *garbage(uintptr_t number)
{
    return (gang_job *)number;
}

static void handles(gang_job *job)
{
    const gang_page *page = NULL;
    gang_change change;
    gang_use use;
    int64_t id;
    use.size = sizeof use;
    gang_change_init(&change);
    EXPECT(GANG_INVALID, gang_id(job, &id));
    EXPECT(GANG_INVALID, gang_add_process(job, 0));
    EXPECT(GANG_INVALID, gang_remove_process(job, 0));
    EXPECT(GANG_INVALID, gang_set_class(job, GANG_BATCH));
    EXPECT(GANG_INVALID, gang_resize(job, &change));
    EXPECT(GANG_INVALID, gang_set_signals(job, 1));
    EXPECT(GANG_INVALID, gang_suspend(job));
    EXPECT(GANG_INVALID, gang_resume(job));
    EXPECT(GANG_INVALID, gang_job_progress(job, 1, 2));
    EXPECT(GANG_INVALID, gang_get_use(job, &use));
    EXPECT(GANG_INVALID, gang_page_open(job, &page));
    EXPECT(GANG_INVALID, gang_close(job));
    EXPECT(0, page != NULL);
}

static void modern(void)
{
    gang_spec spec, wrong;
    gang_change change;
    gang_job *job = NULL, *none = NULL;
    int64_t id = 0, other = 7;

    handles(NULL);
    handles(garbage(1));
    handles(garbage(0x10001));
    handles(garbage(0xdeadbeef));
    handles(garbage(UINTPTR_MAX));

    EXPECT(GANG_INVALID, gang_spec_init(NULL));
    EXPECT(GANG_OK, gang_spec_init(&spec));
    spec.cpus = 1;
    EXPECT(GANG_INVALID, gang_register(NULL, &job));
    EXPECT(GANG_INVALID, gang_register(&spec, NULL));
    memset(&wrong, 0, sizeof wrong);
    EXPECT(GANG_INVALID, gang_register(&wrong, &none));
    memset(&wrong, 0xff, sizeof wrong);
    EXPECT(GANG_INVALID, gang_register(&wrong, &none));
    wrong = spec, wrong.job_class = (gang_class)9;
    EXPECT(GANG_INVALID, gang_register(&wrong, &none));
    wrong = spec, wrong.cpus = -1;
    EXPECT(GANG_INVALID, gang_register(&wrong, &none));
    wrong = spec, wrong.min_cpus = 2;
    EXPECT(GANG_INVALID, gang_register(&wrong, &none));
    wrong = spec, wrong.weight = 10001;
    EXPECT(GANG_INVALID, gang_register(&wrong, &none));
    wrong = spec, wrong.name = "a\nb";
    EXPECT(GANG_INVALID, gang_register(&wrong, &none));
    wrong = spec, wrong.name = "\xff";
    EXPECT(GANG_INVALID, gang_register(&wrong, &none));
    wrong = spec, wrong.mem_bytes = INT64_MAX;
    EXPECT(GANG_NOT_ENOUGH, gang_register(&wrong, &none));
    EXPECT(0, strlen(gang_error()) == 0);
    EXPECT(0, none != NULL);

    EXPECT(GANG_OK, gang_register(&spec, &job));
    EXPECT(GANG_OK, gang_id(job, &id));
    EXPECT(GANG_INVALID, gang_id(job, NULL));
    EXPECT(GANG_NO_SUCH_PROCESS, gang_add_process(job, 4194303));
    EXPECT(GANG_INVALID, gang_add_process(job, -5));
    EXPECT(GANG_NOT_PERMITTED, gang_add_process(job, 1));
    EXPECT(GANG_NO_SUCH_PROCESS, gang_remove_process(job, getpid()));
    EXPECT(GANG_INVALID, gang_set_class(job, (gang_class)0));
    EXPECT(GANG_INVALID, gang_resize(job, NULL));
    EXPECT(GANG_OK, gang_change_init(&change));
    change.size = 1;
    EXPECT(GANG_INVALID, gang_resize(job, &change));
    gang_change_init(&change);
    change.weight = 0;
    EXPECT(GANG_INVALID, gang_resize(job, &change));
    gang_change_init(&change);
    EXPECT(GANG_OK, gang_resize(job, &change));
    EXPECT(GANG_INVALID, gang_job_progress(job, NAN, 1));
    EXPECT(GANG_INVALID, gang_job_progress(job, 0, NAN));
    EXPECT(GANG_INVALID, gang_job_progress(job, -1, 1));
    EXPECT(GANG_INVALID, gang_job_progress(job, 2, 1));
    EXPECT(GANG_INVALID, gang_job_progress(job, 0, 0));
    EXPECT(GANG_INVALID, gang_job_progress(job, 1, INFINITY));
    EXPECT(GANG_INVALID, gang_get_use(job, NULL));
    EXPECT(GANG_INVALID, gang_get_load(NULL));
    EXPECT(GANG_INVALID, gang_page_open(job, NULL));
    EXPECT(GANG_INVALID, gang_page_close(NULL));
    EXPECT(GANG_INVALID, gang_page_close((const gang_page *)&spec));
    EXPECT(GANG_INVALID, gang_adopt(NULL, getpid(), &none));
    EXPECT(GANG_INVALID, gang_adopt(&spec, 0, &none));
    EXPECT(GANG_NO_SUCH_PROCESS, gang_adopt(&spec, 4194303, &none));
    EXPECT(GANG_NOT_PERMITTED, gang_adopt(&spec, 1, &none));
    EXPECT(GANG_NO_SUCH_JOB, gang_open(1234567, &none));
    EXPECT(GANG_INVALID, gang_open(-1, &none));
    EXPECT(GANG_INVALID, gang_open(id, NULL));
    unsetenv("GANG_JOB");
    EXPECT(GANG_NO_SUCH_JOB, gang_current(&none));
    EXPECT(0, none != NULL);
    EXPECT(0, strcmp(gang_result_text(GANG_OK), "success") != 0);
    EXPECT(0, gang_result_text((gang_result)77) == NULL);

    /* As an older program would ask, whose struct ended early: the rest is not touched. */
    gang_use use;
    memset(&use, 0x55, sizeof use);
    use.size = 16;
    EXPECT(GANG_OK, gang_get_use(job, &use));
    EXPECT(GANG_STARTING, use.state);
    EXPECT(1, use.slots == 0x5555555555555555);

    EXPECT(GANG_OK, gang_close(job));
    handles(job);
    EXPECT(GANG_INVALID, gang_id(job, &other));
    EXPECT(1, other == 7);
    /* The job goes on without its handle. */
    EXPECT(GANG_OK, gang_open(id, &job));
    EXPECT(GANG_OK, gang_close(job));
}

/* Memory that is no slot page, or is one no more, stays as it is. */
static void pages(void)
{
    enum { MOST = 1024 };
    gang_spec spec;
    gang_job *job;
    const gang_page *page = NULL, *other = NULL, *many[MOST], *more = NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *foreign = (char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    int status;
    gang_spec_init(&spec);
    spec.cpus = 1;
    EXPECT(GANG_OK, gang_register(&spec, &job));
    foreign[4095] = 7;
    EXPECT(GANG_INVALID, gang_page_close((const gang_page *)foreign));
    EXPECT(7, foreign[4095]);
    EXPECT(GANG_INVALID, gang_page_close((const gang_page *)garbage(4096)));
    EXPECT(GANG_OK, gang_page_open(job, &page));
    EXPECT(GANG_OK, gang_page_open(job, &other));
    /* Only the daemon writes it. */
    EXPECT(-1, mprotect((void *)page, 4096, PROT_READ | PROT_WRITE));
    EXPECT(GANG_INVALID, gang_page_close((const gang_page *)((const char *)page + 8)));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(0, gang_page_running(page));
        EXPECT(GANG_OK, gang_page_close(page));
        EXPECT(GANG_INVALID, gang_page_close(page));
        _exit(0);
    }
    EXPECT(child, waitpid(child, &status, 0));
    EXPECT(0, status);
    EXPECT(GANG_OK, gang_page_close(page));
    EXPECT(GANG_INVALID, gang_page_close(page));
    /* Something else may be at the address by now. */
    void *later = mmap((void *)page, 4096, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    EXPECT(GANG_INVALID, gang_page_close(page));
    *(char *)later = 7;
    EXPECT(GANG_OK, gang_page_close(other));
    for (int i = 0; i < MOST; i++)
        EXPECT(GANG_OK, gang_page_open(job, &many[i]));
    EXPECT(GANG_LIMIT, gang_page_open(job, &more));
    EXPECT(0, more != NULL);
    for (int i = 0; i < MOST; i++)
        EXPECT(GANG_OK, gang_page_close(many[i]));
    EXPECT(GANG_OK, gang_page_open(job, &more));
    EXPECT(GANG_OK, gang_page_close(more));
    EXPECT(GANG_OK, gang_close(job));
}

/* Where there is no handle for it, no job is registered or adopted. */
static void no_handles_left(void)
{
    enum { MOST = 4096 };
    static gang_job *handles[MOST];
    gang_spec spec;
    gang_job *job, *none = NULL;
    gang_load load;
    int64_t id;
    int count = 0, status, end[2];
    load.size = sizeof load;
    gang_spec_init(&spec);
    spec.cpus = 1;
    EXPECT(GANG_OK, gang_register(&spec, &job));
    EXPECT(GANG_OK, gang_id(job, &id));
    gang_result result = GANG_OK;
    while (result == GANG_OK && count < MOST)
        if ((result = gang_open(id, &handles[count])) == GANG_OK)
            count++;
    EXPECT(GANG_LIMIT, result);
    EXPECT(GANG_OK, gang_get_load(&load));
    int jobs = load.jobs;
    EXPECT(GANG_LIMIT, gang_register(&spec, &none));
    EXPECT(0, pipe(end));
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(end[1]);
        _exit((int)read(end[0], &byte, 1));
    }
    EXPECT(GANG_LIMIT, gang_adopt(&spec, child, &none));
    close(end[1]);
    EXPECT(child, waitpid(child, &status, 0));
    EXPECT(0, none != NULL);
    EXPECT(GANG_OK, gang_get_load(&load));
    EXPECT(jobs, load.jobs);
    while (count > 0)
        EXPECT(GANG_OK, gang_close(handles[--count]));
    EXPECT(GANG_OK, gang_close(job));
}

static void llnl(void)
{
    struct GangJobId job = {0, 0}, foreign = {1, 1}, stale;
    struct GangResources here, elsewhere;
    memset(&here, 0, sizeof here);
    here.cpu_count = 1;
    elsewhere = here;
    strcpy(elsewhere.machine, "elsewhere.example.org");
    struct GangResources *list[] = {&here, NULL}, *empty[] = {NULL};
    struct GangResources *far[] = {&elsewhere, NULL}, *twice[] = {&here, &here, NULL};
    struct GangUse use;
    struct GangLoad load;

    EXPECT(gsBadArgument, GangJobRegister(NULL, CLASS_BATCH, list));
    EXPECT(gsBadArgument, GangJobRegister(&job, CLASS_BATCH, NULL));
    EXPECT(gsBadArgument, GangJobRegister(&job, CLASS_BATCH, empty));
    EXPECT(gsBadArgument, GangJobRegister(&job, CLASS_BATCH, twice));
    EXPECT(gsBadMachine, GangJobRegister(&job, CLASS_BATCH, far));
    EXPECT(gsBadClass, GangJobRegister(&job, 0, list));
    EXPECT(gsNoSuchJob, GangJobRegister(&foreign, CLASS_BATCH, list));
    here.cpu_min = -1;
    EXPECT(gsBadArgument, GangJobRegister(&job, CLASS_BATCH, list));
    here.cpu_min = 0, here.mega_mem = 2147483647;
    EXPECT(gsNoResources, GangJobRegister(&job, CLASS_BATCH, list));
    here.mega_mem = 0;
    EXPECT(0, job.job != 0);
    EXPECT(gsNoSuchJob, GangProcAdd(&job, PROC_ID, getpid()));
    EXPECT(gsSuccess, GangJobRegister(&job, CLASS_BATCH, list));
    stale = job, stale.job += 1000;
    EXPECT(gsNoSuchJob, GangProcAdd(&stale, PROC_ID, getpid()));
    EXPECT(gsBadArgument, GangProcAdd(NULL, PROC_ID, getpid()));
    EXPECT(gsBadIdType, GangProcAdd(&job, 2, getpid()));
    EXPECT(gsBadArgument, GangProcAdd(&job, PROC_ID, 0));
    EXPECT(gsNotPermitted, GangProcAdd(&job, PROC_ID, 1));
    EXPECT(gsNoSuchProcess, GangProcRemove(&job, PROC_ID, getpid()));
    EXPECT(gsBadClass, GangJobClass(&job, 5));
    EXPECT(gsNoSuchJob, GangJobClass(&stale, CLASS_BATCH));
    EXPECT(gsBadArgument, GangJobResources(&job, NULL));
    EXPECT(gsBadArgument, GangJobUse(&job, NULL));
    EXPECT(gsNoSuchJob, GangJobUse(&stale, &use));
    EXPECT(gsBadArgument, GangMachineLoad(NULL, NULL));
    EXPECT(gsBadMachine, GangMachineLoad("elsewhere", &load));
    EXPECT(gsSuccess, GangMachineLoad(NULL, &load));
    EXPECT(gsNoSuchJob, GangSignalsEnable(&foreign));
    EXPECT(gsBadArgument, GangSignalsDisable(NULL));
    EXPECT(0, GangErrMsg(99) == NULL);
}

/*
 * A loop that counts, whose reports may be sent or not; and the last report of a job that is over.
 */
static void progress(void)
{
    gang_spec spec;
    gang_job *job, *same;
    int64_t id;
    gang_spec_init(&spec);
    spec.cpus = 1;
    EXPECT(GANG_OK, gang_register(&spec, &job));
    for (int done = 0; done <= 1000000; done++)
        EXPECT(GANG_OK, gang_job_progress(job, done, 1000000));
    /* The next question is not answered by an earlier report. */
    EXPECT(GANG_OK, gang_id(job, &id));
    EXPECT(GANG_OK, gang_open(id, &same));
    EXPECT(GANG_OK, gang_job_progress(same, 1, 2));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(GANG_OK, gang_job_progress(job, 1000000, 1000000));
        EXPECT(GANG_OK, gang_add_process(job, 0));
        _exit(0);
    }
    int status;
    EXPECT(child, waitpid(child, &status, 0));
    EXPECT(0, status);
    /* It ended with its only process: that is reported, late and not in every call. */
    gang_result result;
    while ((result = gang_job_progress(job, 1, 2)) == GANG_OK)
        usleep(50000);
    EXPECT(GANG_NO_SUCH_JOB, result);
    EXPECT(GANG_OK, gang_job_progress(job, 1, 2));
    EXPECT(GANG_OK, gang_close(same));
    EXPECT(GANG_OK, gang_close(job));
}

/* A parent registers; its child adds itself by the same handle, on a connection of its own. */
static void across_fork(void)
{
    gang_spec spec;
    gang_job *job;
    gang_use use;
    int status;
    use.size = sizeof use;
    gang_spec_init(&spec);
    spec.cpus = 1;
    EXPECT(GANG_OK, gang_register(&spec, &job));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(GANG_OK, gang_add_process(job, 0));
        EXPECT(GANG_OK, gang_get_use(job, &use));
        _exit(use.processes == 1 ? 0 : 1);
    }
    EXPECT(child, waitpid(child, &status, 0));
    EXPECT(0, status);
    EXPECT(GANG_OK, gang_close(job));
}

static void barriers(void)
{
    gang_barrier barrier, filled;
    gang_mutex mutex;
    const gang_page *wrong = (const gang_page *)garbage(4097);

    EXPECT(GANG_INVALID, gang_barrier_init(NULL, 2, NULL));
    EXPECT(GANG_INVALID, gang_barrier_init((gang_barrier *)garbage(1), 2, NULL));
    memset(&barrier, 0x55, sizeof barrier);
    filled = barrier;
    EXPECT(GANG_INVALID, gang_barrier_init(&barrier, 0, NULL));
    EXPECT(GANG_INVALID, gang_barrier_init(&barrier, UINT32_MAX, NULL));
    EXPECT(GANG_INVALID, gang_barrier_init(&barrier, 2, wrong));
    EXPECT(0, memcmp(&barrier, &filled, sizeof barrier));
    EXPECT(GANG_INVALID, gang_barrier_wait(NULL));
    EXPECT(GANG_INVALID, gang_barrier_wait(&barrier));
    EXPECT(GANG_INVALID, gang_barrier_destroy(NULL));
    EXPECT(GANG_INVALID, gang_barrier_destroy(&barrier));
    EXPECT(GANG_OK, gang_barrier_init(&barrier, 1, NULL));
    EXPECT(GANG_OK, gang_barrier_wait(&barrier));
    EXPECT(GANG_OK, gang_barrier_wait(&barrier));
    EXPECT(GANG_OK, gang_barrier_destroy(&barrier));
    EXPECT(GANG_INVALID, gang_barrier_wait(&barrier));
    EXPECT(GANG_INVALID, gang_barrier_destroy(&barrier));

    memset(&mutex, 0x55, sizeof mutex);
    EXPECT(GANG_INVALID, gang_mutex_init(NULL, NULL));
    EXPECT(GANG_INVALID, gang_mutex_init(&mutex, wrong));
    EXPECT(GANG_INVALID, gang_mutex_lock(NULL));
    EXPECT(GANG_INVALID, gang_mutex_lock(&mutex));
    EXPECT(GANG_INVALID, gang_mutex_unlock(&mutex));
    EXPECT(GANG_INVALID, gang_mutex_destroy(&mutex));
    EXPECT(GANG_OK, gang_mutex_init(&mutex, NULL));
    EXPECT(GANG_INVALID, gang_mutex_unlock(&mutex));
    EXPECT(GANG_OK, gang_mutex_lock(&mutex));
    EXPECT(GANG_INVALID, gang_mutex_destroy(&mutex));
    EXPECT(GANG_OK, gang_mutex_unlock(&mutex));
    EXPECT(GANG_OK, gang_mutex_destroy(&mutex));
    EXPECT(GANG_INVALID, gang_mutex_lock(&mutex));
}

/* A parent and its child, by what it made in memory that both share. */
static void barriers_across_fork(void)
{
    struct shared {
        gang_barrier barrier;
        gang_mutex mutex;
        long parent, child, sum;
    } *shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    EXPECT(GANG_OK, gang_barrier_init(&shared->barrier, 2, NULL));
    EXPECT(GANG_OK, gang_mutex_init(&shared->mutex, NULL));
    pid_t child = fork();
    for (long round = 1; round <= 1000; round++) {
        *(child ? &shared->parent : &shared->child) = round;
        EXPECT(GANG_OK, gang_mutex_lock(&shared->mutex));
        shared->sum++;
        EXPECT(GANG_OK, gang_mutex_unlock(&shared->mutex));
        EXPECT(GANG_OK, gang_barrier_wait(&shared->barrier));
        EXPECT(round, child ? shared->child : shared->parent);
        EXPECT(2 * round, shared->sum);
        EXPECT(GANG_OK, gang_barrier_wait(&shared->barrier));
    }
    if (child == 0)
        _exit(0);
    EXPECT(child, waitpid(child, &status, 0));
    EXPECT(0, status);
    EXPECT(GANG_OK, gang_barrier_destroy(&shared->barrier));
    EXPECT(GANG_OK, gang_mutex_destroy(&shared->mutex));
}

int main(void)
{
    modern();
    pages();
    no_handles_left();
    llnl();
    progress();
    across_fork();
    barriers();
    barriers_across_fork();
    return 0;
}
