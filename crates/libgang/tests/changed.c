/*
 * A job of LLNL's interface, changed as it runs. After each change a line says so, and one is
 * waited for.
 */
#include <GangUserAPI.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void step(const char *what, gsRetVal wanted, gsRetVal got)
{
    if (got != wanted) {
        fprintf(stderr, "%s: %s\n", what, GangErrMsg(got));
        exit(1);
    }
    puts(what);
    fflush(stdout);
    if (getchar() == EOF)
        exit(1);
}

int main(void)
{
    struct GangJobId job;
    struct GangResources here = {"", 2, 1, 16, 0};
    struct GangResources *list[] = {&here, NULL};
    memset(&job, 0, sizeof job);
    if (GangJobRegister(&job, CLASS_INTERACTIVE, list) != gsSuccess)
        return 1;
    step("registered", gsSuccess, GangProcAdd(&job, PROC_ID, getpid()));
    here.mega_mem = 2147483647;
    step("too much", gsNoResources, GangJobRegister(&job, CLASS_STANDBY, list));
    here.cpu_count = 1, here.mega_mem = 32;
    step("by its id", gsSuccess, GangJobRegister(&job, CLASS_STANDBY, list));
    here.cpu_count = 3, here.mega_mem = 0, here.giga_disk = 1;
    step("its resources", gsSuccess, GangJobResources(&job, list));
    step("its class", gsSuccess, GangJobClass(&job, CLASS_BATCH));
    return 0;
}
