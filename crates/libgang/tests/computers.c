/* LLNL's interface on several computers: COMPUTER... registers a job on them and joins it; --join
 * JOB joins it on another one. Both compute until they are ended. */
#include <GangUserAPI.h>

#include <gang.h>

static int is(const char *what, int result)
{
    if (result != gsSuccess)
        fprintf(stderr, "%s: %s: %s\n", what, GangErrMsg(result), gang_error());
    return result == gsSuccess;
}

/* The id of a job of the cluster, as the first process has handed it on. */
static int join(const char *number)
{
    gang_job *job;
    if (gang_open(atoll(number), &job) != GANG_OK || gang_add_process(job, 0) != GANG_OK) {
        fprintf(stderr, "%s\n", gang_error());
        return 0;
    }
    return 1;
}

static int start(char **names, int count)
{
    struct GangJobId id;
    struct GangResources hosts[8], wrong, *list[9] = {NULL}, *wrong_list[3] = {NULL};
    for (int i = 0; i < count && i < 8; i++) {
        memset(&hosts[i], 0, sizeof hosts[i]);
        strcpy(hosts[i].machine, names[i]);
        hosts[i].cpu_count = 1;
        list[i] = &hosts[i];
    }
    bzero((char *)&id, sizeof id);
    /* An impossible list is refused, and leaves no job. */
    wrong = hosts[1];
    wrong_list[0] = list[0];
    wrong_list[1] = &wrong;
    strcpy(wrong.machine, "nowhere");
    if (GangJobRegister(&id, CLASS_BATCH, wrong_list) != gsFailed)
        return 0;
    wrong = hosts[1];
    wrong.cpu_count = 2;
    wrong.cpu_min = 1;
    if (GangJobRegister(&id, CLASS_BATCH, wrong_list) != gsBadArgument)
        return 0;
    wrong.cpu_min = 0;
    wrong.mega_mem = 1;
    if (GangJobRegister(&id, CLASS_BATCH, wrong_list) != gsBadArgument)
        return 0;
    return is("GangJobRegister", GangJobRegister(&id, CLASS_BATCH, list)) &&
           is("GangProcAdd", GangProcAdd(&id, PROC_ID, getpid())) &&
           /* The same list and another class. */
           is("GangJobRegister", GangJobRegister(&id, CLASS_INTERACTIVE, list)) &&
           GangJobRegister(&id, CLASS_INTERACTIVE, wrong_list) == gsBadArgument;
}

int main(int argc, char **argv)
{
    int joined = argc == 3 && strcmp(argv[1], "--join") == 0 ? join(argv[2])
                                                            : start(argv + 1, argc - 1);
    if (!joined)
        return 1;
    for (;;)
        ;
}
