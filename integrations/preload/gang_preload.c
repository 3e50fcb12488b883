/* libgang-preload: makes programs gangs that know nothing of it.
 *
 *     GANG=1 LD_PRELOAD=libgang-preload.so ./program
 *     mpirun -x GANG=1 -x LD_PRELOAD=libgang-preload.so -n 4 ./program     (Open MPI)
 *     mpiexec -env GANG 1 -env LD_PRELOAD libgang-preload.so -n 4 ./program (MPICH)
 *
 * A program without MPI becomes a gang as it starts. The ranks of an MPI program on one machine
 * become one gang, in MPI_Init: the launcher above them is adopted with all that it has started.
 * Ranks on several hosts of a cluster become one job that spans them, at the end of MPI_Init: they
 * tell each other by MPI where they are, the first one registers the job, and each adds itself. The
 * first slot comes when all have done so. Where a host is in no cluster, those of each host are a
 * gang of their own. Of MPI nothing is used but the profiling interface, so one library fits Open
 * MPI and every MPI of MPICH's binary interface.
 *
 * If anything goes wrong, the program runs on as it would have, and one line says why.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <gang.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *variable(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static int wanted(void)
{
    const char *value = variable("GANG");
    return value && strcmp(value, "0") != 0;
}

static void complain(const char *what, const char *why)
{
    fprintf(stderr, "gang: %s: %s; the program runs on without\n", what, why);
}

/* A whole number from the environment; 0 where it is bad, after a message. */
static int number(const char *name, long most, int32_t *out)
{
    const char *text = variable(name);
    char *end;
    if (!text)
        return 1;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || value < 1 || value > most) {
        char why[96];
        snprintf(why, sizeof why, "%.40s is not 1 to %ld", text, most);
        complain(name, why);
        return 0;
    }
    *out = (int32_t)value;
    return 1;
}

/* Bytes, such as 512M or 4G; the units are powers of 1024. */
static int size(const char *name, int64_t *out)
{
    static const char units[] = "KMGT";
    const char *text = variable(name);
    char *end;
    if (!text)
        return 1;
    errno = 0;
    double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    int shift = 0;
    if (unit) {
        shift = 10 * (int)(unit - units + 1);
        end += 1 + (end[1] == 'i') + (end[1] == 'i' ? end[2] == 'B' : end[1] == 'B');
    }
    if (errno || end == text || *end || !(value >= 0 && value < 1e6)) {
        complain(name, "not a size such as 512M or 4G");
        return 0;
    }
    *out = (int64_t)(value * (double)(1LL << shift));
    return 1;
}

static int class_of(gang_class *out)
{
    static const char *const names[] = {"express", "interactive", "batch", "standby"};
    const char *text = variable("GANG_CLASS");
    if (!text)
        return 1;
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (gang_class)(i + 1);
            return 1;
        }
    }
    complain("GANG_CLASS", "not one of express, interactive, batch, standby");
    return 0;
}

/* Ranks of this job on this machine, by whichever MPI has started them; 0: by none. */
static int32_t local_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "PMI_LOCAL_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = variable(names[i]);
        if (text && atoi(text) > 0)
            return atoi(text);
    }
    return 0;
}

/* Of those on this machine. */
static int is_first_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = variable(names[i]);
        if (text)
            return atoi(text) == 0;
    }
    return 1;
}

/* Whether a group is a job's: job-7 below gangd's own, gangd.job-7 or gangd-job-7 below others. */
static int is_of_job(const char *path)
{
    if (!strstr(path, "gangd"))
        return 0;
    for (const char *at = strstr(path, "job-"); at; at = strstr(at + 1, "job-"))
        if (at > path && strchr("/.-", at[-1]) && at[4] >= '0' && at[4] <= '9')
            return 1;
    return 0;
}

/* Whether a process is in a job of some daemon already, made by its parents or another rank. */
static int is_in_job(void)
{
    char line[PATH_MAX + 64];
    int found = 0;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    if (!groups)
        return 0;
    while (!found && fgets(line, sizeof line, groups))
        found = strncmp(line, "0::/", 4) == 0 && is_of_job(line + 3);
    fclose(groups);
    return found;
}

/* The first rank takes the others in. If it does not, they run on as they are. */
static void wait_for_first_rank(void)
{
    gang_load load = {.size = sizeof load};
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 1000000};
    if (gang_get_load(&load) != GANG_OK)
        return;
    for (int i = 0; i < 1000 && !is_in_job(); i++)
        nanosleep(&pause, NULL);
}

/* Of this program, on all machines; 0: nobody says so. */
static int32_t all_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = variable(names[i]);
        if (text && atoi(text) > 0)
            return atoi(text);
    }
    return 0;
}

