/* libgang: parallel programs that know they are gangs.
 *
 * A program registers a job, adds processes or single threads to it, and can then read without a
 * system call whether its slot runs. All functions return a gang_result; GANG_OK is 0. A function
 * that fails leaves what its arguments point to as it was, and gang_error() says why.
 *
 * Threads: every function may be called by any thread. Calls that ask the daemon take turns.
 * fork: a child may use what its parent registered; it gets a connection of its own.
 * Signal handlers may call the gang_page_* readers, gang_result_text and nothing else.
 * Barriers and locks ask nobody: they work without a daemon, too.
 * The library starts no threads and keeps one socket.
 *
 * Times are nanoseconds, sizes bytes, shares run from 0 to 1.
 */
#ifndef GANG_H
#define GANG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of all functions: GANG_INVALID where an argument is wrong. Of those that ask the daemon, besides:
 * GANG_NO_DAEMON, GANG_NO_ANSWER, GANG_FAILED, GANG_UNSUPPORTED, and GANG_LIMIT for too many
 * connections. Of those with a handle that ask it, besides: GANG_NO_SUCH_JOB, and
 * GANG_NOT_PERMITTED where the job is another user's and more than looked at. Further results
 * stand at the function. */
typedef enum gang_result {
    /* It was done. */
    GANG_OK = 0,
    /* An argument is null, out of bounds, or no handle that this process got. */
    GANG_INVALID = 1,
    /* No daemon listens. */
    GANG_NO_DAEMON = 2,
    /* The job has ended, or was never there. */
    GANG_NO_SUCH_JOB = 3,
    /* There is no process or thread of that number, or it is not of the job. */
    GANG_NO_SUCH_PROCESS = 4,
    /* The job or the process is another user's, or only administrators may. */
    GANG_NOT_PERMITTED = 5,
    /* A limit of the daemon is reached: jobs, CPUs, connections. */
    GANG_LIMIT = 6,
    /* There is not as much memory or disk as was asked for. */
    GANG_NOT_ENOUGH = 7,
    /* The daemon did not answer in time, or went away in the middle. */
    GANG_NO_ANSWER = 8,
    /* The kernel or the machine refused. */
    GANG_FAILED = 9,
    /* The daemon does not know the request: it is of another version. */
    GANG_UNSUPPORTED = 10
} gang_result;

/* In order of priority. */
typedef enum gang_class {
    GANG_EXPRESS = 1,     /* mission critical; only administrators put a job there */
    GANG_INTERACTIVE = 2, /* somebody waits for it */
    GANG_BATCH = 3,       /* the default of most processes */
    GANG_STANDBY = 4      /* where nothing else wants the CPUs; default of chrt -i, ionice -c 3 */
} gang_class;

typedef enum gang_state {
    GANG_STARTING = 1,  /* without a process yet */
    GANG_WAITING = 2,   /* for its slot */
    GANG_RUNNING = 3,   /* in its slot */
    GANG_SLEEPING = 4,  /* it uses no CPU, and has no slots until it does */
    GANG_IDLE = 5,      /* the same for long */
    GANG_SUSPENDED = 6, /* by gang_suspend or a person */
    GANG_NOT_SCHEDULED = 7,    /* its policy is none: Linux alone schedules it */
    GANG_TOO_MANY_THREADS = 8, /* it has no slots until it has fewer */
    GANG_TOO_FEW_CPUS = 9      /* it needs more than are online, or others than it may use */
} gang_state;

/* A job. Belongs to the process that got it; its children may use it. */
typedef struct gang_job gang_job;

/* Specification of a job. Fill it by gang_spec_init first: later versions may add to its end. */
typedef struct gang_spec {
    size_t size;        /* of this struct, as the program was compiled */
    const char *name;   /* null: the name of the program */
    int32_t cpus;       /* wanted at once; 0: as many as the process may use */
    int32_t min_cpus;   /* below which it does not run; 0: cpus */
    gang_class job_class;
    int32_t weight;     /* 1 to 10,000, relative to other jobs of its class; by default 100, less
                           where the process has a nice value above 0 */
    int64_t mem_bytes;  /* 0: not said */
    int64_t disk_bytes; /* 0: not said */
    int32_t wait;       /* not 0: wait until there is as much memory and disk */
    int32_t signals;    /* not 0: SIGUSR1 before a slot ends, SIGUSR2 after one has begun,
                           for processes that handle both */
} gang_spec;

