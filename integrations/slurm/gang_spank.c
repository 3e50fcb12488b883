/* gang_spank: the tasks of a Slurm step become a gang.
 *
 *     srun --gang -N 2 -n 8 ./program
 *     sbatch --gang --gang-class=interactive script.sh
 *
 * A SPANK plugin of one file (spank(7)), which needs libgang and <slurm/spank.h> alone:
 *
 *     cc -shared -fPIC -O2 -o gang_spank.so gang_spank.c $(pkg-config --cflags --libs gang)
 *
 * On each node slurmstepd has forked all tasks, and holds them, when the last of them is announced.
 * A child of slurmstepd then becomes the step's user, registers the step and adds the tasks. So the
 * user has no more rights in gangd than without Slurm, and a fault of this child is none of
 * slurmstepd. A step of one node is a job of this host. A step of several nodes is one job that
 * spans them: each node registers it by the name slurm:JOB.STEP, and gangd has one job of a name.
 *
 * The layout of a step comes from its environment, which its user can write. It is read within
 * bounds, and compared with what slurmstepd knows of this node.
 *
 * The step's first node then says, as root, which job of Slurm the tasks are of. A user may not: a
 * site may have limits follow it.
 *
 * If anything goes wrong, the step runs on as it would have, and one line says why.
 */
#define _GNU_SOURCE
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <gang.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN(gang, 1);

enum {
    HOSTS_MAX = 4096,
    TASKS_MAX = 8192,          /* of this node */
    HOST_NAME_SIZE = 254,      /* with the zero byte */
    JOB_NAME_SIZE = 65,        /* with the zero byte */
    VARIABLE_SIZE = 256 * 1024,
    REGISTERED_WITHIN_MS = 30000,
    BECOMES_USER_WITHIN_MS = 5000
};

/* The steps that srun has not made; slurm.h of Slurm has these numbers. */
static const uint32_t EXTERN_STEP = 0xfffffffc, BATCH_STEP = 0xfffffffb,
                      INTERACTIVE_STEP = 0xfffffffa;

/* Numbers of tasks of an array from here on stand for none. */
static const uint32_t NO_TASK = 0xfffffffd;

/* A word of an option, and the number that it stands for. */
struct word {
    const char *word;
    int value;
};

static const struct word classes[] = {{"express", GANG_EXPRESS},
                                      {"interactive", GANG_INTERACTIVE},
                                      {"batch", GANG_BATCH},
                                      {"standby", GANG_STANDBY},
                                      {NULL, 0}};
static const struct word losses[] = {{"mark", GANG_MARK},
                                     {"suspend", GANG_SUSPEND_ALL},
                                     {"release", GANG_RELEASE},
                                     {NULL, 0}};

enum wanted { NOT_SAID, YES, NO };

static struct {
    enum wanted wanted;
    gang_class job_class;
    int32_t weight;
    gang_host_lost host_lost;
} options = {NOT_SAID, GANG_BATCH, 100, GANG_MARK};

/* A step as gangd is to know it. */
struct step {
    uint32_t job, id;
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    int group_count;
    char name[JOB_NAME_SIZE];
    size_t hosts;
    char **names;
    int32_t *cpus;  /* by host */
    int32_t *ranks; /* by host */
    uint32_t here;  /* the index of this host */
    uint32_t restarts;
    uint32_t array; /* the number of the job's array; 0 where it is in none */
    uint32_t array_task;
};

/* The tasks of this node, in the order in which they were forked. */
static pid_t tasks[TASKS_MAX];
static uint32_t task_count;

static void complain(const char *what, const char *why)
{
    slurm_spank_log("gang: %s: %s; the step runs on without", what, why);
}

/* The words that the user typed. */

static int value_of(const struct word *words, const char *text, const char *option, int *value)
{
    for (const struct word *at = words; text && at->word; at++) {
        if (strcmp(at->word, text) == 0) {
            *value = at->value;
            return 0;
        }
    }
    slurm_error("gang: --%s=%.40s: not one of", option, text ? text : "");
    for (const struct word *at = words; at->word; at++)
        slurm_error("gang:   %s", at->word);
    return -1;
}

