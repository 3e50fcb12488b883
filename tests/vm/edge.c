/* Of the check `hosts`: when does a guest switch, and how late are its timers?
 *
 *   edge SLICE_NS SECONDS          spins, and writes a byte to QEMU's debug port whenever it begins
 *                                  to run after a pause: the number of the slice, by the guest's
 *                                  clock. The machine outside stamps the byte.
 *   edge --timer SLICE_NS SECONDS  how long after the begin of each slice a sleeper wakes
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <time.h>

#define PORT 0xe9
#define MOST 100000

static long long utc_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static int timer(long long slice_ns, long long end_ns)
{
    static long long late[MOST];
    int n = 0;
    long long at_ns;
    for (at_ns = utc_ns(); at_ns < end_ns && n < MOST; n++) {
        struct timespec at;
        at_ns = (at_ns / slice_ns + 1) * slice_ns;
        at.tv_sec = at_ns / 1000000000;
        at.tv_nsec = at_ns % 1000000000;
        while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL))
            ;
        late[n] = utc_ns() - at_ns;
    }
    if (n == 0)
        return 1;
    qsort(late, n, sizeof *late, by_size);
    printf("p50 %lld µs, p99 %lld µs late\n", late[n / 2] / 1000, late[n * 99 / 100] / 1000);
    return 0;
}

int main(int argc, char **argv)
{
    int is_timer = argc == 4 && strcmp(argv[1], "--timer") == 0;
    long long slice_ns, end_ns, now_ns, last_ns;
    if (argc != 3 + is_timer)
        return 2;
    slice_ns = atoll(argv[argc - 2]);
    end_ns = utc_ns() + atoll(argv[argc - 1]) * 1000000000LL;
    if (slice_ns <= 0)
        return 2;
    if (is_timer)
        return timer(slice_ns, end_ns);
    if (ioperm(PORT, 1, 1)) {
        perror("ioperm");
        return 1;
    }
    for (last_ns = now_ns = utc_ns(); now_ns < end_ns; last_ns = now_ns) {
        now_ns = utc_ns();
        /* A switch may be a little early. */
        if (now_ns - last_ns > slice_ns / 2)
            outb((unsigned char)((now_ns + slice_ns / 8) / slice_ns), PORT);
    }
    return 0;
}
