/*
 * Two gangs that take turns hear of their slots by signals: one by LLNL's calls, and one that is
 * adopted.
 */
#include "expect.h"

#include <GangUserAPI.h>
#include <gang.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile sig_atomic_t pauses, continues;

static void handler(int signal)
{
    if (signal == SIGUSR1)
        pauses = pauses + 1;
    else
        continues = continues + 1;
}

/*
 * A process that writes a byte once it has heard of its slots again and again, and works until it
 * is killed.
 */
static pid_t worker(int pipe_end)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (pauses < 3 || continues < 3)
        ;
    if (write(pipe_end, "", 1) != 1)
        _exit(1);
    for (;;)
        ;
}

int main(void)
{
    struct GangJobId job;
    struct GangResources here = {"", 0, 1, 0, 0};
    struct GangResources *list[] = {&here, NULL};
    struct sigaction action;
    gang_spec spec;
    gang_job *adopted;
    char heard;
    int of_one[2], of_other[2];

    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    EXPECT(0, sigaction(SIGUSR1, &action, NULL) || sigaction(SIGUSR2, &action, NULL));
    EXPECT(0, pipe(of_one) || pipe(of_other));
    pid_t one = worker(of_one[1]), other = worker(of_other[1]);
    EXPECT(1, one > 0 && other > 0);

    memset(&job, 0, sizeof job);
    EXPECT(gsSuccess, GangJobRegister(&job, CLASS_BATCH, list));
    EXPECT(gsSuccess, GangProcAdd(&job, PROC_ID, one));
    EXPECT(gsSuccess, GangSignalsEnable(&job));
    gang_spec_init(&spec);
    spec.min_cpus = 1;
    spec.signals = 1;
    EXPECT(GANG_OK, gang_adopt(&spec, other, &adopted));

    EXPECT(1, read(of_one[0], &heard, 1));
    EXPECT(1, read(of_other[0], &heard, 1));
    EXPECT(gsSuccess, GangSignalsDisable(&job));
    EXPECT(GANG_OK, gang_set_signals(adopted, 0));
    EXPECT(GANG_OK, gang_close(adopted));
    EXPECT(0, kill(one, SIGKILL) || kill(other, SIGKILL));
    return 0;
}
