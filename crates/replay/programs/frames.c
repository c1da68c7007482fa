/*
 * Stacks of one kind, again and again, to be walked: `frames KIND`. Compiled with -O2 -fomit-frame-pointer, it has
 * frames of all sizes, and no frame pointers but where the compiler needs them.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned long sink;

static NOINLINE unsigned long work(unsigned long n)
{
	unsigned long sum = n;

	for (unsigned long i = 0; i < 50; i++)
		sum = sum * 31 + (sum >> 7) + i;
	return sum;
}

static NOINLINE unsigned long recurse(int depth, unsigned long n)
{
	unsigned long saved[4] = { n, n + 1, n + 2, n + 3 };

	if (depth == 0)
		return work(n);
	sink += recurse(depth - 1, n * 3 + sink);
	return saved[sink % 4] + work(n);
}

static void deep(void)
{
	sink += recurse(60, sink);
}

static void endless(void)
{
	sink += recurse(400, sink);
}

static NOINLINE unsigned long use(volatile char *room, unsigned long bytes)
{
	for (unsigned long i = 0; i < bytes; i += 64)
		room[i] = (char)i;
	return work(bytes) + room[0];
}

static NOINLINE unsigned long allocate(unsigned long n)
{
	return use(alloca(n % 3000 + 16), n % 3000 + 16) + work(n);
}

static void dynamic(void)
{
	sink += allocate(sink) + allocate(sink * 7);
}

/* Aligned to 64 bytes: the compiler addresses what it was given through another register, and keeps it on the stack. */
static NOINLINE unsigned long realign(unsigned long n, ...)
{
	volatile char aligned[128] __attribute__((aligned(64)));
	char *dynamic = alloca(n % 500 + 1);

	use(dynamic, n % 500 + 1);
	return use(aligned, sizeof(aligned)) + work(n) + (unsigned long)dynamic % 3;
}

static void realigned(void)
{
	sink += realign(sink, 1, 2.0) + realign(sink * 3, 4);
}

static int compare(const void *left, const void *right)
{
	return (int)(work(*(const int *)left) % 100) - *(const int *)right % 100;
}

static void sorted(void)
{
	int numbers[64];

	for (int i = 0; i < 64; i++)
		numbers[i] = (int)(sink + i * 7919) % 1000;
	qsort(numbers, 64, sizeof(int), compare);
	sink += numbers[3];
}

static void strings(void)
{
	char text[600], copy[600];

	memset(text, 'a' + (int)(sink % 20), sizeof(text));
	text[599] = 0;
	memcpy(copy, text, sizeof(text));
	sink += strlen(copy) + (strchr(text, 'z') != 0) + (unsigned long)strcmp(text, copy) + (strstr(copy, "bbb") != 0);
	sink += (unsigned long)snprintf(copy, sizeof(copy), "%lu %s %f", sink, "text", 1.5);
	free(strdup(text));
}

static void handle(int number)
{
	sink += recurse(3, (unsigned long)number);
}

static void install(int flags)
{
	struct sigaction action = { .sa_handler = handle, .sa_flags = flags };

	sigaction(SIGUSR1, &action, 0);
}

static NOINLINE unsigned long interrupt(int depth)
{
	if (depth > 0)
		return interrupt(depth - 1) + work(sink);
	raise(SIGUSR1);
	return work(sink);
}

static void signals(void)
{
	install(0);
	sink += interrupt(5);
}

static void alternate(void)
{
	static char room[65536];
	stack_t stack = { .ss_sp = room, .ss_size = sizeof(room) };

	sigaltstack(&stack, 0);
	install(SA_ONSTACK);
	sink += interrupt(5);
}

/* Interrupted anywhere, not at a call. */
static void ticked(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec often = { .it_interval = { .tv_nsec = 200000 }, .it_value = { .tv_nsec = 200000 } };
	timer_t timer;

	install(0);
	timer_create(CLOCK_MONOTONIC, &event, &timer);
	timer_settime(timer, 0, &often, 0);
	for (int i = 0; i < 20000; i++)
		sink += recurse(4, sink);
	timer_delete(timer);
}

static void *work_in_thread(void *unused)
{
	for (int i = 0; i < 200000; i++)
		sink += recurse(6, sink);
	return unused;
}

static void threads(void)
{
	pthread_t thread;

	pthread_create(&thread, 0, work_in_thread, 0);
	work_in_thread(0);
	pthread_join(thread, 0);
}

static void clocks(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	sink += (unsigned long)now.tv_nsec + (unsigned long)time(0);
}

#define MAX_UNBOUND 16
extern unsigned long got[] __asm__("_GLOBAL_OFFSET_TABLE_"); /* three words of the loader's, then a word a function */
static unsigned long unbound[MAX_UNBOUND];

static __attribute__((constructor)) void remember_unbound(void)
{
	memcpy(unbound, got + 3, sizeof(unbound));
}

/* The loader looks the functions up anew each time: their words lead to entries of the PLT again, 16 bytes each. */
static void bound(void)
{
	for (int i = 0; i < MAX_UNBOUND && unbound[i] == unbound[0] + 16 * (unsigned)i; i++)
		got[3 + i] = unbound[i];
	free(0);
	qsort(unbound, 0, sizeof(unbound[0]), compare);
}

static const struct {
	const char *name;
	void (*run)(void);
} kinds[] = {
	{ "deep", deep },	    { "endless", endless }, { "dynamic", dynamic }, { "realigned", realigned },
	{ "sorted", sorted },	    { "strings", strings }, { "signals", signals }, { "alternate", alternate },
	{ "ticked", ticked },	    { "threads", threads }, { "clocks", clocks },    { "bound", bound },
};

int main(int count, char **arguments)
{
	if (write(STDOUT_FILENO, "\n", 1) != 1) /* it is begun: what runs before has no unwinding information (_init) */
		return 1;
	for (unsigned kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++)
		while (count == 2 && strcmp(arguments[1], kinds[kind].name) == 0)
			kinds[kind].run();
	fprintf(stderr, "usage: frames KIND\n");
	return 2;
}
