/* Texts of Slurm that gang_spank.c reads: names of hosts, numbers by host, words. */
#include "gang_spank.c"

static int failures;

static void expect(int holds, const char *what, const char *text)
{
    if (!holds) {
        fprintf(stderr, "failed: %s: %s\n", what, text);
        failures++;
    }
}

/* The names of a list, joined by blanks; null where it is refused. */
static const char *names_of(const char *list)
{
    static char joined[1024];
    struct step step = {.names = calloc(HOSTS_MAX, sizeof(char *))};
    int refused = expand_names(&step, list);
    joined[0] = 0;
    for (size_t i = 0; i < step.hosts; i++) {
        if (i < 20) {
            strcat(joined, i ? " " : "");
            strcat(joined, step.names[i]);
        }
        free(step.names[i]);
    }
    free(step.names);
    return refused ? NULL : joined;
}

static void names(const char *list, const char *wanted)
{
    const char *found = names_of(list);
    expect(found && wanted ? strcmp(found, wanted) == 0 : found == wanted, "names", list);
}

static void numbers(const char *list, size_t hosts, const char *wanted)
{
    char found[256] = "";
    int32_t values[16];
    if (expand_numbers(list, values, hosts) == 0) {
        for (size_t i = 0; i < hosts; i++)
            sprintf(found + strlen(found), i ? " %d" : "%d", (int)values[i]);
    }
    expect(strcmp(found, wanted) == 0, "numbers", list);
}

int main(void)
{
    names("node1", "node1");
    names("a,b.example.org", "a b.example.org");
    names("n[1-3,5]", "n1 n2 n3 n5");
    names("n[08-11]", "n08 n09 n10 n11");
    names("n[1-2]-ib,x", "n1-ib n2-ib x");
    names("r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2");
    names("n[1]", "n1");
    names("", NULL);
    names("a,", NULL);
    names("a,,b", NULL);
    names("n[1-2", NULL);
    names("n[2-1]", NULL);
    names("n[1-2x]", NULL);
    names("n[-2]", NULL);
    names("n[1-4097]", NULL);
    names("n[1-4000],m[1-97]", NULL);
    names("n[99999999999]", NULL);
    names("n[1-4000][1-4000][1-4000]", NULL);
    numbers("4", 1, "4");
    numbers("4(x2),3", 3, "4 4 3");
    numbers("1,2,3", 3, "1 2 3");
    numbers("4(x2)", 3, "");
    numbers("4(x4)", 3, "");
    numbers("4(x0)", 1, "");
    numbers("4(x2", 2, "");
    numbers("4,", 2, "");
    numbers("-1", 1, "");
    numbers("", 1, "");
    numbers("9999999999", 1, "");
    expect(has_word("shared,debug", "debug"), "a word of", "shared,debug");
    expect(!has_word("shared,debug", "share"), "no word of", "shared,debug");
    expect(!has_word("shared", ""), "no word of", "shared");
    expect(!has_word("", "shared"), "no word of", "an empty list");
    expect(set_class(0, "interactive", 0) == 0 && options.job_class == GANG_INTERACTIVE, "class",
           "interactive");
    expect(set_class(0, "fast", 0) < 0, "no class", "fast");
    expect(set_weight(0, "10000", 0) == 0 && set_weight(0, "10001", 0) < 0 &&
               set_weight(0, "5x", 0) < 0,
           "weights", "10000, 10001, 5x");
    expect(set_host_lost(0, "suspend", 0) == 0 && options.host_lost == GANG_SUSPEND_ALL, "lost",
           "suspend");
    return failures > 0;
}

/* The functions that slurmstepd has. */
spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int size)
{
    (void)spank, (void)name, (void)value, (void)size;
    return ESPANK_ENV_NOEXIST;
}
spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
    (void)spank, (void)item;
    return ESPANK_BAD_ARG;
}
spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
    (void)spank, (void)option;
    return ESPANK_BAD_ARG;
}
spank_context_t spank_context(void) { return S_CTX_ERROR; }
void slurm_error(const char *format, ...) { (void)format; }
void slurm_spank_log(const char *format, ...) { (void)format; }