static int want(int value, const char *argument, int remote)
{
    (void)argument, (void)remote;
    options.wanted = (enum wanted)value;
    return 0;
}

/* An option of a gang asks for one, unless the user said that there is to be none. */
static void imply(void)
{
    if (options.wanted == NOT_SAID)
        options.wanted = YES;
}

static int set_class(int value, const char *argument, int remote)
{
    (void)remote;
    if (value_of(classes, argument, "gang-class", &value) < 0)
        return -1;
    options.job_class = (gang_class)value;
    imply();
    return 0;
}

static int set_host_lost(int value, const char *argument, int remote)
{
    (void)remote;
    if (value_of(losses, argument, "gang-on-host-lost", &value) < 0)
        return -1;
    options.host_lost = (gang_host_lost)value;
    imply();
    return 0;
}

/* The whole number at the beginning of a text, and what follows it. */
static int number(const char **text, int32_t least, int32_t most, int32_t *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return -1;
    errno = 0;
    long value = strtol(*text, &end, 10);
    if (errno || value < least || value > most)
        return -1;
    *out = (int32_t)value;
    *text = end;
    return 0;
}

static int set_weight(int value, const char *argument, int remote)
{
    const char *at = argument ? argument : "";
    (void)value, (void)remote;
    if (number(&at, 1, 10000, &options.weight) < 0 || *at) {
        slurm_error("gang: --gang-weight=%.40s: not 1 to 10000", argument ? argument : "");
        return -1;
    }
    imply();
    return 0;
}

static struct spank_option offered[] = {
    {"gang", NULL, "run all tasks of a step at the same moments, on all nodes", 0, YES, want},
    {"no-gang", NULL, "leave the step to Linux, also where the site makes gangs", 0, NO, want},
    {"gang-class", "class", "class of the gang: express, interactive, batch or standby", 1, 0,
     set_class},
    {"gang-weight", "weight", "weight among gangs of its class, 1 to 10000; by default 100", 1, 0,
     set_weight},
    {"gang-on-host-lost", "what", "when a node is lost: mark, suspend or release", 1, 0,
     set_host_lost},
};

/* The layout of the step. */

/* A variable of the step; to be freed. Null where it is not set, or is too long. */
static char *variable(spank_t spank, const char *name)
{
    char *value = malloc(VARIABLE_SIZE);
    if (value && spank_getenv(spank, name, value, VARIABLE_SIZE) != ESPANK_SUCCESS) {
        free(value);
        value = NULL;
    }
    return value;
}

static int add_name(struct step *step, const char *name)
{
    if (!*name || step->hosts == HOSTS_MAX)
        return -1;
    step->names[step->hosts] = strdup(name);
    return step->names[step->hosts++] ? 0 : -1;
}

/* Adds all names that begin with `prefix` and go on as the text up to its end, such as n[1-3,08]x.
 * Names are short, so this goes no deeper than they are long. */
static int expand_name(struct step *step, const char *prefix, const char *text, const char *end)
{
    char name[HOST_NAME_SIZE];
    const char *bracket = memchr(text, '[', (size_t)(end - text));
    const char *stop = bracket ? bracket : end;
    int length = snprintf(name, sizeof name, "%s%.*s", prefix, (int)(stop - text), text);
    if (length < 0 || (size_t)length >= sizeof name)
        return -1;
    if (!bracket)
        return add_name(step, name);
    const char *close = memchr(bracket, ']', (size_t)(end - bracket));
    if (!close)
        return -1;
    /* An empty bracket would end in no name, and nothing would bound how often. */
    if (close == bracket + 1)
        return -1;
    for (const char *at = bracket + 1; at < close; at++) {
        int32_t first, last;
        const char *digits = at;
        if (number(&at, 0, INT32_MAX - 1, &first) < 0)
            return -1;
        int width = (int)(at - digits);
        last = first;
        if (*at == '-' && (at++, number(&at, first, INT32_MAX - 1, &last) < 0))
            return -1;
        if ((*at != ',' && at != close) || last - first >= HOSTS_MAX)
            return -1;
        for (int32_t i = first; i <= last; i++) {
            char longer[HOST_NAME_SIZE];
            int size = snprintf(longer, sizeof longer, "%s%0*d", name, width, (int)i);
            if (size < 0 || (size_t)size >= sizeof longer ||
                expand_name(step, longer, close + 1, end) < 0)
                return -1;
        }
    }
    return 0;
}

