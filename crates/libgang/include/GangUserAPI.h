/* The interface of LLNL's gang scheduler (Jette, 1998), for programs written for it.
 *
 * On one machine: the list of resources names this computer, or nobody (null, "", "localhost").
 * All functions may be called by any thread, and after fork. New programs use gang.h.
 */
#ifndef GANG_USER_API_H
#define GANG_USER_API_H

#include <sys/types.h>

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
    unsigned long long computer;
    unsigned long long job;
};

/* The needs of a job on one computer. */
struct GangResources {
    const char *machine; /* null, "" or the name of this computer */
    int cpu_count;       /* wanted */
    int cpu_min;         /* least acceptable; 0: cpu_count */
    int mega_mem;        /* MB, 0: not said */
    int giga_disk;       /* GB, 0: not said */
};

struct GangUse {
    double cpu_seconds;
    double slot_seconds;
    long long slots;
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

/* Registers a job, or changes one that runs where the id is set: its class, and its resources. The
 * list ends with a null pointer. Where it is refused, nothing changes. gsBadMachine, gsBadClass,
 * gsLimit, gsNoResources; gsNotPermitted for a class that only administrators may set. */
gsRetVal GangJobRegister(struct GangJobId *job, GangClass job_class, struct GangResources *list[]);

/* Adds a process with its future children; takes it out again. gsNoSuchProcess, gsBadIdType;
 * gsNotPermitted for a process of another user. */
gsRetVal GangProcAdd(struct GangJobId *job, GangIdType type, pid_t process);
gsRetVal GangProcRemove(struct GangJobId *job, GangIdType type, pid_t process);

/* Its owner may lower a class, administrators may set any: gsNotPermitted. gsBadClass. */
gsRetVal GangJobClass(struct GangJobId *job, GangClass job_class);
/* A 0 in the list leaves its value as it is. gsBadMachine, gsLimit, gsNoResources. */
gsRetVal GangJobResources(struct GangJobId *job, struct GangResources *list[]);
/* Of any user's job. */
gsRetVal GangJobUse(struct GangJobId *job, struct GangUse *use);
/* gsBadMachine. */
gsRetVal GangMachineLoad(const char *machine, struct GangLoad *load);

/* Whether processes that handle SIGUSR1 and SIGUSR2 get them around the slots of the job. */
gsRetVal GangSignalsDisable(struct GangJobId *job);
gsRetVal GangSignalsEnable(struct GangJobId *job);

/* Text for a result; never null, not to be freed. */
const char *GangErrMsg(gsRetVal rc);

#ifdef __cplusplus
}
#endif

#endif
