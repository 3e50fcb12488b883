/* Ways in which programs of LLNL's time write the same: variables of int and of the types, names
 * of tags and of types, texts without const, lists on the stack of a function that returns. */
#include "GangUserAPI.h"

static gsRetVal registered(struct GangJobId *job_id, enum GangClass job_class, int cpus)
{
    struct GangResources here, *list[] = {NULL, NULL};
    list[0] = &here;
    memset((char *)&here, 0, sizeof(struct GangResources));
    if (gethostname(here.machine, MAXHOSTNAMELEN) < 0)
        exit(1);
    here.cpu_count = cpus;
    return GangJobRegister(job_id, job_class, list);
}

static void check(const char *what, int rc)
{
    char *text = GangErrMsg(rc);
    if (rc != gsSuccess) {
        fprintf(stderr, "%s: %s\n", what, text);
        exit(1);
    }
}

int main(void)
{
    struct GangJobId job_id, copy;
    struct GangUse use;
    struct GangLoad load;
    struct GangResources near[1], far[1], *list[2];
    char machine[MAXHOSTNAMELEN];
    int job_class = CLASS_BATCH, rc;
    enum gsRetVal result;
    GangIdType type = PROC_ID;

    bzero((char *)&job_id, sizeof(struct GangJobId));
    bzero((char *)near, sizeof(near));
    bzero((char *)far, sizeof(far));
    check("register", registered(&job_id, CLASS_INTERACTIVE, 2));
    copy = job_id;
    result = GangProcAdd(&copy, type, getpid());
    check("add", result);
    rc = GangJobUse(&job_id, &use);
    check("use", rc);
    if (use.processes != 1)
        exit(2);
    check("register again", registered(&job_id, CLASS_BATCH, 1));
    check("class", GangJobClass(&job_id, job_class));
    strncpy(near[0].machine, "localhost", sizeof(near[0].machine) - 1);
    near[0].cpu_count = 1;
    list[0] = near;
    list[1] = NULL;
    check("resources", GangJobResources(&job_id, list));
    if (gethostname(machine, sizeof(machine)) < 0)
        exit(3);
    check("load", GangMachineLoad(machine, &load));

    /* Names of other computers, and one without an end. */
    list[0] = far;
    strcpy(far[0].machine, "elsewhere.example.org");
    if (GangJobResources(&job_id, list) != gsBadMachine)
        exit(4);
    memset(far[0].machine, 'x', sizeof(far[0].machine));
    if (GangJobResources(&job_id, list) != gsBadMachine)
        exit(5);
    check("remove", GangProcRemove(&job_id, PROC_ID, getpid()));
    puts("done");
    return 0;
}