/* A list of Slurm's, such as a,n[1-3,08]. */
static int expand_names(struct step *step, const char *list)
{
    const char *at = list;
    for (;;) {
        const char *end = at;
        for (int depth = 0; *end && (depth || *end != ','); end++)
            depth += (*end == '[') - (*end == ']');
        if (expand_name(step, "", at, end) < 0)
            return -1;
        if (!*end)
            return 0;
        at = end + 1;
    }
}

/* Numbers by host as Slurm writes them: 4(x2),3. */
static int expand_numbers(const char *list, int32_t *out, size_t count)
{
    size_t filled = 0;
    for (const char *at = list;; at++) {
        int32_t value, times = 1;
        if (number(&at, 0, 1 << 20, &value) < 0)
            return -1;
        if (strncmp(at, "(x", 2) == 0) {
            at += 2;
            if (number(&at, 1, HOSTS_MAX, &times) < 0 || *at++ != ')')
                return -1;
        }
        for (; times > 0; times--) {
            if (filled == count)
                return -1;
            out[filled++] = value;
        }
        if (*at != ',')
            return *at || filled != count ? -1 : 0;
    }
}

/* Lowers the CPUs of each host to those that the job has there: tasks may be more (--overcommit).
 * Where the environment does not say how many these are, they stay. */
static void cap_cpus(spank_t spank, struct step *step)
{
    struct step job = {.names = calloc(HOSTS_MAX, sizeof(char *))};
    int32_t *cpus = calloc(HOSTS_MAX, sizeof *cpus);
    char *list = variable(spank, "SLURM_JOB_NODELIST");
    char *numbers = variable(spank, "SLURM_JOB_CPUS_PER_NODE");
    if (job.names && cpus && list && numbers && expand_names(&job, list) == 0 &&
        expand_numbers(numbers, cpus, job.hosts) == 0) {
        /* Both lists have the same order. */
        for (size_t i = 0, at = 0; i < step->hosts; i++) {
            while (at < job.hosts && strcmp(job.names[at], step->names[i]) != 0)
                at++;
            if (at == job.hosts)
                break;
            if (cpus[at] > 0 && cpus[at] < step->cpus[i])
                step->cpus[i] = cpus[at];
        }
    }
    for (size_t i = 0; i < job.hosts; i++)
        free(job.names[i]);
    free(job.names);
    free(cpus);
    free(list);
    free(numbers);
}

