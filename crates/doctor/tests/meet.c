/* Two threads that meet at a spinning barrier, after a little work each, until they are killed. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static atomic_uint arrived, generation;

static void *meet(void *start)
{
	volatile unsigned long sum = 0;

	while (time(0) - *(time_t *)start < 60) {
		for (int i = 0; i < 20000; i++)
			sum += i;
		unsigned now = atomic_load(&generation);
		if (atomic_fetch_add(&arrived, 1) == 1) {
			atomic_store(&arrived, 0);
			atomic_fetch_add(&generation, 1);
		} else {
			while (atomic_load(&generation) == now)
				;
		}
	}
	return 0;
}

int main(void)
{
	time_t start = time(0);
	pthread_t other;

	pthread_create(&other, 0, meet, &start);
	meet(&start);
	return 0;
}
