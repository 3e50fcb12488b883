/* A program of the form that LLNL's paper prints. tests/c.rs supplies what the paper leaves out, by
 * supplied.h: the variable cpu_count, Parallel_Code and, for C++, the type of main. */
#include "GangUserAPI.h"

main(void)
{
    struct GangJobId job_id;
    struct GangResources gang_resources[1];
    struct GangResources *list[2];
    char hostname[MAXHOSTNAMELEN];
    gsRetVal rc;

    bzero(&job_id, sizeof(job_id));
    bzero(gang_resources, sizeof(gang_resources));
    gethostname(hostname, MAXHOSTNAMELEN);
    strcpy(gang_resources[0].machine, hostname);
    gang_resources[0].cpu_count = cpu_count;
    gang_resources[0].cpu_min = 1;
    list[0] = &gang_resources[0];
    list[1] = NULL;

    rc = GangJobRegister(&job_id, CLASS_INTERACTIVE, list);
    if (rc != gsSuccess) {
        fprintf(stderr, "GangJobRegister: %s\n", GangErrMsg(rc));
        exit(1);
    }
    rc = GangProcAdd(&job_id, PROC_ID, getpid());
    if (rc != gsSuccess) {
        fprintf(stderr, "GangProcAdd: %s\n", GangErrMsg(rc));
        exit(1);
    }

    Parallel_Code();
    exit(0);
}
