/* Threads that sleep at the end of a random path of calls, each another one: paths THREADS SECONDS. Prints how often. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEPTH 24 /* 2^24 paths */
#define NAP_NS 400000

static uint64_t naps;
static time_t end_s;

static void nap(void)
{
	struct timespec time = {0, NAP_NS};

	nanosleep(&time, NULL);
}

static void turn(uint64_t path, int left);

__attribute__((noinline)) static void to_the_left(uint64_t path, int left)
{
	turn(path >> 1, left - 1);
	__asm__ volatile("");
}

__attribute__((noinline)) static void to_the_right(uint64_t path, int left)
{
	turn(path >> 1, left - 1);
	__asm__ volatile("" ::: "memory");
}

__attribute__((always_inline)) static inline void turn(uint64_t path, int left)
{
	if (!left)
		nap();
	else if (path & 1)
		to_the_left(path, left);
	else
		to_the_right(path, left);
	__asm__ volatile("" ::: "memory");
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void *wander(void *seed)
{
	uint64_t state = (uint64_t)seed * 0x9e3779b97f4a7c15;

	while (time(NULL) < end_s) {
		turn(next_random(&state), DEPTH);
		__atomic_add_fetch(&naps, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	int threads = count == 3 ? atoi(arguments[1]) : 0;
	pthread_t ids[256];

	if (threads < 1 || threads > 256)
		return 2;
	end_s = time(NULL) + atoi(arguments[2]);
	for (int64_t i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, wander, (void *)(i + 1)))
			return 1;
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("%llu\n", (unsigned long long)naps);
	return 0;
}