/* Changes of a job; a negative number leaves its value as it is. */
typedef struct gang_change {
    size_t size;
    int32_t cpus;
    int32_t min_cpus;
    int32_t weight;
    int64_t mem_bytes;  /* 0: nothing */
    int64_t disk_bytes; /* 0: nothing */
} gang_change;

/* Resources that a job has used. */
typedef struct gang_use {
    size_t size;
    gang_state state;
    int32_t processes; /* 0 for a job of single threads */
    int32_t threads;
    int64_t slots;
    int64_t in_slot_ns;
    int64_t cpu_time_ns;
    double share_wanted;
    double share_had;       /* over the last ten seconds */
    int64_t mem_used_bytes; /* negative where it is not known */
} gang_use;

/* Fate of a job that spans hosts when it loses one. */
typedef enum gang_host_lost {
    GANG_MARK = 1,        /* it goes on, and says which host is lost */
    GANG_SUSPEND_ALL = 2, /* it stands still on all hosts until it is resumed */
    GANG_RELEASE = 3      /* Linux alone schedules it */
} gang_host_lost;

/* The hosts of a job that spans several. Fill it by gang_span_init first. The lists have an element
 * for each host. */
typedef struct gang_span {
    size_t size;
    size_t hosts;             /* how many, 2 at least */
    const char *const *names; /* in the cluster */
    const int32_t *cpus;      /* wanted at once on each */
    const int32_t *ranks;     /* processes that are added on each before the first slot; null, or 0
                                 of a host: none is waited for */
    const char *launched_as;  /* the launcher's name of the program, such as slurm:12.0; null:
                                 none */
    int64_t owner_uid;        /* negative: the user of this process; another one by administrators
                                 alone */
    gang_host_lost on_host_lost;
    const char *const *allowed; /* lists of CPUs such as 0-3,8 among which it has its own on each,
                                   where processes are bound; null, or null of a host: any */
} gang_span;

/* How busy the machine is. */
typedef struct gang_load {
    size_t size;
    int32_t cpus;
    int32_t jobs;
    double load_average; /* over the last minute */
    int64_t mem_total_bytes;
    int64_t mem_free_bytes;
    int64_t mem_promised_bytes;
    int64_t disk_free_bytes;
    int64_t disk_promised_bytes;
} gang_load;

/* The slot page: one page that the daemon writes at the beginning and end of every slot. Map it by
 * gang_page_open and read it by the functions below. */
typedef struct gang_page {
    uint32_t magic;
    uint32_t version;
    uint32_t running;  /* 1 while the slot runs */
    uint32_t on_cpus;  /* planned: threads of the job for which the slot has CPUs, also sleeping */
    uint64_t until_ns; /* UTC; the slot lasts until then at least */
    uint64_t slice_ns;
    uint32_t cpus;     /* of the slot */
    uint32_t validity; /* 0: scheduled. 1: not scheduled. 2: the job or the daemon is gone. */
    uint64_t slots;    /* so far, counted some times a second */
} gang_page;

/* Not 0 while the slot of the job runs, so that its other threads run too. 0 also where nobody
 * knows: the job is not scheduled, or gangd is gone. */
static inline int gang_page_running(const gang_page *page)
{
    return __atomic_load_n(&page->running, __ATOMIC_RELAXED) != 0;
}

/* Not 0 where gang_page_running can be relied on. */
static inline int gang_page_is_valid(const gang_page *page)
{
    return __atomic_load_n(&page->validity, __ATOMIC_RELAXED) == 0;
}

static inline uint64_t gang_page_until_ns(const gang_page *page)
{
    return __atomic_load_n(&page->until_ns, __ATOMIC_RELAXED);
}

/* As planned when the slot began: the threads that the job had, or the CPUs of the slot where those
 * are fewer. Threads that sleep count; how many run at a moment, nobody writes down. */
