/* Every call with each of its arguments null, foreign, stale, of an ended job, or garbage. The
 * result is the documented one, and what the arguments point to stays as it was. tests/c.rs knows
 * whether a row is missing. */
#include "rows.h"

#include <GangUserAPI.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where calls put what they find, filled with what none of them puts there. */
struct outputs {
    gang_job *job;
    const gang_page *page;
    int64_t id;
    char name[256];
    gang_use use;
    gang_load load;
    struct GangUse llnl_use;
    struct GangLoad llnl_load;
};
static struct outputs out, before;

static int is_changed(void)
{
    return memcmp(&out, &before, sizeof out) != 0;
}

static gang_job *garbage(uintptr_t number)
{
    return (gang_job *)number;
}

/* A process that has ended. */
static pid_t ended_process(void)
{
    pid_t child = fork();
    int status;
    if (child == 0)
        _exit(0);
    NEEDED(child, waitpid(child, &status, 0));
    return child;
}

/* Handles on a job that has ended with its only process, and its id. */
static gang_job *ended_job(const gang_spec *spec, int64_t *id)
{
    gang_job *job;
    gang_use use;
    int status;
    use.size = sizeof use;
    NEEDED(GANG_OK, gang_register(spec, &job));
    NEEDED(GANG_OK, gang_id(job, id));
    pid_t child = fork();
    if (child == 0)
        _exit(gang_add_process(job, 0));
    NEEDED(child, waitpid(child, &status, 0));
    NEEDED(0, status);
    while (gang_get_use(job, &use) == GANG_OK)
        usleep(10000);
    return job;
}

/*
 * A call with a handle: what it may be but a good one. The arguments after it begin with a comma.
 */
#define HANDLE(of_ended, function, ...)                  \
    NO_HANDLE(function, __VA_ARGS__);                    \
    ROW(of_ended, function, job, ended, ended __VA_ARGS__)
#define NO_HANDLE(function, ...)                                                     \
    ROW(GANG_INVALID, function, job, null, NULL __VA_ARGS__);                        \
    ROW(GANG_INVALID, function, job, garbage, garbage(0xdeadbeef) __VA_ARGS__);      \
    ROW(GANG_INVALID, function, job, foreign, garbage((uintptr_t)&out) __VA_ARGS__); \
    ROW(GANG_INVALID, function, job, stale, stale __VA_ARGS__)