/* Hosts, CPUs and tasks of a step; why not, where it cannot be read. */
static const char *read_layout(spank_t spank, struct step *step)
{
    const char *why = NULL;
    uint32_t nodes = 0, cpus_per_task = 1;
    char *names = variable(spank, "SLURM_STEP_NODELIST");
    char *counts = variable(spank, "SLURM_STEP_TASKS_PER_NODE");
    char *het = variable(spank, "SLURM_HET_SIZE");
    char *restarts = variable(spank, "SLURM_RESTART_COUNT");
    spank_get_item(spank, S_JOB_NNODES, &nodes);
    spank_get_item(spank, S_JOB_NODEID, &step->here);
    spank_get_item(spank, S_STEP_CPUS_PER_TASK, &cpus_per_task);
    if (cpus_per_task == 0 || cpus_per_task > 1 << 16)
        cpus_per_task = 1;
    if (het)
        why = "a heterogeneous job has no gang";
    else if (!names || !counts)
        why = "SLURM_STEP_NODELIST or SLURM_STEP_TASKS_PER_NODE is not set";
    else if (expand_names(step, names) < 0)
        why = "SLURM_STEP_NODELIST cannot be read";
    else if (expand_numbers(counts, step->ranks, step->hosts) < 0)
        why = "SLURM_STEP_TASKS_PER_NODE cannot be read";
    else if (step->hosts != nodes || step->here >= nodes ||
             (uint32_t)step->ranks[step->here] != task_count)
        why = "its environment has another layout than Slurm";
    for (size_t i = 0; !why && i < step->hosts; i++) {
        int64_t cpus = (int64_t)step->ranks[i] * cpus_per_task;
        if (cpus < 1 || cpus > INT32_MAX)
            why = "a node has no task";
        step->cpus[i] = (int32_t)cpus;
    }
    if (!why)
        cap_cpus(spank, step);
    const char *at = restarts ? restarts : "";
    int32_t times;
    if (number(&at, 0, INT32_MAX, &times) == 0)
        step->restarts = (uint32_t)times;
    free(names);
    free(counts);
    free(het);
    free(restarts);
    return why;
}

/* The batch script of a job with one node: its programs are a gang as they are. With more nodes
 * only the steps are, which the script starts by srun. */
static const char *read_batch(spank_t spank, struct step *step)
{
    char *cpus = variable(spank, "SLURM_JOB_CPUS_PER_NODE");
    const char *why = NULL;
    step->hosts = 1;
    step->ranks[0] = 1;
    if (!cpus || expand_numbers(cpus, step->cpus, 1) < 0 || step->cpus[0] < 1)
        why = "SLURM_JOB_CPUS_PER_NODE cannot be read";
    free(cpus);
    return why;
}

/* gangd takes names without control characters. */
static void read_name(spank_t spank, struct step *step)
{
    char *name = variable(spank, "SLURM_JOB_NAME");
    snprintf(step->name, sizeof step->name, "slurm-%u.%u", step->job, step->id);
    if (name && *name && strlen(name) < sizeof step->name) {
        int is_plain = 1;
        for (const char *at = name; *at; at++)
            is_plain &= *at >= ' ' && *at <= '~';
        if (is_plain)
            strcpy(step->name, name);
    }
    free(name);
}

/* In a child of slurmstepd. */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A new task is root's until slurmstepd's child has made itself the user's. */
static void wait_until_user(pid_t pid, uid_t uid)
{
    struct timespec pause = {.tv_nsec = 1000000};
    int64_t end = now_ms() + BECOMES_USER_WITHIN_MS;
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    while (now_ms() < end) {
        unsigned real, effective, saved;
        int is_user = 0;
        FILE *file = fopen(path, "re");
        if (!file)
            return;
        while (fgets(line, sizeof line, file)) {
            if (sscanf(line, "Uid: %u %u %u", &real, &effective, &saved) == 3)
                is_user = real == uid && effective == uid && saved == uid;
        }
        fclose(file);
        if (is_user)
            return;
        nanosleep(&pause, NULL);
    }
}

static gang_result register_step(const struct step *step, gang_job **job)
{
    gang_spec spec;
    gang_span span;
    char launched_as[64];
    gang_result result = gang_spec_init(&spec);
    if (result != GANG_OK)
        return result;
    spec.name = step->name;
    spec.cpus = step->cpus[step->here];
    spec.min_cpus = 1;
    spec.job_class = options.job_class;
    spec.weight = options.weight;
    if (step->hosts == 1)
        return gang_register(&spec, job);
    result = gang_span_init(&span);
    if (result != GANG_OK)
        return result;
    /* A job that is queued again has steps of the same numbers. */
    snprintf(launched_as, sizeof launched_as, step->restarts ? "slurm:%u.%u:%u" : "slurm:%u.%u",
             step->job, step->id, step->restarts);
    span.hosts = step->hosts;
    span.names = (const char *const *)step->names;
    span.cpus = step->cpus;
    span.ranks = step->ranks;
    span.launched_as = launched_as;
    span.on_host_lost = options.host_lost;
    return gang_register_span(&spec, &span, job);
}

