/*
 * fault_storm FILE [ROUNDS]: touches pages and gives them back, for ever or so many times. FILE holds two numbers of 8
 * bytes that say how far it is: rounds done, and nanoseconds of CPU time that they took. At its end it prints how many
 * minor faults the kernel has counted for it: since its fork, and during the rounds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Few enough for the second-level cache: what is measured is the fault, not the memory. */
#define PAGES 64
#define PAGE_BYTES 4096

struct progress {
	volatile uint64_t rounds;
	volatile uint64_t cpu_ns;
};

static uint64_t cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static long minor_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

__attribute__((noinline)) static void touch(volatile char *pages)
{
	for (int page = 0; page < PAGES; page++)
		pages[page * PAGE_BYTES] = 1;
}

int main(int count, char **arguments)
{
	int file = count >= 2 ? open(arguments[1], O_RDWR | O_CREAT, 0600) : -1;
	uint64_t rounds = count == 3 ? strtoull(arguments[2], NULL, 10) : UINT64_MAX;
	struct progress *progress;
	long before;
	char *pages;

	if (file < 0 || ftruncate(file, sizeof(*progress)))
		return 1;
	progress = mmap(0, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	pages = mmap(0, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (progress == MAP_FAILED || pages == MAP_FAILED || madvise(pages, PAGES * PAGE_BYTES, MADV_NOHUGEPAGE))
		return 1;
	before = minor_faults();
	for (uint64_t round = 0; round < rounds; round++) {
		touch(pages);
		madvise(pages, PAGES * PAGE_BYTES, MADV_DONTNEED);
		progress->rounds++;
		progress->cpu_ns = cpu_ns();
	}
	printf("%ld %ld\n", minor_faults(), minor_faults() - before);
}
