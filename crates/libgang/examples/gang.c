/* A program that makes itself a gang, and looks at its slots without a system call.
 *
 *     cc gang.c -lgang -o gang-example && ./gang-example
 */
#include <gang.h>
#include <stdio.h>

static int failed(const char *what, gang_result result)
{
    fprintf(stderr, "%s: %s: %s\n", what, gang_result_text(result), gang_error());
    return 1;
}

int main(void)
{
    gang_spec spec;
    gang_job *job;
    const gang_page *page;
    gang_result result;

    gang_spec_init(&spec);
    spec.name = "example";
    spec.cpus = 1;
    if ((result = gang_register(&spec, &job)) != GANG_OK)
        return failed("register", result);
    if ((result = gang_add_process(job, 0)) != GANG_OK)
        return failed("add this process", result);
    if ((result = gang_page_open(job, &page)) != GANG_OK)
        return failed("open the slot page", result);

    /* Work, until some slots of the job have begun and ended. */
    int begun = 0, ran = 0;
    while (begun < 3) {
        int runs = gang_page_running(page);
        begun += runs && !ran;
        ran = runs;
    }

    gang_use use = {.size = sizeof use};
    if ((result = gang_get_use(job, &use)) != GANG_OK)
        return failed("use", result);
    printf("%d processes, %lld ns of CPU, %d slots seen\n", use.processes,
           (long long)use.cpu_time_ns, begun);

    gang_page_close(page);
    gang_close(job);
    return 0;
}