/* Whether the ranks are on several machines: all of them say the same. */
static int is_spread(void)
{
    const char *nodes = variable("SLURM_STEP_NUM_NODES");
    if (variable("OMPI_COMM_WORLD_LOCAL_SIZE") || variable("MPI_LOCALNRANKS"))
        return all_ranks() > local_ranks();
    return nodes && atoi(nodes) > 1;
}

/* The wishes of the environment, for so many ranks. */
static int specify(gang_spec *spec, int32_t ranks)
{
    gang_spec_init(spec);
    spec->name = variable("GANG_NAME");
    spec->cpus = ranks;
    if (!number("GANG_CPUS", 8192, &spec->cpus) ||
        !number("GANG_MIN_CPUS", 8192, &spec->min_cpus) ||
        !number("GANG_WEIGHT", 10000, &spec->weight) || !size("GANG_MEM", &spec->mem_bytes) ||
        !size("GANG_DISK", &spec->disk_bytes) || !class_of(&spec->job_class))
        return 0;
    const char *signals = variable("GANG_SIGNALS");
    spec->signals = signals && strcmp(signals, "0") != 0;
    return 1;
}

/* True the first time, of a process that is to be in a gang. */
static int joins_now(void)
{
    static int joined;
    return !__atomic_exchange_n(&joined, 1, __ATOMIC_ACQ_REL) && wanted();
}

/* The ranks of this machine become a gang, or a program without ranks does. */
static void join_here(void)
{
    gang_spec spec;
    gang_job *job;
    gang_result result;
    int32_t ranks = local_ranks();

    if (is_in_job() || !specify(&spec, ranks))
        return;
    /* More ranks than CPUs: they share those there are. */
    if (!spec.min_cpus)
        spec.min_cpus = ranks ? 1 : 0;
    if (ranks > 0) {
        if (!is_first_rank()) {
            wait_for_first_rank();
            return;
        }
        result = gang_adopt(&spec, getppid(), &job);
    } else {
        result = gang_register(&spec, &job);
        if (result == GANG_OK && (result = gang_add_process(job, 0)) != GANG_OK)
            gang_close(job);
    }
    if (result == GANG_OK)
        gang_close(job);
    else
        complain("this program is no gang", gang_error());
}

static void join(void)
{
    if (joins_now())
        join_here();
}

static int is_launcher(void)
{
    static const char *const names[] = {"mpirun",  "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy",
                                        "orterun", "orted",   "prterun",       "prted",
                                        "prte",    "srun",    "gang",          "gangd"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        /* Distributions name them mpirun.openmpi and mpiexec.mpich, too. */
        size_t length = strlen(names[i]);
        const char *rest = program_invocation_short_name + length;
        if (strncmp(program_invocation_short_name, names[i], length) == 0 &&
            (*rest == 0 || *rest == '.'))
            return 1;
    }
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    /* A program with MPI joins when it knows of the other ranks: also one that a shell or an
     * interpreter becomes or loads, of which ranks on several hosts do nothing before. */
    if (wanted() && !is_launcher() && !is_spread() && !dlsym(RTLD_DEFAULT, "PMPI_Init"))
        join();
}

/* The profiling interface: a call of MPI_X comes here first, and goes on to PMPI_X. In Fortran of
 * 2008 Open MPI and MPICH have different names for it. */

typedef int (*init_function)(int *, char ***);
typedef int (*init_thread_function)(int *, char ***, int, int *);
typedef void (*fortran_function)(int *);
typedef void (*fortran_thread_function)(int *, int *, int *);

static void *find(void *where, const char *name, const char *or_name)
{
    void *function = dlsym(where, name);
    return function || !or_name ? function : dlsym(where, or_name);
}

/* An interpreter has no MPI, and loads a module that has. Then only the libraries of this module,
 * which is the caller, know the function. */
static void *look(void *where, const char *name, const char *or_name, void *caller)
{
    Dl_info module;
    void *found = find(where, name, or_name);
    if (!found && dladdr(caller, &module)) {
        void *library = dlopen(module.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            found = find(library, name, or_name);
            dlclose(library);
        }
    }
    return found;
}

static void *next(const char *name, const char *or_name, void *caller)
{
    void *function = look(RTLD_NEXT, name, or_name, caller);
    if (!function) {
        fprintf(stderr, "gang: %s is missing: this is no MPI with a profiling interface\n", name);
        abort();
    }
    return function;
}

/* MPI as the program has it. Handles are addresses in Open MPI, and numbers in MPICH's binary
 * interface: those of MPI_COMM_WORLD and MPI_CHAR. */
