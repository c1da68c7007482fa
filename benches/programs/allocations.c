/* Allocates and frees, with some work in between: allocations COUNT ROUNDS CPU. Prints its CPU and wall time in
 * nanoseconds. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIVE 8192 /* blocks at once: 2.4 MB, so that most come from the allocator's lists */

static char *live[LIVE];

static long long now_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

__attribute__((noinline)) static void spin(long rounds)
{
	for (long round = 0; round < rounds; round++)
		__asm__ volatile("" ::"r"(round));
}

__attribute__((noinline)) static void replace(unsigned slot, size_t size)
{
	free(live[slot]);
	live[slot] = malloc(size);
	memset(live[slot], 1, size);
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 0, rounds = argc > 2 ? atol(argv[2]) : 0;
	long long wall_ns = now_ns(CLOCK_MONOTONIC), cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	unsigned random = 1;
	cpu_set_t only;

	CPU_ZERO(&only);
	CPU_SET(argc > 3 ? atoi(argv[3]) : 0, &only);
	sched_setaffinity(0, sizeof(only), &only);
	for (long at = 0; at < count; at++) {
		random = random * 1664525 + 1013904223;
		replace(random >> 19, 16 + (random >> 8) % 560);
		spin(rounds);
	}
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	wall_ns = now_ns(CLOCK_MONOTONIC) - wall_ns;
	printf("%lld %lld\n", cpu_ns, wall_ns);
	return 0;
}
