/* As a user who is no administrator: what is refused leaves a job as it was, and jobs of others alone.
 * A class that was lowered could not be raised again, and so shows. */
#include <GangUserAPI.h>
#include <gang.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(wanted, call)                                                             \
    do {                                                                                 \
        int got = (int)(call);                                                           \
        if (got != (int)(wanted)) {                                                      \
            fprintf(stderr, "%s:%d: %s gave %d, not %d: %s\n", __FILE__, __LINE__, #call, \
                    got, (int)(wanted), gang_error());                                   \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static void changes(void)
{
    struct GangJobId job = {0, 0};
    struct GangResources here, *list[] = {&here, NULL};
    memset(&here, 0, sizeof here);
    here.cpu_count = 1;
    EXPECT(gsSuccess, GangJobRegister(&job, CLASS_BATCH, list));
    here.mega_mem = 2147483647;
    EXPECT(gsNoResources, GangJobRegister(&job, CLASS_STANDBY, list));
    EXPECT(gsSuccess, GangJobClass(&job, CLASS_BATCH));
    here.mega_mem = 1;
    EXPECT(gsNotPermitted, GangJobRegister(&job, CLASS_INTERACTIVE, list));
    EXPECT(gsSuccess, GangJobResources(&job, list));
    EXPECT(gsSuccess, GangJobRegister(&job, CLASS_STANDBY, list));
    EXPECT(gsNotPermitted, GangJobClass(&job, CLASS_BATCH));
}

/* The job of another user, and its process. */
static void stranger(int64_t id, pid_t pid)
{
    gang_job *job, *none = NULL;
    const gang_page *page = NULL;
    gang_change change;
    gang_spec spec;
    EXPECT(GANG_OK, gang_open(id, &job));
    gang_change_init(&change);
    change.weight = 1;
    EXPECT(GANG_NOT_PERMITTED, gang_add(job, 0));
    EXPECT(GANG_NOT_PERMITTED, gang_remove(job, pid));
    EXPECT(GANG_NOT_PERMITTED, gang_set_class(job, GANG_STANDBY));
    EXPECT(GANG_NOT_PERMITTED, gang_resize(job, &change));
    EXPECT(GANG_NOT_PERMITTED, gang_set_signals(job, 1));
    EXPECT(GANG_NOT_PERMITTED, gang_suspend(job));
    EXPECT(GANG_NOT_PERMITTED, gang_resume(job));
    EXPECT(GANG_NOT_PERMITTED, gang_job_progress(job, 1, 1));
    EXPECT(GANG_NOT_PERMITTED, gang_page_open(job, &page));
    EXPECT(0, page != NULL);
    gang_spec_init(&spec);
    spec.cpus = 1;
    EXPECT(GANG_NOT_PERMITTED, gang_adopt(&spec, pid, &none));
    EXPECT(0, none != NULL);
    EXPECT(GANG_OK, gang_close(job));
}

int main(void)
{
    gang_spec spec;
    gang_job *job;
    int64_t id;
    int status, end[2];
    gang_spec_init(&spec);
    spec.cpus = 1;
    EXPECT(0, pipe(end));
    /* Its process is root's and waits. */
    pid_t process = fork();
    if (process == 0) {
        char byte;
        close(end[1]);
        _exit((int)read(end[0], &byte, 1));
    }
    EXPECT(GANG_OK, gang_register(&spec, &job));
    EXPECT(GANG_OK, gang_add(job, process));
    EXPECT(GANG_OK, gang_id(job, &id));
    pid_t user = fork();
    if (user == 0) {
        EXPECT(0, setgid(65534));
        EXPECT(0, setuid(65534));
        changes();
        stranger(id, process);
        _exit(0);
    }
    EXPECT(user, waitpid(user, &status, 0));
    EXPECT(0, status);
    close(end[1]);
    EXPECT(process, waitpid(process, &status, 0));
    EXPECT(0, status);
    return 0;
}
