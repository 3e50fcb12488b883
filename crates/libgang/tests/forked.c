/* Parents and children that use one id after fork, all at the same time; and a child with a job of
 * its own. */
#include "GangUserAPI.h"
#include <sys/wait.h>

#define CHILDREN 3
#define ROUNDS 8

static void check(const char *what, int rc)
{
    if (rc != gsSuccess) {
        fprintf(stderr, "%ld: %s: %s\n", (long)getpid(), what, GangErrMsg(rc));
        _exit(1);
    }
}

static void make(struct GangJobId *job_id)
{
    struct GangResources here;
    struct GangResources *list[2];
    bzero(job_id, sizeof(*job_id));
    bzero(&here, sizeof(here));
    strcpy(here.machine, "localhost");
    here.cpu_count = 2;
    here.cpu_min = 1;
    list[0] = &here;
    list[1] = NULL;
    check("register", GangJobRegister(job_id, CLASS_INTERACTIVE, list));
}

/* Waits until the other end of a pipe is closed. */
static void wait_for_end(int from)
{
    char none;
    if (read(from, &none, 1) != 0)
        _exit(2);
}

static void child(struct GangJobId job_id, const int begin[2], const int added[2], const int end[2])
{
    struct GangJobId own;
    struct GangUse use;
    close(begin[1]);
    close(added[0]);
    close(end[1]);
    wait_for_end(begin[0]);
    check("add a child", GangProcAdd(&job_id, PROC_ID, getpid()));
    check("use, by a child", GangJobUse(&job_id, &use));
    close(added[1]);
    wait_for_end(end[0]);
    check("remove a child", GangProcRemove(&job_id, PROC_ID, getpid()));
    make(&own);
    check("add to its own", GangProcAdd(&own, PROC_ID, getpid()));
    _exit(0);
}

static void round_of(int number)
{
    struct GangJobId job_id;
    struct GangUse use;
    int begin[2], added[2], end[2], i, status;
    if (pipe(begin) < 0 || pipe(added) < 0 || pipe(end) < 0)
        exit(1);
    make(&job_id);
    for (i = 0; i < CHILDREN; i++)
        if (fork() == 0)
            child(job_id, begin, added, end);
    close(begin[0]);
    close(added[1]);
    close(end[0]);
    /* All are the first process of a job that has none. */
    close(begin[1]);
    check("add the parent", GangProcAdd(&job_id, PROC_ID, getpid()));
    wait_for_end(added[0]);
    close(added[0]);
    check("use", GangJobUse(&job_id, &use));
    if (use.processes != CHILDREN + 1) {
        fprintf(stderr, "round %d: %d processes\n", number, use.processes);
        exit(1);
    }
    close(end[1]);
    for (i = 0; i < CHILDREN; i++)
        if (wait(&status) < 0 || status != 0)
            exit(1);
    check("lower the class", GangJobClass(&job_id, CLASS_BATCH));
    check("remove the parent", GangProcRemove(&job_id, PROC_ID, getpid()));
}

int main(void)
{
    int number;
    for (number = 0; number < ROUNDS; number++)
        round_of(number);
    printf("%d rounds\n", ROUNDS);
    return 0;
}