static void modern(void)
{
    gang_spec spec, wrong;
    gang_change change, no_change;
    const char *const names[] = {"a", "b"}, *const no_lists[] = {"0", "a"};
    const int32_t cpus[] = {1, 1};
    gang_span span, no_span, wrong_span;
    gang_job *job, *stale, *ended;
    int64_t id, ended_id;
    char number[32];
    gang_use use;
    gang_load load;
    pid_t gone = ended_process();

    NEEDED(GANG_OK, gang_spec_init(&spec));
    spec.cpus = 1;
    memset(&wrong, 0xff, sizeof wrong);
    NEEDED(GANG_OK, gang_change_init(&change));
    memset(&no_change, 0xff, sizeof no_change);
    NEEDED(GANG_OK, gang_span_init(&no_span));
    memset(&wrong_span, 0xff, sizeof wrong_span);
    span = no_span;
    span.hosts = 2, span.names = names, span.cpus = cpus;
    memset(&use, 0, sizeof use);
    memset(&load, 0xff, sizeof load);
    NEEDED(GANG_OK, gang_register(&spec, &job));
    NEEDED(GANG_OK, gang_id(job, &id));
    NEEDED(GANG_OK, gang_open(id, &stale));
    NEEDED(GANG_OK, gang_close(stale));
    ended = ended_job(&spec, &ended_id);

    TEXT(gang_result_text, result, garbage, (gang_result)77);
    ROW(GANG_INVALID, gang_spec_init, spec, null, NULL);
    ROW(GANG_INVALID, gang_change_init, change, null, NULL);

    ROW(GANG_INVALID, gang_register, spec, null, NULL, &out.job);
    ROW(GANG_INVALID, gang_register, spec, garbage, &wrong, &out.job);
    ROW(GANG_INVALID, gang_register, job, null, &spec, NULL);

    ROW(GANG_INVALID, gang_span_init, span, null, NULL);
    ROW(GANG_INVALID, gang_register_span, spec, null, NULL, &span, &out.job);
    ROW(GANG_INVALID, gang_register_span, spec, garbage, &wrong, &span, &out.job);
    ROW(GANG_INVALID, gang_register_span, span, null, &spec, NULL, &out.job);
    ROW(GANG_INVALID, gang_register_span, span, garbage, &spec, &wrong_span, &out.job);
    ROW(GANG_INVALID, gang_register_span, span, empty, &spec, &no_span, &out.job);
    ROW(GANG_INVALID, gang_register_span, job, null, &spec, &span, NULL);
    ROW(GANG_FAILED, gang_register_span, cluster, none, &spec, &span, &out.job);
    span.on_host_lost = (gang_host_lost)9;
    ROW(GANG_INVALID, gang_register_span, span, unknown, &spec, &span, &out.job);
    span.on_host_lost = GANG_MARK, span.allowed = no_lists;
    ROW(GANG_INVALID, gang_register_span, span, list, &spec, &span, &out.job);
    ROW(GANG_INVALID, gang_host_name, name, null, NULL, sizeof out.name);
    ROW(GANG_INVALID, gang_host_name, size, garbage, out.name, 0);
    ROW(GANG_FAILED, gang_host_name, cluster, none, out.name, sizeof out.name);

    ROW(GANG_INVALID, gang_adopt, spec, null, NULL, getpid(), &out.job);
    ROW(GANG_INVALID, gang_adopt, spec, garbage, &wrong, getpid(), &out.job);
    ROW(GANG_INVALID, gang_adopt, pid, garbage, &spec, -5, &out.job);
    ROW(GANG_NO_SUCH_PROCESS, gang_adopt, pid, stale, &spec, gone, &out.job);
    ROW(GANG_NOT_PERMITTED, gang_adopt, pid, foreign, &spec, 1, &out.job);
    ROW(GANG_INVALID, gang_adopt, job, null, &spec, getpid(), NULL);

    ROW(GANG_INVALID, gang_open, id, garbage, -1, &out.job);
    ROW(GANG_NO_SUCH_JOB, gang_open, id, ended, ended_id, &out.job);
    ROW(GANG_INVALID, gang_open, job, null, id, NULL);

    unsetenv("GANG_JOB");
    ROW(GANG_NO_SUCH_JOB, gang_current, environment, null, &out.job);
    setenv("GANG_JOB", "a job", 1);
    ROW(GANG_NO_SUCH_JOB, gang_current, environment, garbage, &out.job);
    snprintf(number, sizeof number, "%lld", (long long)ended_id);
    setenv("GANG_JOB", number, 1);
    ROW(GANG_NO_SUCH_JOB, gang_current, environment, ended, &out.job);
    snprintf(number, sizeof number, "%lld", (long long)id);
    setenv("GANG_JOB", number, 1);
    ROW(GANG_INVALID, gang_current, job, null, NULL);
    unsetenv("GANG_JOB");

    NO_HANDLE(gang_id, , &out.id);
    ROW(GANG_OK, gang_id, job, ended, ended, &id);
    ROW(GANG_INVALID, gang_id, id, null, job, NULL);

    HANDLE(GANG_NO_SUCH_JOB, gang_add_process, , 0);
    ROW(GANG_INVALID, gang_add_process, pid, garbage, job, -5);
    ROW(GANG_NO_SUCH_PROCESS, gang_add_process, pid, stale, job, gone);
    ROW(GANG_NOT_PERMITTED, gang_add_process, pid, foreign, job, 1);

    ROW(GANG_INVALID, gang_set_slurm_job, pid, garbage, -5, "12");
    ROW(GANG_NO_SUCH_PROCESS, gang_set_slurm_job, pid, stale, gone, "12");
    ROW(GANG_NO_SUCH_PROCESS, gang_set_slurm_job, pid, foreign, 1, "12");
    ROW(GANG_INVALID, gang_set_slurm_job, slurm_job, null, 1, NULL);
    ROW(GANG_INVALID, gang_set_slurm_job, slurm_job, garbage, 1, "12; reboot");
    ROW(GANG_INVALID, gang_set_slurm_job, slurm_job, foreign, 1, "slurm:12.0");

    HANDLE(GANG_NO_SUCH_JOB, gang_remove_process, , 0);
    ROW(GANG_INVALID, gang_remove_process, pid, garbage, job, -5);
    ROW(GANG_NO_SUCH_PROCESS, gang_remove_process, pid, stale, job, gone);
    ROW(GANG_NO_SUCH_PROCESS, gang_remove_process, pid, foreign, job, 1);

    HANDLE(GANG_NO_SUCH_JOB, gang_add_thread, , 0);
    ROW(GANG_INVALID, gang_add_thread, tid, garbage, job, -5);
    ROW(GANG_NO_SUCH_PROCESS, gang_add_thread, tid, stale, job, gone);
    ROW(GANG_NOT_PERMITTED, gang_add_thread, tid, foreign, job, 1);

    HANDLE(GANG_NO_SUCH_JOB, gang_remove_thread, , 0);
    ROW(GANG_INVALID, gang_remove_thread, tid, garbage, job, -5);
    ROW(GANG_NO_SUCH_PROCESS, gang_remove_thread, tid, stale, job, gone);
    ROW(GANG_NO_SUCH_PROCESS, gang_remove_thread, tid, foreign, job, 1);

    HANDLE(GANG_NO_SUCH_JOB, gang_set_class, , GANG_BATCH);
    ROW(GANG_INVALID, gang_set_class, job_class, garbage, job, (gang_class)0);

    HANDLE(GANG_NO_SUCH_JOB, gang_resize, , &change);
    ROW(GANG_INVALID, gang_resize, change, null, job, NULL);
    ROW(GANG_INVALID, gang_resize, change, garbage, job, &no_change);

    HANDLE(GANG_NO_SUCH_JOB, gang_set_signals, , 1);
    HANDLE(GANG_NO_SUCH_JOB, gang_suspend, );
    HANDLE(GANG_NO_SUCH_JOB, gang_resume, );

    HANDLE(GANG_NO_SUCH_JOB, gang_job_progress, , 1, 2);
    ROW(GANG_INVALID, gang_job_progress, done, garbage, job, NAN, 2);
    ROW(GANG_INVALID, gang_job_progress, total, garbage, job, 1, -INFINITY);

    out.use.size = before.use.size = sizeof out.use;
    HANDLE(GANG_NO_SUCH_JOB, gang_get_use, , &out.use);
    ROW(GANG_INVALID, gang_get_use, use, null, job, NULL);
    ROW(GANG_INVALID, gang_get_use, use, garbage, job, &use);

    ROW(GANG_INVALID, gang_get_load, load, null, NULL);
    ROW(GANG_INVALID, gang_get_load, load, garbage, &load);

    HANDLE(GANG_NO_SUCH_JOB, gang_page_open, , &out.page);
    ROW(GANG_INVALID, gang_page_open, page, null, job, NULL);

    const gang_page *page;
    void *foreign = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEEDED(GANG_OK, gang_page_open(job, &page));
    NEEDED(GANG_OK, gang_page_close(page));
    ROW(GANG_INVALID, gang_page_close, page, null, NULL);
    ROW(GANG_INVALID, gang_page_close, page, garbage, (const gang_page *)garbage(0xdeadbeef));
    ROW(GANG_INVALID, gang_page_close, page, stale, page);
    ROW(GANG_INVALID, gang_page_close, page, foreign, (const gang_page *)foreign);

    gang_barrier barrier;
    gang_mutex mutex;
    memset(&barrier, 0x55, sizeof barrier);
    memset(&mutex, 0x55, sizeof mutex);
    ROW(GANG_INVALID, gang_barrier_init, barrier, null, NULL, 2, NULL);
    ROW(GANG_INVALID, gang_barrier_init, barrier, garbage, (gang_barrier *)garbage(1), 2, NULL);
    ROW(GANG_INVALID, gang_barrier_init, threads, garbage, &barrier, UINT32_MAX, NULL);
    ROW(GANG_INVALID, gang_barrier_init, page, garbage, &barrier, 2, (const gang_page *)garbage(4097));
    ROW(GANG_INVALID, gang_barrier_init, page, foreign, &barrier, 2, (const gang_page *)foreign);
    ROW(GANG_INVALID, gang_barrier_wait, barrier, null, NULL);
    ROW(GANG_INVALID, gang_barrier_wait, barrier, garbage, &barrier);
    ROW(GANG_INVALID, gang_barrier_destroy, barrier, null, NULL);
    ROW(GANG_INVALID, gang_barrier_destroy, barrier, garbage, &barrier);
    ROW(GANG_OK, gang_barrier_init, page, null, &barrier, 2, NULL);
    NEEDED(GANG_OK, gang_barrier_destroy(&barrier));
    ROW(GANG_INVALID, gang_barrier_wait, barrier, stale, &barrier);
    ROW(GANG_INVALID, gang_barrier_destroy, barrier, stale, &barrier);

    ROW(GANG_INVALID, gang_mutex_init, mutex, null, NULL, NULL);
    ROW(GANG_INVALID, gang_mutex_init, mutex, garbage, (gang_mutex *)garbage(1), NULL);
    ROW(GANG_INVALID, gang_mutex_init, page, garbage, &mutex, (const gang_page *)garbage(4097));
    ROW(GANG_INVALID, gang_mutex_init, page, foreign, &mutex, (const gang_page *)foreign);
    ROW(GANG_INVALID, gang_mutex_lock, mutex, null, NULL);
    ROW(GANG_INVALID, gang_mutex_lock, mutex, garbage, &mutex);
    ROW(GANG_INVALID, gang_mutex_unlock, mutex, null, NULL);
    ROW(GANG_INVALID, gang_mutex_unlock, mutex, garbage, &mutex);
    ROW(GANG_INVALID, gang_mutex_destroy, mutex, null, NULL);
    ROW(GANG_INVALID, gang_mutex_destroy, mutex, garbage, &mutex);
    ROW(GANG_OK, gang_mutex_init, page, null, &mutex, NULL);
    NEEDED(GANG_OK, gang_mutex_destroy(&mutex));
    ROW(GANG_INVALID, gang_mutex_lock, mutex, stale, &mutex);
    ROW(GANG_INVALID, gang_mutex_unlock, mutex, stale, &mutex);
    ROW(GANG_INVALID, gang_mutex_destroy, mutex, stale, &mutex);

    HANDLE(GANG_OK, gang_close, );
    NEEDED(GANG_OK, gang_close(job));
}

