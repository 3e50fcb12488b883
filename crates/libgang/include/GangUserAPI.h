/* The interface of LLNL's gang scheduler (Jette, 1998), for programs written for it.
 *
 * The list of resources names this computer, or nobody ("", "localhost"), for a job on one
 * computer, and each computer by its name in the cluster for one that spans several. A job of the
 * cluster has one id on all of them: a process on another computer gets it from the first one, by
 * whichever way, and adds itself there.
 * All functions may be called by any thread, and after fork. New programs use gang.h.
 *
 * Valid as C89 and C++98. Programs that say nothing of a standard rely on this header for the
 * declarations of bzero, fprintf, getpid, gethostname, strcpy, MAXHOSTNAMELEN and their like.
 */
#ifndef GANG_USER_API_H
#define GANG_USER_API_H

/* Strict C89 declares neither bzero nor gethostname. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of all calls: gsBadArgument. Of all but GangErrMsg, besides: gsNoDaemon, gsNoAnswer, gsFailed,
 * gsUnsupported, and gsLimit for too many connections. Of those with an id, besides: gsNoSuchJob,
 * and gsNotPermitted where the job is another user's. Further results stand at the call. */
typedef enum gsRetVal {
    gsSuccess = 0,        /* it was done */
    gsBadArgument = 1,    /* an argument is null or out of bounds */
    gsNoDaemon = 2,       /* no daemon of the gang scheduler listens */
    gsNoSuchJob = 3,      /* the id is of no job, or of one that has ended */
    gsNoSuchProcess = 4,  /* no process has the number, or it is not of the job */
    gsNotPermitted = 5,   /* it is another user's, or only administrators may */
    gsLimit = 6,          /* too many jobs, CPUs or connections */
    gsNoResources = 7,    /* not as much memory or disk as was asked for */
    gsNoAnswer = 8,       /* the daemon did not answer in time */
    gsFailed = 9,         /* the kernel or the machine refused */
    gsUnsupported = 10,   /* the daemon is of another version */
    gsBadMachine = 11,    /* a computer that this daemon does not look after */
    gsBadClass = 12,      /* no class has that number */
    gsBadIdType = 13      /* only processes have ids here: PROC_ID */
} gsRetVal;

/* In order of priority. */
typedef enum GangClass {
    CLASS_EXPRESS = 1,     /* administrators only */
    CLASS_INTERACTIVE = 2, /* somebody waits for it */
    CLASS_BATCH = 3,       /* throughput */
    CLASS_STANDBY = 4      /* where nothing else wants the CPUs */
} GangClass;

/* The kind of thing that a number identifies. */
typedef enum GangIdType {
    PROC_ID = 1 /* a process */
} GangIdType;

/* Zeroed: a job to be. Set: one that runs, on whichever computers. */
struct GangJobId {
    uint64_t computer;
    uint64_t job;
};

/* The needs of a job on one computer. The name is a copy, so that programs use strcpy and
 * gethostname; it is longer than MAXHOSTNAMELEN, and ends with a zero byte. A job on several
 * computers names its CPUs on each, has all of them or none, and no memory or disk. */
struct GangResources {
    char machine[256]; /* the name of the computer; "" is this one */
    int cpu_count;     /* wanted; 0: the CPUs that the process may use */
    int cpu_min;       /* least acceptable; 0: cpu_count */
    int mega_mem;      /* MB, 0: not said */
    int giga_disk;     /* GB, 0: not said */
};

struct GangUse {
    double cpu_seconds;
    double slot_seconds;
    int64_t slots;
    int processes;
    int threads;
    double mega_mem; /* used; negative where it is not known */
};

struct GangLoad {
    int cpu_count;
    int jobs;
    double load_average;
    double mega_mem_free;
    double giga_disk_free;
};

/* Classes, types of ids and results are passed as int: C++ makes no enum of a program's int. */

/* Registers a job, or changes one that runs where the id is set: its class, and its resources. The
 * list ends with a null pointer. Where it is refused, nothing changes; one on several computers
 * changes its class alone, and gsFailed is the refusal of the cluster. gsBadMachine, gsBadClass,
 * gsLimit, gsNoResources; gsNotPermitted for a class that only administrators may set. */
gsRetVal GangJobRegister(struct GangJobId *job, int job_class, struct GangResources *list[]);

/* Adds a process with its future children; takes it out again. gsNoSuchProcess, gsBadIdType;
 * gsNotPermitted for a process of another user. */
gsRetVal GangProcAdd(struct GangJobId *job, int type, pid_t process);
gsRetVal GangProcRemove(struct GangJobId *job, int type, pid_t process);

/* Its owner may lower a class, administrators may set any: gsNotPermitted. gsBadClass. */
gsRetVal GangJobClass(struct GangJobId *job, int job_class);
/* A 0 in the list leaves its value as it is. gsBadMachine, gsLimit, gsNoResources. */
gsRetVal GangJobResources(struct GangJobId *job, struct GangResources *list[]);
/* Of any user's job. */
gsRetVal GangJobUse(struct GangJobId *job, struct GangUse *use);
/* A null machine is this one. gsBadMachine. */
gsRetVal GangMachineLoad(const char *machine, struct GangLoad *load);

/* Whether processes that handle SIGUSR1 and SIGUSR2 get them around the slots of the job. */
gsRetVal GangSignalsDisable(struct GangJobId *job);
gsRetVal GangSignalsEnable(struct GangJobId *job);

/* Text for a result; never null, neither to be freed nor to be changed. */
char *GangErrMsg(int rc);

#ifdef __cplusplus
}
#endif

#endif