static inline uint32_t gang_page_on_cpus(const gang_page *page)
{
    return __atomic_load_n(&page->on_cpus, __ATOMIC_RELAXED);
}

/* Text for a result; never null, not to be freed. */
const char *gang_result_text(gang_result result);

/* Why the last call of this thread failed, in one line; empty where none has. Valid until the
 * next call of this thread. */
const char *gang_error(void);

/* Fills in the defaults: the CPUs that the process may use, class batch, weight 100. */
gang_result gang_spec_init(gang_spec *spec);
/* Nothing changes. */
gang_result gang_change_init(gang_change *change);

/* Registers a job without processes. It ends with its last process, or when this process ends
 * before one was added. The handle is to be closed; a process has 4,096 open at most, and no job is
 * registered for one more. GANG_LIMIT for too many handles, jobs or CPUs, GANG_NOT_ENOUGH,
 * GANG_NOT_PERMITTED for GANG_EXPRESS. */
gang_result gang_register(const gang_spec *spec, gang_job **job);

/* Makes a job of what runs already: a process with its descendants. Of the memory that the job asks
 * for, what they hold already need not be free; wait counts for nothing. As gang_register, and
 * GANG_NO_SUCH_PROCESS; GANG_NOT_PERMITTED for a process of another user. */
gang_result gang_adopt(const gang_spec *spec, pid_t pid, gang_job **job);

/* No hosts, no ranks, GANG_MARK. */
gang_result gang_span_init(gang_span *span);

/* Registers a job that has slots in the same slices on several hosts of a cluster. Of the spec, the
 * name, the class and the weight count; memory, disk and signals are GANG_INVALID. It ends when no
 * host has a process of it any more, or when this process ends before one was added. With ranks,
 * Linux alone schedules it until all of them were added, on each host by a process there. Where the
 * owner has a job of the launcher's name on the same hosts, that one is returned. As gang_register,
 * and GANG_FAILED where this host is in no cluster, and where the cluster refuses it. */
gang_result gang_register_span(const gang_spec *spec, const gang_span *span, gang_job **job);

/* The name of this host in its cluster, at most size bytes with its zero. GANG_FAILED where it is
 * in none. */
gang_result gang_host_name(char *name, size_t size);

/* A handle on a job by its id; and on the one that `gang run` made for this program. Of any user's:
 * GANG_NO_SUCH_JOB where there is none, GANG_LIMIT for too many handles. The part of a job that
 * spans hosts comes to each of them a moment after it was registered: it is waited for, 10 s. */
gang_result gang_open(int64_t id, gang_job **job);
gang_result gang_current(gang_job **job);

/* Gives the handle back; the job goes on. Asks nobody, as gang_id. */
gang_result gang_close(gang_job *job);

gang_result gang_id(const gang_job *job, int64_t *id);

/* Takes a process with all its threads and future children into the job; 0 is this one.
 * GANG_NO_SUCH_PROCESS; GANG_NOT_PERMITTED for a process of another user. */
gang_result gang_add_process(gang_job *job, pid_t pid);
/* Takes a process out of the job again: it is scheduled as it was before, and so are its future
 * children. GANG_NO_SUCH_PROCESS where the process is not of the job. */
gang_result gang_remove_process(gang_job *job, pid_t pid);

/* Names the job of Slurm that the job of a process is of, for a plugin of Slurm: its number, such
 * as "12", or "12_3" in an array; pid 0 is this process. Accounts and limits of Slurm may follow
 * what gangd counts of the job. So root alone may say so, and the user whom gangd runs as:
 * GANG_NOT_PERMITTED for others. GANG_NO_SUCH_PROCESS for a process that is in no job. */
gang_result gang_set_slurm_job(pid_t pid, const char *slurm_job);

