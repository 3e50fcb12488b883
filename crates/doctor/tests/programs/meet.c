/*
 * Two threads that meet at a spinning barrier, after a little work each, until they are killed, for
 * ten minutes at most. With "apart", or once SIGUSR1 has come, they work apart and meet no more;
 * with "yield" they give their CPUs away while they wait; with "often" they have so little work
 * that they wait at each meeting, however alike these CPUs are; with "uneven" one has three times
 * the work, so that the other waits for two thirds of its time, however fast they are.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static atomic_uint arrived, generation;
static atomic_int apart;
static int yields;
static int little = 4000;
static _Thread_local int times = 1;

static void go_apart(int signal)
{
	(void)signal;
	atomic_store(&apart, 1);
	/* Waiting threads go on. */
	atomic_fetch_add(&generation, 1);
}

static void *meet(void *start)
{
	volatile unsigned long sum = 0;

	while (time(0) - *(time_t *)start < 600) {
		for (int i = 0; i < little * times; i++)
			sum += i;
		unsigned now = atomic_load(&generation);
		if (atomic_load(&apart))
			continue;
		if (atomic_fetch_add(&arrived, 1) == 1) {
			atomic_store(&arrived, 0);
			atomic_fetch_add(&generation, 1);
		} else {
			while (atomic_load(&generation) == now)
				if (yields)
					sched_yield();
		}
	}
	return 0;
}

int main(int arguments, char **argument)
{
	time_t start = time(0);
	pthread_t other;

	signal(SIGUSR1, go_apart);
	if (arguments > 1 && !strcmp(argument[1], "apart"))
		go_apart(0);
	if (arguments > 1 && !strcmp(argument[1], "uneven"))
		times = 3;
	if (arguments > 1 && !strcmp(argument[1], "often"))
		little = 100;
	yields = arguments > 1 && !strcmp(argument[1], "yield");
	pthread_create(&other, 0, meet, &start);
	meet(&start);
	return 0;
}
