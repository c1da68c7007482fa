/* Threads that sleep at the end of a random path of calls, each another one, so often a second all together:
 * paths THREADS SECONDS RATE. Prints how often they did. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEPTH 24 /* 2^24 paths */
#define NS_PER_S 1000000000

static uint64_t naps;
static uint64_t pause_ns; /* of a thread, from nap to nap */
static uint64_t end_ns;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static __thread uint64_t next_ns;

static void nap(void)
{
	struct timespec time = {(time_t)(next_ns / NS_PER_S), (long)(next_ns % NS_PER_S)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
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

	for (next_ns = now_ns(); next_ns < end_ns; next_ns += pause_ns) {
		turn(next_random(&state), DEPTH);
		__atomic_add_fetch(&naps, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	int threads = count == 4 ? atoi(arguments[1]) : 0;
	int rate = count == 4 ? atoi(arguments[3]) : 0;
	pthread_t ids[256];

	if (threads < 1 || threads > 256 || rate < 1)
		return 2;
	pause_ns = (uint64_t)threads * NS_PER_S / (uint64_t)rate;
	end_ns = now_ns() + strtoul(arguments[2], NULL, 10) * NS_PER_S;
	for (int64_t i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, wander, (void *)(i + 1)))
			return 1;
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("%llu\n", (unsigned long long)naps);
	return 0;
}
