/*
 * Loads a library as interpreters load modules, without its symbols for others, and runs its
 * program.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*program)(int, char **) = NULL;
    if (module)
        *(void **)&program = dlsym(module, "ranks");
    if (!program) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return program(argc - 1, argv + 1);
}