struct mpi {
    void *caller;
    void *world;
    void *bytes;
};

enum { MPICH_WORLD = 0x44000000, MPICH_CHAR = 0x4c000101 };

static struct mpi mpi_of(void *caller)
{
    /* A program may have copies of what is data, and these count then (R_X86_64_COPY). */
    struct mpi mpi = {.caller = caller,
                      .world = look(RTLD_DEFAULT, "ompi_mpi_comm_world", NULL, caller),
                      .bytes = look(RTLD_DEFAULT, "ompi_mpi_char", NULL, caller)};
    return mpi;
}

static int rank_of(const struct mpi *mpi, int *rank)
{
    void *function = next("PMPI_Comm_rank", NULL, mpi->caller);
    return mpi->world ? ((int (*)(void *, int *))function)(mpi->world, rank)
                      : ((int (*)(int, int *))function)(MPICH_WORLD, rank);
}

static int size_of(const struct mpi *mpi, int *size)
{
    void *function = next("PMPI_Comm_size", NULL, mpi->caller);
    return mpi->world ? ((int (*)(void *, int *))function)(mpi->world, size)
                      : ((int (*)(int, int *))function)(MPICH_WORLD, size);
}

static int all_gather(const struct mpi *mpi, void *own, int bytes, void *all)
{
    typedef int (*by_address)(void *, int, void *, void *, int, void *, void *);
    typedef int (*by_number)(void *, int, int, void *, int, int, int);
    void *function = next("PMPI_Allgather", NULL, mpi->caller);
    return mpi->world ? ((by_address)function)(own, bytes, mpi->bytes, all, bytes, mpi->bytes,
                                               mpi->world)
                      : ((by_number)function)(own, bytes, MPICH_CHAR, all, bytes, MPICH_CHAR,
                                              MPICH_WORLD);
}

static int broadcast(const struct mpi *mpi, void *what, int bytes)
{
    void *function = next("PMPI_Bcast", NULL, mpi->caller);
    return mpi->world
               ? ((int (*)(void *, int, void *, int, void *))function)(what, bytes, mpi->bytes, 0,
                                                                       mpi->world)
               : ((int (*)(void *, int, int, int, int))function)(what, bytes, MPICH_CHAR, 0,
                                                                 MPICH_WORLD);
}

/* Where a rank is. */
struct place {
    char host[256]; /* in its cluster; empty: in none */
    int64_t job;    /* that it is in already; 0: none, -1: one that does not span hosts */
    int32_t cpus;   /* of the host */
    cpu_set_t may;  /* the rank may use these of them */
};

/* Ids of jobs that span hosts. */
enum { FIRST_SPANNING = 1000000000 };

static int64_t own_job(void)
{
    const char *text = variable("GANG_JOB");
    int64_t job = text ? atoll(text) : 0;
    return !is_in_job() ? 0 : job >= FIRST_SPANNING ? job : -1;
}

/* The CPUs of a set as a list; null where there is no memory. */
static char *list_of(const cpu_set_t *set)
{
    size_t length = 0;
    char *list = calloc(CPU_SETSIZE, 6);
    for (int cpu = 0; list && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, set))
            length += (size_t)sprintf(list + length, length ? ",%d" : "%d", cpu);
    return list;
}

/* The first rank registers the job for all; 0 where that fails. */
static int64_t register_for_all(const struct place *places, int ranks)
{
    const char **names = calloc((size_t)ranks, sizeof *names);
    int32_t *cpus = calloc((size_t)ranks, sizeof *cpus);
    int32_t *counts = calloc((size_t)ranks, sizeof *counts);
    int32_t *of_hosts = calloc((size_t)ranks, sizeof *of_hosts);
    cpu_set_t *may = calloc((size_t)ranks, sizeof *may);
    char **allowed = calloc((size_t)ranks, sizeof *allowed);
    gang_span span;
    gang_spec spec;
    gang_job *job;
    int64_t id = 0;

    gang_span_init(&span);
    if (names && cpus && counts && of_hosts && may && allowed && specify(&spec, 0)) {
        int32_t of_host = 0;
        for (int rank = 0; rank < ranks; rank++) {
            size_t at = 0;
            while (at < span.hosts && strcmp(names[at], places[rank].host) != 0)
                at++;
            names[at] = places[rank].host;
            counts[at]++;
            of_hosts[at] = places[rank].cpus;
            CPU_OR(&may[at], &may[at], &places[rank].may);
            if (at == span.hosts)
                span.hosts++;
            /* More ranks than CPUs: they share those there are. */
            of_host = spec.cpus ? spec.cpus : counts[at];
            cpus[at] = of_host < places[rank].cpus ? of_host : places[rank].cpus;
        }
        /* Ranks that their launcher has bound to CPUs run on these. */
        for (size_t at = 0; at < span.hosts; at++) {
            int count = CPU_COUNT(&may[at]);
            if (count == 0 || count >= of_hosts[at])
                continue;
            if (cpus[at] > count)
                cpus[at] = count;
            allowed[at] = list_of(&may[at]);
        }
        span.names = names;
        span.cpus = cpus;
        span.ranks = counts;
        span.allowed = (const char *const *)allowed;
        if (gang_register_span(&spec, &span, &job) == GANG_OK)
            gang_id(job, &id);
        else
            complain("this program is no gang", gang_error());
    }
    for (int at = 0; allowed && at < ranks; at++)
        free(allowed[at]);
    free(allowed);
    free(of_hosts);
    free(may);
    free(names);
    free(cpus);
    free(counts);
    return id;
}