/* Becomes the user, for good. */
static int become_user(const struct step *step)
{
    return setgroups((size_t)step->group_count, step->groups) == 0 &&
                   setresgid(step->gid, step->gid, step->gid) == 0 &&
                   setresuid(step->uid, step->uid, step->uid) == 0
               ? 0
               : -1;
}

/* Writes why not, where it fails. */
static void register_as_user(const struct step *step, int out)
{
    gang_job *job;
    if (become_user(step) < 0) {
        dprintf(out, "cannot become the step's user: %s", strerror(errno));
        return;
    }
    if (register_step(step, &job) != GANG_OK) {
        dprintf(out, "%s", gang_error());
        return;
    }
    for (uint32_t i = 0; i < task_count; i++) {
        wait_until_user(tasks[i], step->uid);
        gang_result result = gang_add_process(job, tasks[i]);
        /* A task that has ended already has no part in it. */
        if (result != GANG_OK && result != GANG_NO_SUCH_PROCESS) {
            dprintf(out, "task %u: %s", i, gang_error());
            return;
        }
    }
}

/* As root. Writes why not, where it fails. */
static void name_as_root(const struct step *step, int out)
{
    char slurm_job[32];
    snprintf(slurm_job, sizeof slurm_job, step->array ? "%u_%u" : "%u",
             step->array ? step->array : step->job, step->array_task);
    for (uint32_t i = 0; i < task_count; i++) {
        gang_result result = gang_set_slurm_job(tasks[i], slurm_job);
        if (result == GANG_OK)
            return;
        /* A task may have ended already. */
        if (result != GANG_NO_SUCH_PROCESS) {
            dprintf(out, "%s", gang_error());
            return;
        }
    }
}

/* Reads what the child writes until it ends; kills it where it takes too long. Whether it had
 * nothing to say. */
static int wait_for_child(pid_t child, int in, const char *what)
{
    char why[512];
    size_t length = 0;
    int64_t end = now_ms() + REGISTERED_WITHIN_MS;
    int is_over = 0, is_killed = 0;
    while (!is_over && length < sizeof why - 1) {
        struct pollfd fd = {.fd = in, .events = POLLIN};
        int64_t left = end - now_ms();
        int ready = left > 0 ? poll(&fd, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            complain(what, "gangd did not answer in time");
            break;
        }
        ssize_t got = read(in, why + length, sizeof why - 1 - length);
        if (got > 0)
            length += (size_t)got;
        else
            is_over = got == 0 || errno != EINTR;
    }
    /* It has no more to say, or may not end by itself. */
    if (!is_over)
        kill(child, SIGKILL);
    close(in);
    int status = 0;
    pid_t ended;
    do
        ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    why[length] = 0;
    is_killed = is_over && ended == child && WIFSIGNALED(status);
    if (length)
        complain(what, why);
    else if (is_killed)
        complain(what, "the child that asks gangd was killed");
    return is_over && !length && !is_killed;
}

/* Whether it could be done. */
static int in_child(void act(const struct step *, int), const struct step *step, const char *what)
{
    int pipe_of[2];
    if (pipe2(pipe_of, O_CLOEXEC) < 0) {
        complain(what, strerror(errno));
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        close(pipe_of[0]);
        act(step, pipe_of[1]);
        _exit(0);
    }
    close(pipe_of[1]);
    if (child < 0) {
        complain(what, strerror(errno));
        close(pipe_of[0]);
        return 0;
    }
    return wait_for_child(child, pipe_of[0], what);
}

/* The calls of Slurm. */

/* Whether a comma-separated list has a word. */
static int has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || !at[length]))
            return length > 0;
    }
    return 0;
}

