/*
 * Two processes that take turns on one CPU, through two pipes: switches FILE SPIN. Between two turns each counts to SPIN.
 * The file has the rounds so far, two switches each, and the first process's CPU time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

struct progress {
	uint64_t rounds;
	uint64_t cpu_ns;
};

static uint64_t cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void spin(uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++)
		__asm__ volatile("" : : "r"(i));
}

/* Gives the turn away, and waits until it is back. */
__attribute__((noinline)) static void pass(int to, int from)
{
	char byte = 0;

	if (write(to, &byte, 1) != 1 || read(from, &byte, 1) != 1)
		exit(0);
}

int main(int count, char **arguments)
{
	int file = count == 3 ? open(arguments[1], O_RDWR | O_CREAT, 0600) : -1;
	uint64_t rounds = count == 3 ? strtoull(arguments[2], NULL, 10) : 0;
	struct progress *progress;
	int there[2], back[2];

	if (file < 0 || ftruncate(file, sizeof(*progress)) || pipe(there) || pipe(back))
		return 1;
	progress = mmap(0, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (progress == MAP_FAILED)
		return 1;
	if (!fork()) {
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
				return 0;
			spin(rounds);
		}
	}
	for (;;) {
		pass(there[1], back[0]);
		spin(rounds);
		progress->rounds++;
		if (progress->rounds % 1024 == 0)
			progress->cpu_ns = cpu_ns();
	}
}