/* The ranks of all hosts become one job. All of them come here, and do the same by MPI, whatever
 * one of them finds. */
static void join_across(const struct mpi *mpi)
{
    struct place own = {.job = own_job(), .cpus = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)};
    /* A machine may have more CPUs than a set of the C library: nothing is known of these. */
    if (sched_getaffinity(0, sizeof own.may, &own.may))
        CPU_ZERO(&own.may);
    struct place *places;
    int rank, ranks, is_in_cluster = 1, is_apart = 0, is_in_other = 0;
    int64_t id = 0;

    if (gang_host_name(own.host, sizeof own.host) != GANG_OK)
        own.host[0] = 0;
    if (rank_of(mpi, &rank) || size_of(mpi, &ranks))
        return;
    places = calloc((size_t)ranks, sizeof *places);
    if (!places) {
        /* The others wait for this rank. */
        fprintf(stderr, "gang: no memory for %d ranks\n", ranks);
        abort();
    }
    if (all_gather(mpi, &own, sizeof own, places)) {
        free(places);
        return;
    }
    for (int other = 0; other < ranks; other++) {
        is_in_cluster &= places[other].host[0] != 0;
        is_apart |= strcmp(places[other].host, places[0].host) != 0;
        is_in_other |= places[other].job < 0;
        if (places[other].job > 0)
            id = places[other].job;
    }
    if (is_in_other) {
        /* Somebody has made jobs of them: a launcher's plugin, or gang run. */
    } else if (!is_in_cluster || !is_apart) {
        join_here();
    } else {
        if (!id && rank == 0)
            id = register_for_all(places, ranks);
        if (broadcast(mpi, &id, sizeof id) == 0 && id && own.job != id) {
            gang_job *job;
            gang_result result = gang_open(id, &job);
            if (result == GANG_OK) {
                result = gang_add_process(job, 0);
                gang_close(job);
            }
            if (result != GANG_OK)
                complain("this rank is in no gang", gang_error());
        }
    }
    free(places);
}

/* Ranks on several hosts know of each other once MPI is initialised. */
static void before_init(void)
{
    if (!is_spread())
        join();
}

static void after_init(int failed, void *caller)
{
    if (!failed && is_spread() && joins_now()) {
        struct mpi mpi = mpi_of(caller);
        join_across(&mpi);
    }
}

#define CALLER __builtin_return_address(0)
#define NEXT(name, or_name) next(name, or_name, CALLER)

int MPI_Init(int *argc, char ***argv)
{
    before_init();
    int failed = ((init_function)NEXT("PMPI_Init", NULL))(argc, argv);
    after_init(failed, CALLER);
    return failed;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    before_init();
    init_thread_function init = NEXT("PMPI_Init_thread", NULL);
    int failed = init(argc, argv, required, provided);
    after_init(failed, CALLER);
    return failed;
}

/* Fortran's calls do not go through those of C in every MPI. */
void mpi_init_(int *error)
{
    before_init();
    ((fortran_function)NEXT("pmpi_init_", NULL))(error);
    after_init(error && *error, CALLER);
}

void mpi_init_thread_(int *required, int *provided, int *error)
{
    before_init();
    fortran_thread_function init = NEXT("pmpi_init_thread_", NULL);
    init(required, provided, error);
    after_init(error && *error, CALLER);
}

void mpi_init_f08_(int *error)
{
    before_init();
    ((fortran_function)NEXT("pmpi_init_f08_", "pmpir_init_f08_"))(error);
    after_init(error && *error, CALLER);
}

void mpi_init_thread_f08_(int *required, int *provided, int *error)
{
    before_init();
    fortran_thread_function init = NEXT("pmpi_init_thread_f08_", "pmpir_init_thread_f08_");
    init(required, provided, error);
    after_init(error && *error, CALLER);
}
