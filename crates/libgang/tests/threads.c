/* Threads of OpenMP, pthreads and a child; each process says in which job it is. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *who)
{
    char line[4096];
    FILE *groups = fopen("/proc/self/cgroup", "r");
    while (groups && fgets(line, sizeof line, groups))
        if (strncmp(line, "0::", 3) == 0)
            printf("%s in %s", who, line + 3);
    fclose(groups);
    fflush(stdout);
}

static void *spin(void *sum)
{
    for (volatile int i = 0; i < 10000000; i++)
        ;
    return sum;
}

int main(void)
{
    pthread_t thread;
    long sum = 0;
    pthread_create(&thread, NULL, spin, NULL);
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < 1000; i++)
        sum += i;
    pthread_join(thread, NULL);
    say("parent");
    if (fork() == 0) {
        say("child");
        _exit(0);
    }
    int status = 1;
    wait(&status);
    return status || sum != 499500;
}
