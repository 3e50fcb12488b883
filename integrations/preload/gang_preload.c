/* libgang-preload: makes programs gangs that know nothing of it.
 *
 *     GANG=1 LD_PRELOAD=libgang-preload.so ./program
 *     mpirun -x GANG=1 -x LD_PRELOAD=libgang-preload.so -n 4 ./program     (Open MPI)
 *     mpiexec -env GANG 1 -env LD_PRELOAD libgang-preload.so -n 4 ./program (MPICH)
 *
 * A program without MPI becomes a gang as it starts. The ranks of an MPI program on one machine
 * become one gang, in MPI_Init: the launcher above them is adopted with all that it has started.
 * Of MPI nothing is used but the profiling interface, so one library fits every MPI.
 *
 * If anything goes wrong, the program runs on as it would have, and one line says why.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <gang.h>
#include <limits.h>
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

/* Whether a process is in a job of some daemon already, made by its parents or another rank. */
static int is_in_job(void)
{
    char line[PATH_MAX + 64];
    int found = 0;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    if (!groups)
        return 0;
    while (!found && fgets(line, sizeof line, groups))
        found = strncmp(line, "0::/", 4) == 0 && strstr(line, "gangd") && strstr(line, "/job-");
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

static void join(void)
{
    static int joined;
    gang_spec spec;
    gang_job *job;
    gang_result result;
    int32_t ranks = local_ranks();

    if (__atomic_exchange_n(&joined, 1, __ATOMIC_ACQ_REL) || !wanted() || is_in_job())
        return;
    gang_spec_init(&spec);
    spec.name = variable("GANG_NAME");
    spec.cpus = ranks;
    if (!number("GANG_CPUS", 8192, &spec.cpus) || !number("GANG_MIN_CPUS", 8192, &spec.min_cpus) ||
        !number("GANG_WEIGHT", 10000, &spec.weight) || !size("GANG_MEM", &spec.mem_bytes) ||
        !size("GANG_DISK", &spec.disk_bytes) || !class_of(&spec.job_class))
        return;
    /* More ranks than CPUs: they share those there are. */
    if (!spec.min_cpus)
        spec.min_cpus = ranks ? 1 : 0;
    const char *signals = variable("GANG_SIGNALS");
    spec.signals = signals && strcmp(signals, "0") != 0;
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
    /* A program with MPI joins when it knows of the other ranks. */
    if (wanted() && !is_launcher() && !dlsym(RTLD_DEFAULT, "PMPI_Init"))
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
static void *next(const char *name, const char *or_name, void *caller)
{
    Dl_info module;
    void *function = find(RTLD_NEXT, name, or_name);
    if (!function && dladdr(caller, &module)) {
        void *library = dlopen(module.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            function = find(library, name, or_name);
            dlclose(library);
        }
    }
    if (!function) {
        fprintf(stderr, "gang: %s is missing: this is no MPI with a profiling interface\n", name);
        abort();
    }
    return function;
}

#define NEXT(name, or_name) next(name, or_name, __builtin_return_address(0))

int MPI_Init(int *argc, char ***argv)
{
    join();
    return ((init_function)NEXT("PMPI_Init", NULL))(argc, argv);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    join();
    init_thread_function init = NEXT("PMPI_Init_thread", NULL);
    return init(argc, argv, required, provided);
}

/* Fortran's calls do not go through those of C in every MPI. */
void mpi_init_(int *error)
{
    join();
    ((fortran_function)NEXT("pmpi_init_", NULL))(error);
}

void mpi_init_thread_(int *required, int *provided, int *error)
{
    join();
    fortran_thread_function init = NEXT("pmpi_init_thread_", NULL);
    init(required, provided, error);
}

void mpi_init_f08_(int *error)
{
    join();
    ((fortran_function)NEXT("pmpi_init_f08_", "pmpir_init_f08_"))(error);
}

void mpi_init_thread_f08_(int *required, int *provided, int *error)
{
    join();
    fortran_thread_function init = NEXT("pmpi_init_thread_f08_", "pmpir_init_thread_f08_");
    init(required, provided, error);
}
