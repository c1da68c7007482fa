/*
 * deep FRAMES FILE: works for ever at the end of a stack FRAMES deep. FILE holds two numbers of 8 bytes that say how far
 * it is: pieces of work done, and nanoseconds of CPU time that they took.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* About 100 µs: reading the clock between two pieces takes well under a percent. */
#define STEPS_A_PIECE 50000
/* 16 KiB: half of a first-level cache, so that what an interrupt evicts shows. */
#define TABLE_WORDS 2048

struct progress {
	volatile uint64_t pieces;
	volatile uint64_t cpu_ns;
};

static uint64_t table[TABLE_WORDS];

static uint64_t cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* gcc leaves the frame pointer of functions that call nothing alone, whatever its options say, unless it is asked for. */
#define KEEP_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

__attribute__((noinline)) static void do_piece(void)
{
	uint64_t state = table[0];

	KEEP_FRAME();
	for (int step = 0; step < STEPS_A_PIECE; step++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		table[(state >> 48) % TABLE_WORDS] += state;
	}
}

__attribute__((noinline)) static void work(struct progress *progress)
{
	for (;;) {
		do_piece();
		progress->pieces++;
		progress->cpu_ns = cpu_ns();
	}
}

__attribute__((noinline)) static void descend(struct progress *progress, int frames)
{
	if (frames > 0)
		descend(progress, frames - 1);
	else
		work(progress);
	__asm__ volatile(""); /* no tail call */
}

/* Frames of our own above descend(): main, work, do_piece; the C library adds one or two below main. */
int main(int count, char **arguments)
{
	int file = count == 3 ? open(arguments[2], O_RDWR | O_CREAT, 0600) : -1;
	struct progress *progress;

	if (file < 0 || ftruncate(file, sizeof(*progress)))
		return 1;
	progress = mmap(0, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (progress == MAP_FAILED)
		return 1;
	descend(progress, atoi(arguments[1]) - 5);
}
