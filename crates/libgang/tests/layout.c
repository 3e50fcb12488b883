/* The structs and numbers of gang.h, for the bindings to be compared with. */
#include <gang.h>
#include <stdio.h>

#define MEMBER(of, name)                                                          \
    printf("%s.%s %zu %zu\n", #of, #name, offsetof(gang_##of, name), \
           sizeof((gang_##of *)0)->name)
#define SIZE(of) printf("%s %zu\n", #of, sizeof(gang_##of))
#define NUMBER(name) printf("%s %d\n", #name, (int)GANG_##name)

int main(void)
{
    MEMBER(spec, size), MEMBER(spec, name), MEMBER(spec, cpus), MEMBER(spec, min_cpus);
    MEMBER(spec, job_class), MEMBER(spec, weight), MEMBER(spec, mem_bytes);
    MEMBER(spec, disk_bytes), MEMBER(spec, wait), MEMBER(spec, signals), SIZE(spec);
    MEMBER(change, size), MEMBER(change, cpus), MEMBER(change, min_cpus);
    MEMBER(change, weight), MEMBER(change, mem_bytes), MEMBER(change, disk_bytes), SIZE(change);
    MEMBER(use, size), MEMBER(use, state), MEMBER(use, processes), MEMBER(use, threads);
    MEMBER(use, slots), MEMBER(use, in_slot_ns), MEMBER(use, cpu_time_ns);
    MEMBER(use, share_wanted), MEMBER(use, share_had), MEMBER(use, mem_used_bytes), SIZE(use);
    MEMBER(load, size), MEMBER(load, cpus), MEMBER(load, jobs), MEMBER(load, load_average);
    MEMBER(load, mem_total_bytes), MEMBER(load, mem_free_bytes);
    MEMBER(load, mem_promised_bytes), MEMBER(load, disk_free_bytes);
    MEMBER(load, disk_promised_bytes), SIZE(load);
    MEMBER(page, magic), MEMBER(page, version), MEMBER(page, running), MEMBER(page, on_cpus);
    MEMBER(page, until_ns), MEMBER(page, slice_ns), MEMBER(page, cpus);
    MEMBER(page, validity), MEMBER(page, slots), SIZE(page);
#ifdef BARRIERS /* Python has none. */
    SIZE(barrier), SIZE(mutex);
#endif
    NUMBER(INVALID), NUMBER(NO_DAEMON), NUMBER(NO_SUCH_JOB), NUMBER(NO_SUCH_PROCESS);
    NUMBER(NOT_PERMITTED), NUMBER(LIMIT), NUMBER(NOT_ENOUGH), NUMBER(NO_ANSWER), NUMBER(FAILED);
    NUMBER(UNSUPPORTED);
    NUMBER(EXPRESS), NUMBER(INTERACTIVE), NUMBER(BATCH), NUMBER(STANDBY);
    NUMBER(STARTING), NUMBER(WAITING), NUMBER(RUNNING), NUMBER(SLEEPING), NUMBER(IDLE);
    NUMBER(SUSPENDED);
    NUMBER(NOT_SCHEDULED);
    NUMBER(TOO_MANY_THREADS);
    NUMBER(TOO_FEW_CPUS);
    return 0;
}