/* Takes a single thread into the job, by its number, gettid(2); 0 is the one that calls.
 * The rest of its process is none of the job, nor is what the thread starts. A job has either
 * processes or single threads, 256 of these at most (GANG_LIMIT). GANG_NO_SUCH_PROCESS where there
 * is no such thread; GANG_NOT_PERMITTED for one of another user, one that is in a job already or
 * whose process is, and for a job that has processes, is suspended or asks for signals. GANG_FAILED
 * where a thread cannot be switched by itself: by other backends than rt, where gangs do not fill,
 * or where its cgroup may have no real-time threads; gang_error() says which, and what to do. Out
 * of its slots the thread is SCHED_IDLE in its own cgroups. Such a job cannot be suspended or have
 * signals around its slots: GANG_NOT_PERMITTED. */
gang_result gang_add_thread(gang_job *job, pid_t tid);
/* Takes a single thread out of the job again: it is scheduled as it was before. With its last
 * thread the job ends, as it does within a second where that has ended. GANG_NO_SUCH_PROCESS where
 * the thread is not of the job by itself. */
gang_result gang_remove_thread(gang_job *job, pid_t tid);

/* The owner of a job may lower its class, administrators may set any: GANG_NOT_PERMITTED. */
gang_result gang_set_class(gang_job *job, gang_class job_class);
/* GANG_LIMIT for too many CPUs, GANG_NOT_ENOUGH. */
gang_result gang_resize(gang_job *job, const gang_change *change);
gang_result gang_set_signals(gang_job *job, int on);
gang_result gang_suspend(gang_job *job);
gang_result gang_resume(gang_job *job);

/* How far the job is, as the program counts: done of total, in any unit; 0 <= done <= total, 0 <
 * total, both finite. One process of a job is enough. Made for inner loops: a call reads a clock
 * without a system call, and four times a second one goes on to the daemon, and does not wait for
 * its answer (the first one of a job does); of the others it is not known. done == total is sent at
 * once. A later call returns a refusal, and then nothing is sent for 5 s and ten times as long as
 * the refusal took. */
gang_result gang_job_progress(gang_job *job, double done, double total);

/* Set size before the call: no more than that is filled in. */
gang_result gang_get_use(gang_job *job, gang_use *use);
gang_result gang_get_load(gang_load *load);

/* Maps the slot page of a job; it stays mapped after gang_close, and in children. A process has
 * 1,024 pages open at most, GANG_LIMIT beyond. */
gang_result gang_page_open(gang_job *job, const gang_page **page);
/* GANG_INVALID, and nothing is unmapped, where it is no open page: one that was closed, too. */
gang_result gang_page_close(const gang_page *page);

/* A barrier and a lock for the threads of a gang. While the slot page says that the slot runs they
 * spin, out of slot they block; without a page, or where it says nothing, they spin for 50 us and
 * block then, and block at once where that was in vain. No spin lasts longer than 1 ms. Both lie
 * where the program puts them, aligned to 8, and stay there. In memory that processes share,
 * children of a fork can use what their parent made. Both order memory as those of pthread do;
 * neither may be used in signal handlers. One that was not initialised, or was destroyed, gives
 * GANG_INVALID. */
typedef struct gang_barrier {
    uint64_t opaque[48];
} gang_barrier;

typedef struct gang_mutex {
    uint64_t opaque[4];
} gang_mutex;

/* For as many threads, 1 to 1,048,576. The page may be null; else it stays open as long as the
 * barrier is used. */
gang_result gang_barrier_init(gang_barrier *barrier, uint32_t threads, const gang_page *page);
/* Returns when all threads have come; then the barrier is ready for the next time. */
gang_result gang_barrier_wait(gang_barrier *barrier);
/* When every thread has returned from it. GANG_INVALID while threads wait. */
gang_result gang_barrier_destroy(gang_barrier *barrier);

gang_result gang_mutex_init(gang_mutex *mutex, const gang_page *page);
/* Not recursive; threads do not get it in the order in which they came. */
gang_result gang_mutex_lock(gang_mutex *mutex);
/* By the thread that holds it. GANG_INVALID where nobody does. */
gang_result gang_mutex_unlock(gang_mutex *mutex);
/* When nobody uses it any more. GANG_INVALID while somebody holds it. */
gang_result gang_mutex_destroy(gang_mutex *mutex);

#ifdef __cplusplus
}
#endif

#endif
