/* A program as those of LLNL's gang scheduler were: three processes of one job, two CPUs.
 *
 *     cc llnl.c -lgang -o llnl-example && ./llnl-example
 */
#include <GangUserAPI.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(const char *what, gsRetVal rc)
{
    if (rc != gsSuccess) {
        fprintf(stderr, "%s: %s\n", what, GangErrMsg(rc));
        _exit(1);
    }
}

int main(void)
{
    struct GangJobId job;
    struct GangResources here = {"", 2, 1, 16, 0};
    struct GangResources *list[] = {&here, NULL};
    struct GangUse use;
    struct GangLoad load;
    int added[2], begun[2];
    char none = 0;

    if (pipe(added) < 0 || pipe(begun) < 0)
        return 1;
    memset(&job, 0, sizeof job);
    check("register", GangJobRegister(&job, CLASS_INTERACTIVE, list));
    check("add this process", GangProcAdd(&job, PROC_ID, getpid()));
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            close(added[0]);
            /* The child is in the job; it may ask for itself all the same. */
            check("add a child", GangProcAdd(&job, PROC_ID, getpid()));
            if (write(added[1], &none, 1) != 1)
                _exit(1);
            /* Works on once its parent has seen all of them. */
            close(begun[1]);
            if (read(begun[0], &none, 1) != 0)
                _exit(1);
            for (volatile long n = 0; n < 50000000; n++)
                ;
            _exit(0);
        }
    }
    close(added[1]);
    for (int i = 0; i < 2; i++)
        if (read(added[0], &none, 1) != 1)
            return 1;
    check("use", GangJobUse(&job, &use));
    printf("%d processes\n", use.processes);
    close(begun[1]);
    for (int i = 0; i < 2; i++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            return 1;
    }
    /* Not lower: in standby it may have no CPU for long. */
    check("lower the class", GangJobClass(&job, CLASS_BATCH));
    here.cpu_count = 1;
    check("change while it runs", GangJobRegister(&job, CLASS_BATCH, list));
    check("disable signals", GangSignalsDisable(&job));
    check("load", GangMachineLoad("localhost", &load));
    printf("load %.2f on %d CPUs\n", load.load_average, load.cpu_count);
    check("remove this process", GangProcRemove(&job, PROC_ID, getpid()));
    return 0;
}
