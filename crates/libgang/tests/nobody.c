/* Every call that asks the daemon, where the daemon is gone, or is another one than before. The
 * results are the two that are given, of gang.h and of LLNL's interface, and what the arguments
 * point to stays as it was. */
#include "rows.h"

#include <GangUserAPI.h>
#include <string.h>
#include <unistd.h>

/* Where calls put what they find, filled with what none of them puts there. */
static struct {
    gang_job *job;
    const gang_page *page;
    char name[256];
    gang_use use;
    gang_load load;
    struct GangUse llnl_use;
    struct GangLoad llnl_load;
} out, before;

static int is_changed(void)
{
    return memcmp(&out, &before, sizeof out) != 0;
}

static const char *modern, *llnl;
static int modern_code, llnl_code;

#define MODERN(function, ...) \
    row(#function " daemon none", modern, modern_code, (int)function(__VA_ARGS__))
#define LLNL(function, ...) \
    row(#function " daemon none", llnl, llnl_code, (int)function(__VA_ARGS__))

int main(int argc, char **argv)
{
    gang_spec spec;
    gang_change change;
    const char *const names[] = {"a", "b"};
    const int32_t cpus[] = {1, 1};
    gang_span span;
    gang_job *job;
    int64_t id, same = 0;
    char line;
    struct GangJobId old = {0, 0}, new_one = {0, 0};
    struct GangResources here, *list[] = {&here, NULL};

    if (argc != 5)
        return 2;
    modern = argv[1], modern_code = atoi(argv[2]);
    llnl = argv[3], llnl_code = atoi(argv[4]);
    memset(&here, 0, sizeof here);
    here.cpu_count = 1;
    NEEDED(GANG_OK, gang_spec_init(&spec));
    spec.cpus = 1;
    NEEDED(GANG_OK, gang_change_init(&change));
    NEEDED(GANG_OK, gang_span_init(&span));
    span.hosts = 2, span.names = names, span.cpus = cpus;
    NEEDED(GANG_OK, gang_register(&spec, &job));
    NEEDED(GANG_OK, gang_id(job, &id));
    NEEDED(gsSuccess, GangJobRegister(&old, CLASS_BATCH, list));
    /* Now it goes. */
    if (write(1, "daemon\n", 7) != 7 || read(0, &line, 1) != 1)
        return 2;

    memset(&out, 0x55, sizeof out);
    out.use.size = sizeof out.use, out.load.size = sizeof out.load;
    before = out;
    setenv("GANG_JOB", "1", 1);
    MODERN(gang_register, &spec, &out.job);
    MODERN(gang_register_span, &spec, &span, &out.job);
    MODERN(gang_host_name, out.name, sizeof out.name);
    MODERN(gang_adopt, &spec, getpid(), &out.job);
    MODERN(gang_open, id, &out.job);
    MODERN(gang_current, &out.job);
    MODERN(gang_add_process, job, 0);
    MODERN(gang_remove_process, job, 0);
    MODERN(gang_set_slurm_job, 0, "12");
    MODERN(gang_add_thread, job, 0);
    MODERN(gang_remove_thread, job, 0);
    MODERN(gang_set_class, job, GANG_BATCH);
    MODERN(gang_resize, job, &change);
    MODERN(gang_set_signals, job, 1);
    MODERN(gang_suspend, job);
    MODERN(gang_resume, job);
    MODERN(gang_job_progress, job, 1, 2);
    MODERN(gang_get_use, job, &out.use);
    MODERN(gang_get_load, &out.load);
    MODERN(gang_page_open, job, &out.page);
    LLNL(GangJobRegister, &new_one, CLASS_BATCH, list);
    LLNL(GangJobRegister, &old, CLASS_BATCH, list);
    NEEDED(0, new_one.job != 0);
    LLNL(GangProcAdd, &old, PROC_ID, getpid());
    LLNL(GangProcRemove, &old, PROC_ID, getpid());
    LLNL(GangJobClass, &old, CLASS_BATCH);
    LLNL(GangJobResources, &old, list);
    LLNL(GangJobUse, &old, &out.llnl_use);
    LLNL(GangMachineLoad, NULL, &out.llnl_load);
    LLNL(GangSignalsDisable, &old);
    LLNL(GangSignalsEnable, &old);
    NEEDED(0, strlen(gang_error()) == 0);
    /* Calls that ask nobody. */
    NEEDED(GANG_OK, gang_id(job, &same));
    NEEDED(1, same == id);
    NEEDED(GANG_OK, gang_close(job));
    return 0;
}
