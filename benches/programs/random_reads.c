/*
 * Reads of 4 KiB past the page cache, at random, one after the other: random_reads FILE DEVICE. FILE has the reads so far
 * and the CPU time they took.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES 4096

struct progress {
	uint64_t reads;
	uint64_t cpu_ns;
};

static uint64_t cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(int count, char **arguments)
{
	int file = count == 3 ? open(arguments[1], O_RDWR | O_CREAT, 0600) : -1;
	int device = count == 3 ? open(arguments[2], O_RDONLY | O_DIRECT) : -1;
	uint64_t place = getpid(), blocks;
	struct progress *progress;
	void *buffer;

	if (file < 0 || device < 0 || ftruncate(file, sizeof(*progress)) || posix_memalign(&buffer, READ_BYTES, READ_BYTES))
		return 1;
	blocks = lseek(device, 0, SEEK_END) / READ_BYTES;
	progress = mmap(0, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (progress == MAP_FAILED || !blocks)
		return 1;
	for (;;) {
		place = place * 6364136223846793005ull + 1442695040888963407ull;
		if (pread(device, buffer, READ_BYTES, (place >> 33) % blocks * READ_BYTES) != READ_BYTES)
			return 1;
		progress->reads++;
		progress->cpu_ns = cpu_ns();
	}
}