/* Steps of the partitions that plugstack.conf names are gangs without being asked for. */
static int is_wanted(spank_t spank, int count, char **arguments)
{
    static const char partitions[] = "partitions=";
    if (options.wanted != NOT_SAID)
        return options.wanted == YES;
    char *partition = variable(spank, "SLURM_JOB_PARTITION");
    int found = 0;
    for (int i = 0; partition && i < count; i++) {
        if (strncmp(arguments[i], partitions, sizeof partitions - 1) == 0)
            found |= has_word(arguments[i] + sizeof partitions - 1, partition);
    }
    free(partition);
    return found;
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    (void)count, (void)arguments;
    spank_context_t context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
        return 0;
    for (size_t i = 0; i < sizeof offered / sizeof *offered; i++) {
        if (spank_option_register(spank, &offered[i]) != ESPANK_SUCCESS)
            slurm_error("gang: --%s cannot be offered", offered[i].name);
    }
    return 0;
}

static void register_tasks(spank_t spank, const char *what, struct step *step)
{
    const char *why;
    step->names = calloc(HOSTS_MAX, sizeof(char *));
    step->cpus = calloc(HOSTS_MAX, sizeof *step->cpus);
    step->ranks = calloc(HOSTS_MAX, sizeof *step->ranks);
    if (!step->names || !step->cpus || !step->ranks)
        why = "no memory";
    else if (spank_get_item(spank, S_JOB_UID, &step->uid) != ESPANK_SUCCESS ||
             spank_get_item(spank, S_JOB_GID, &step->gid) != ESPANK_SUCCESS)
        why = "Slurm does not say whose it is";
    else
        why = step->id == BATCH_STEP ? read_batch(spank, step) : read_layout(spank, step);
    if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &step->groups, &step->group_count) !=
        ESPANK_SUCCESS)
        step->group_count = 0;
    if (spank_get_item(spank, S_JOB_ARRAY_ID, &step->array) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &step->array_task) != ESPANK_SUCCESS ||
        step->array_task >= NO_TASK)
        step->array = 0;
    if (why) {
        complain(what, why);
    } else {
        char unnamed[64];
        read_name(spank, step);
        snprintf(unnamed, sizeof unnamed, "time of step %u.%u is not accounted for", step->job,
                 step->id);
        if (in_child(register_as_user, step, what) && step->here == 0)
            in_child(name_as_root, step, unnamed);
    }
    for (size_t i = 0; step->names && i < step->hosts; i++)
        free(step->names[i]);
    free(step->names);
    free(step->cpus);
    free(step->ranks);
}

/* All tasks of this node are forked before the first one is announced here, and none of them
 * executes its program before the last one was. */
int slurm_spank_task_post_fork(spank_t spank, int count, char **arguments)
{
    struct step step = {0};
    uint32_t local = 0, nodes = 0;
    pid_t pid;
    char what[64];
    if (!is_wanted(spank, count, arguments) ||
        spank_get_item(spank, S_JOB_ID, &step.job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &step.id) != ESPANK_SUCCESS ||
        step.id == EXTERN_STEP || step.id == INTERACTIVE_STEP)
        return 0;
    snprintf(what, sizeof what, "step %u.%u is no gang", step.job, step.id);
    if (step.id == BATCH_STEP) {
        char *said = variable(spank, "SLURM_JOB_NUM_NODES");
        const char *at = said ? said : "";
        int32_t job_nodes = 0;
        int is_one = number(&at, 1, HOSTS_MAX, &job_nodes) == 0 && job_nodes == 1;
        free(said);
        if (!is_one)
            return 0;
        snprintf(what, sizeof what, "the script of job %u is no gang", step.job);
    }
    if (spank_get_item(spank, S_TASK_PID, &pid) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &local) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_NNODES, &nodes) != ESPANK_SUCCESS) {
        complain(what, "Slurm does not say which tasks it has");
        return 0;
    }
    if (local > TASKS_MAX) {
        complain(what, "a node has more tasks than can be added");
        return 0;
    }
    if (task_count < TASKS_MAX)
        tasks[task_count++] = pid;
    if (task_count == local)
        register_tasks(spank, what, &step);
    return 0;
}
