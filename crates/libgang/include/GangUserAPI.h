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

typedef enum gsRetVal {
    gsSuccess = 0,
    gsBadArgument = 1,    /* an argument is null or out of bounds */
    gsNoDaemon = 2,       /* no daemon of the gang scheduler listens */
    gsNoSuchJob = 3,      /* the id is of no job, or of one that has ended */
    gsNoSuchProcess = 4,
    gsNotPermitted = 5,
    gsLimit = 6,          /* too many jobs, CPUs or connections */
    gsNoResources = 7,    /* not as much memory or disk as was asked for */
    gsNoAnswer = 8,       /* the daemon did not answer in time */
    gsFailed = 9,
    gsUnsupported = 10,   /* the daemon is of another version */
    gsBadMachine = 11,    /* a computer that this daemon does not look after */
    gsBadClass = 12,
    gsBadIdType = 13
} gsRetVal;

/* In order of priority. */
typedef enum GangClass {
    CLASS_EXPRESS = 1,     /* administrators only */
    CLASS_INTERACTIVE = 2,
    CLASS_BATCH = 3,
    CLASS_STANDBY = 4
} GangClass;

/* What a number identifies. */
typedef enum GangIdType { PROC_ID = 1 } GangIdType;

/* Zeroed: a job to be. Set: one that runs, on whichever computers. */
struct GangJobId {
    unsigned long long computer;
    unsigned long long job;
};

/* What a job needs on one computer. */
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

/* Registers a job, or changes one that runs where the id is set: its class, and its resources.
 * The list ends with a null pointer. */
gsRetVal GangJobRegister(struct GangJobId *job, GangClass job_class, struct GangResources *list[]);

/* Adds a process with its future children; takes it out again. */
gsRetVal GangProcAdd(struct GangJobId *job, GangIdType type, pid_t process);
gsRetVal GangProcRemove(struct GangJobId *job, GangIdType type, pid_t process);

gsRetVal GangJobClass(struct GangJobId *job, GangClass job_class);
gsRetVal GangJobResources(struct GangJobId *job, struct GangResources *list[]);
gsRetVal GangJobUse(struct GangJobId *job, struct GangUse *use);
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
