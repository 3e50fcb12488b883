/* As a user who is no administrator: a refusal leaves a job as it was, and does not touch the jobs
 * of others. A class that was lowered could not be raised again, and so shows. */
#include "rows.h"

#include <GangUserAPI.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static gang_job *handle;
static const gang_page *page;

static int is_changed(void)
{
    return handle != NULL || page != NULL;
}

static void changes(void)
{
    struct GangJobId job = {0, 0};
    struct GangResources here, *list[] = {&here, NULL};
    memset(&here, 0, sizeof here);
    here.cpu_count = 1;
    NEEDED(gsSuccess, GangJobRegister(&job, CLASS_BATCH, list));
    here.mega_mem = 2147483647;
    NEEDED(gsNoResources, GangJobRegister(&job, CLASS_STANDBY, list));
    NEEDED(gsSuccess, GangJobClass(&job, CLASS_BATCH));
    here.mega_mem = 1;
    NEEDED(gsNotPermitted, GangJobRegister(&job, CLASS_INTERACTIVE, list));
    NEEDED(gsSuccess, GangJobResources(&job, list));
    NEEDED(gsSuccess, GangJobRegister(&job, CLASS_STANDBY, list));
    NEEDED(gsNotPermitted, GangJobClass(&job, CLASS_BATCH));
}

/* The job of another user, and its process. */
static void other_user(int64_t id, pid_t pid)
{
    gang_job *job;
    gang_change change;
    gang_spec spec;
    gang_use use;
    use.size = sizeof use;
    NEEDED(GANG_OK, gang_open(id, &job));
    gang_change_init(&change);
    change.weight = 1;
    ROW(GANG_NOT_PERMITTED, gang_add_process, job, anothers, job, 0);
    ROW(GANG_NOT_PERMITTED, gang_remove_process, job, anothers, job, pid);
    ROW(GANG_NOT_PERMITTED, gang_add_thread, job, anothers, job, 0);
    ROW(GANG_NOT_PERMITTED, gang_remove_thread, job, anothers, job, pid);
    ROW(GANG_NOT_PERMITTED, gang_set_class, job, anothers, job, GANG_STANDBY);
    ROW(GANG_NOT_PERMITTED, gang_resize, job, anothers, job, &change);
    ROW(GANG_NOT_PERMITTED, gang_set_signals, job, anothers, job, 1);
    ROW(GANG_NOT_PERMITTED, gang_suspend, job, anothers, job);
    ROW(GANG_NOT_PERMITTED, gang_resume, job, anothers, job);
    ROW(GANG_NOT_PERMITTED, gang_job_progress, job, anothers, job, 1, 1);
    ROW(GANG_NOT_PERMITTED, gang_page_open, job, anothers, job, &page);
    /* Everybody may look. */
    ROW(GANG_OK, gang_id, job, anothers, job, &id);
    ROW(GANG_OK, gang_get_use, job, anothers, job, &use);
    gang_spec_init(&spec);
    spec.cpus = 1;
    ROW(GANG_NOT_PERMITTED, gang_adopt, pid, anothers, &spec, pid, &handle);
    ROW(GANG_OK, gang_close, job, anothers, job);
    ROW(GANG_NOT_PERMITTED, gang_set_slurm_job, pid, anothers, pid, "12");
    NEEDED(GANG_OK, gang_register(&spec, &job));
    ROW(GANG_NOT_PERMITTED, gang_add_process, pid, anothers, job, pid);
    ROW(GANG_NO_SUCH_PROCESS, gang_remove_process, pid, anothers, job, pid);
    ROW(GANG_NOT_PERMITTED, gang_add_thread, tid, anothers, job, pid);
    ROW(GANG_NO_SUCH_PROCESS, gang_remove_thread, tid, anothers, job, pid);
    NEEDED(GANG_OK, gang_close(job));
}

/* The same in LLNL's interface. */
static void other_user_of_old(int64_t id, pid_t pid)
{
    struct GangJobId own = {0, 0}, job;
    struct GangResources here, *list[] = {&here, NULL};
    struct GangUse use;
    memset(&here, 0, sizeof here);
    here.cpu_count = 1;
    NEEDED(gsSuccess, GangJobRegister(&own, CLASS_BATCH, list));
    job = own;
    job.job = (uint64_t)id;
    ROW(gsNotPermitted, GangJobRegister, job, anothers, &job, CLASS_STANDBY, list);
    ROW(gsNotPermitted, GangProcAdd, job, anothers, &job, PROC_ID, getpid());
    ROW(gsNotPermitted, GangProcRemove, job, anothers, &job, PROC_ID, pid);
    ROW(gsNotPermitted, GangJobClass, job, anothers, &job, CLASS_STANDBY);
    ROW(gsNotPermitted, GangJobResources, job, anothers, &job, list);
    ROW(gsNotPermitted, GangSignalsDisable, job, anothers, &job);
    ROW(gsNotPermitted, GangSignalsEnable, job, anothers, &job);
    ROW(gsSuccess, GangJobUse, job, anothers, &job, &use);
    ROW(gsNotPermitted, GangProcAdd, process, anothers, &own, PROC_ID, pid);
    ROW(gsNoSuchProcess, GangProcRemove, process, anothers, &own, PROC_ID, pid);
}

int main(void)
{
    gang_spec spec;
    gang_job *job;
    int64_t id;
    int status, end[2];
    gang_spec_init(&spec);
    spec.cpus = 1;
    NEEDED(0, pipe(end));
    /* Its process is root's and waits. */
    pid_t process = fork();
    if (process == 0) {
        char byte;
        close(end[1]);
        _exit((int)read(end[0], &byte, 1));
    }
    NEEDED(GANG_OK, gang_register(&spec, &job));
    NEEDED(GANG_OK, gang_add_process(job, process));
    NEEDED(GANG_OK, gang_id(job, &id));
    pid_t user = fork();
    if (user == 0) {
        NEEDED(0, setgid(65534));
        NEEDED(0, setuid(65534));
        changes();
        other_user(id, process);
        other_user_of_old(id, process);
        fflush(stdout);
        _exit(0);
    }
    NEEDED(user, waitpid(user, &status, 0));
    NEEDED(0, status);
    close(end[1]);
    NEEDED(process, waitpid(process, &status, 0));
    NEEDED(0, status);
    return 0;
}