/* A call with an id: the same. */
#define ID(function, ...)                                                  \
    ROW(gsBadArgument, function, job, null, NULL __VA_ARGS__);             \
    ROW(gsNoSuchJob, function, job, garbage, &nonsense __VA_ARGS__);       \
    ROW(gsNoSuchJob, function, job, foreign, &foreign __VA_ARGS__);        \
    ROW(gsNoSuchJob, function, job, ended, &ended __VA_ARGS__)

static void llnl(void)
{
    struct GangJobId job = {0, 0}, foreign = {1, 1}, ended = {0, 0}, nonsense;
    struct GangResources here, elsewhere, wrong;
    memset(&nonsense, 0xff, sizeof nonsense);
    memset(&here, 0, sizeof here);
    here.cpu_count = 1;
    elsewhere = wrong = here;
    strcpy(elsewhere.machine, "elsewhere.example.org");
    wrong.cpu_count = -1;
    struct GangResources *list[] = {&here, NULL}, *far[] = {&elsewhere, NULL};
    struct GangResources *bad[] = {&wrong, NULL};
    pid_t gone = ended_process();
    int status;

    NEEDED(gsSuccess, GangJobRegister(&job, CLASS_BATCH, list));
    NEEDED(gsSuccess, GangJobRegister(&ended, CLASS_BATCH, list));
    pid_t child = fork();
    if (child == 0)
        _exit(GangProcAdd(&ended, PROC_ID, getpid()));
    NEEDED(child, waitpid(child, &status, 0));
    NEEDED(0, status);
    struct GangUse use;
    while (GangJobUse(&ended, &use) == gsSuccess)
        usleep(10000);

    ID(GangJobRegister, , CLASS_BATCH, list);
    ROW(gsBadClass, GangJobRegister, job_class, garbage, &job, 9, list);
    ROW(gsBadArgument, GangJobRegister, list, null, &job, CLASS_BATCH, NULL);
    ROW(gsBadArgument, GangJobRegister, list, garbage, &job, CLASS_BATCH, bad);
    ROW(gsBadMachine, GangJobRegister, list, foreign, &job, CLASS_BATCH, far);

    ID(GangProcAdd, , PROC_ID, getpid());
    ROW(gsBadIdType, GangProcAdd, type, garbage, &job, 2, getpid());
    ROW(gsBadArgument, GangProcAdd, process, garbage, &job, PROC_ID, -5);
    ROW(gsNoSuchProcess, GangProcAdd, process, stale, &job, PROC_ID, gone);
    ROW(gsNotPermitted, GangProcAdd, process, foreign, &job, PROC_ID, 1);
    ID(GangProcRemove, , PROC_ID, getpid());
    ROW(gsBadIdType, GangProcRemove, type, garbage, &job, 2, getpid());
    ROW(gsBadArgument, GangProcRemove, process, garbage, &job, PROC_ID, -5);
    ROW(gsNoSuchProcess, GangProcRemove, process, stale, &job, PROC_ID, gone);
    ROW(gsNoSuchProcess, GangProcRemove, process, foreign, &job, PROC_ID, 1);

    ID(GangJobClass, , CLASS_BATCH);
    ROW(gsBadClass, GangJobClass, job_class, garbage, &job, 0);
    ID(GangJobResources, , list);
    ROW(gsBadArgument, GangJobResources, list, null, &job, NULL);
    ROW(gsBadArgument, GangJobResources, list, garbage, &job, bad);
    ROW(gsBadMachine, GangJobResources, list, foreign, &job, far);
    ID(GangJobUse, , &out.llnl_use);
    ROW(gsBadArgument, GangJobUse, use, null, &job, NULL);
    struct GangLoad load;
    ROW(gsSuccess, GangMachineLoad, machine, null, NULL, &load);
    ROW(gsBadMachine, GangMachineLoad, machine, garbage, "\xff\n", &out.llnl_load);
    ROW(gsBadMachine, GangMachineLoad, machine, foreign, "elsewhere.example.org", &out.llnl_load);
    ROW(gsBadArgument, GangMachineLoad, load, null, NULL, NULL);
    ID(GangSignalsDisable, );
    ID(GangSignalsEnable, );
    TEXT(GangErrMsg, rc, garbage, 99);
}

int main(void)
{
    memset(&out, 0x55, sizeof out);
    before = out;
    modern();
    llnl();
    return 0;
}
