/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Sampling of allocations inside of a program, which is started with this library in LD_PRELOAD (`record -e heap`).
 *
 * Each thread counts the bytes that it allocates down from a random number, exponentially distributed around
 * $STACKHOUND_HEAP_INTERVAL: so an allocation of so many bytes is chosen with probability 1 - exp(-bytes / interval),
 * whatever was before it. For a chosen one, and for its end, an empty function is called on which the kernel half has a
 * uprobe (bpf/heap.bpf.c), which walks the stack. All others cost a count and two look-ups.
 *
 * What is not in the kernel half: no locks, no files, no memory but its own, no function of the C library on the way of
 * an allocation but the one that it stands for. The state of a process is wiped in the child of a fork by the kernel
 * (MADV_WIPEONFORK), so that a child counts only what is its own.
 *
 * It needs no more of the C library than dlsym, and so goes with any (crates/capture/build.rs links it to glibc 2.17).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NOINLINE __attribute__((noinline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* --- What the kernel half has uprobes on -------------------------------------------------------------------------- */

/*
 * The kernel does not have to execute a nop elsewhere. On x86 it has to be one byte long: Linux 6.18 makes a call of one
 * of five, to a page that the child of a fork does not have, and the child dies of it.
 */
#define PROBED __asm__ volatile("nop")

/*
 * `program` tells programs of one process apart (exec); `id` its chosen allocations, 0 for one whose end cannot be told.
 * `calls` and `bytes`: of all allocations that nothing was said of yet, chosen or not.
 */
EXPORT NOINLINE void stackhound_heap_allocated(uint64_t program, uint64_t id, uint64_t size, uint64_t calls,
					       uint64_t bytes)
{
	PROBED;
	__asm__ volatile("" ::"r"(program), "r"(id), "r"(size), "r"(calls), "r"(bytes));
}

EXPORT NOINLINE void stackhound_heap_freed(uint64_t program, uint64_t id)
{
	PROBED;
	__asm__ volatile("" ::"r"(program), "r"(id));
}

/* At the program's end. */
EXPORT NOINLINE void stackhound_heap_counted(uint64_t program, uint64_t calls, uint64_t bytes)
{
	PROBED;
	__asm__ volatile("" ::"r"(program), "r"(calls), "r"(bytes));
}

/* --- State -------------------------------------------------------------------------------------------------------- */

#define MAX_THREADS 16384       /* at once; allocations of others are not seen */
#define FILTER_SLOTS (1U << 16) /* stays in the second-level cache */
#define FILTER_FULL UINT8_MAX
#define CHOSEN_SLOTS (1U << 20) /* 512 GiB at the default interval; pages that nothing is put in take no memory */
#define PROBES 16               /* places that an address may be in */
#if defined(__x86_64__)
#define LARGEST_PAGE 4096
#else
#define LARGEST_PAGE 65536
#endif

/* One for each thread, a cache line each. */
struct thread {
	int64_t until_chosen; /* bytes; below 0 in the allocation that is chosen */
	int64_t drawn;        /* what it began with */
	uint64_t calls;       /* since then */
	uint64_t random;      /* 0: it has not begun, or its process is a fork's child */
	uint32_t is_taken;
	uint32_t reserved[7];
};

struct chosen {
	uintptr_t address; /* 0: free; CLAIMED: about to be */
	uint64_t id;
};
#define CLAIMED 1

static struct {
	struct thread threads[MAX_THREADS];
	struct chosen chosen[CHOSEN_SLOTS];
	uint8_t filter[FILTER_SLOTS]; /* how many chosen addresses each slot stands for */
	uint64_t program;
	uint64_t last_id;
	uint64_t left_calls, left_bytes; /* of threads that have ended */
	uint32_t threads_used;
	uint32_t is_over;
	pid_t pid; /* of the process whose state it is, not of a child that borrows it (vfork) */
} __attribute__((aligned(LARGEST_PAGE))) state; /* whole pages, wiped in the child of a fork */

static uint64_t interval; /* 0: nothing is sampled */
static pthread_key_t key;
static bool has_key;

static __thread struct thread *self __attribute__((tls_model("initial-exec")));

/* Only programs with threads have these with older C libraries. */
extern __typeof__(pthread_key_create) pthread_key_create __attribute__((weak));
extern __typeof__(pthread_setspecific) pthread_setspecific __attribute__((weak));

/* --- Random numbers ----------------------------------------------------------------------------------------------- */

/* Source: splitmix64, Steele et al. 2014, https://doi.org/10.1145/2714064.2660195 */
static uint64_t mix(uint64_t bits)
{
	bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
	bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
	return bits ^ (bits >> 31);
}

static uint64_t next_random(struct thread *thread)
{
	thread->random += 0x9e3779b97f4a7c15;
	if (!thread->random)
		thread->random = 1;
	return mix(thread->random);
}

static uint64_t seed(const void *address)
{
	struct timespec now = {0};

	clock_gettime(CLOCK_MONOTONIC, &now);
	return mix((uintptr_t)address ^ (uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec) | 1;
}

/* -ln(u) for u = 2^-k m with m in [1, 2): k ln 2 - ln m; the series of atanh is exact to 1e-9 there. */
static double minus_log(uint64_t numerator_of_53_bits)
{
	int above = 63 - __builtin_clzll(numerator_of_53_bits);
	double m = (double)numerator_of_53_bits / (double)(1ULL << above);
	double s = (m - 1) / (m + 1), square = s * s;
	double series =
		1 + square * (1. / 3 +
			      square * (1. / 5 +
					square * (1. / 7 +
						  square * (1. / 9 +
							    square * (1. / 11 +
								      square * (1. / 13 +
										square * (1. / 15 + square / 17)))))));

	return (53 - above) * 0.69314718055994531 - 2 * s * series;
}

static void draw(struct thread *thread)
{
	double bytes = minus_log((next_random(thread) >> 11) | 1) * (double)interval;

	thread->drawn = bytes < (double)INT64_MAX / 4 ? (int64_t)bytes : INT64_MAX / 4;
	thread->until_chosen = thread->drawn;
	thread->calls = 0;
}

/* --- Threads ------------------------------------------------------------------------------------------------------ */

/* What all allocations have come to since the last draw: one byte more each was counted down. */
static uint64_t bytes_since(const struct thread *thread)
{
	return (uint64_t)(thread->drawn - thread->until_chosen) - thread->calls;
}

static bool take(struct thread *thread)
{
	uint32_t is_free = 0;

	return __atomic_compare_exchange_n(&thread->is_taken, &is_free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static struct thread *find_place(void)
{
	uint32_t used = __atomic_load_n(&state.threads_used, __ATOMIC_RELAXED);

	for (uint32_t at = 0; at < used && at < MAX_THREADS; at++)
		if (!__atomic_load_n(&state.threads[at].is_taken, __ATOMIC_RELAXED) && take(&state.threads[at]))
			return &state.threads[at];
	for (;;) {
		used = __atomic_fetch_add(&state.threads_used, 1, __ATOMIC_RELAXED);
		if (used >= MAX_THREADS)
			return 0;
		if (take(&state.threads[used]))
			return &state.threads[used];
	}
}

/* NULL where nothing is sampled. Also in a fork's child, whose place has been wiped. */
static NOINLINE struct thread *begin_thread(void)
{
	struct thread *thread = interval ? find_place() : 0;

	if (!thread)
		return 0;
	self = thread;
	state.pid = getpid();
	thread->random = seed(thread);
	draw(thread);
	if (has_key)
		pthread_setspecific(key, thread);
	return thread;
}

static void end_thread(void *place)
{
	struct thread *thread = place;

	self = 0;
	if (!thread->random)
		return; /* wiped: it was another process's */
	__atomic_fetch_add(&state.left_calls, thread->calls, __ATOMIC_RELAXED);
	__atomic_fetch_add(&state.left_bytes, bytes_since(thread), __ATOMIC_RELAXED);
	thread->calls = 0;
	thread->until_chosen = thread->drawn;
	thread->random = 0;
	__atomic_store_n(&thread->is_taken, 0, __ATOMIC_RELEASE);
}

/* --- Chosen allocations ------------------------------------------------------------------------------------------- */

static uint32_t hash(uintptr_t address)
{
	return (uint32_t)((address >> 4) * 0x9e3779b97f4a7c15 >> 32);
}

static uint8_t *filter_of(uintptr_t address)
{
	return &state.filter[hash(address) % FILTER_SLOTS];
}

/* A slot that has once been full stays so: how many it stands for is not known any more. */
static void count_in_filter(uintptr_t address, int change)
{
	uint8_t *slot = filter_of(address);
	uint8_t before = __atomic_load_n(slot, __ATOMIC_RELAXED);

	while (before != FILTER_FULL &&
	       !__atomic_compare_exchange_n(slot, &before, before + change, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static struct chosen *place_of(uintptr_t address, uint32_t probe)
{
	return &state.chosen[(hash(address) + probe) % CHOSEN_SLOTS];
}

/* False when there is no room. */
static bool remember(uintptr_t address, uint64_t id)
{
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		struct chosen *place = place_of(address, probe);
		uintptr_t none = 0;

		if (__atomic_load_n(&place->address, __ATOMIC_RELAXED) ||
		    !__atomic_compare_exchange_n(&place->address, &none, CLAIMED, false, __ATOMIC_ACQUIRE,
						 __ATOMIC_RELAXED))
			continue;
		place->id = id;
		__atomic_store_n(&place->address, address, __ATOMIC_RELEASE);
		count_in_filter(address, 1);
		return true;
	}
	return false;
}

/* The id of the chosen allocation at an address, which is none from now on; 0 when it was not chosen. */
static NOINLINE uint64_t forget(uintptr_t address)
{
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		struct chosen *place = place_of(address, probe);
		uint64_t id;

		if (__atomic_load_n(&place->address, __ATOMIC_ACQUIRE) != address)
			continue;
		id = place->id;
		__atomic_store_n(&place->address, 0, __ATOMIC_RELEASE);
		count_in_filter(address, -1);
		return id;
	}
	return 0;
}

static inline bool may_be_chosen(const void *address)
{
	return __atomic_load_n(filter_of((uintptr_t)address), __ATOMIC_RELAXED);
}

/* --- Telling ------------------------------------------------------------------------------------------------------ */

static uint64_t program_id(void)
{
	uint64_t program = __atomic_load_n(&state.program, __ATOMIC_RELAXED), none = 0;

	if (program)
		return program;
	program = seed(&state);
	if (__atomic_compare_exchange_n(&state.program, &none, program, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return program;
	return none; /* another thread was faster */
}

static NOINLINE void choose(struct thread *thread, void *address, size_t size)
{
	uint64_t id = __atomic_add_fetch(&state.last_id, 1, __ATOMIC_RELAXED);
	uint64_t calls = thread->calls + __atomic_exchange_n(&state.left_calls, 0, __ATOMIC_RELAXED);
	uint64_t bytes = bytes_since(thread) + __atomic_exchange_n(&state.left_bytes, 0, __ATOMIC_RELAXED);

	draw(thread);
	if (!remember((uintptr_t)address, id))
		id = 0;
	if (__atomic_load_n(&state.is_over, __ATOMIC_RELAXED))
		calls = bytes = 0; /* told already */
	stackhound_heap_allocated(program_id(), id, size, calls, bytes);
}

/* The first allocation of a thread, one that is chosen, or one of a fork's child. */
static NOINLINE void look_closer(struct thread *thread, void *address, size_t size)
{
	if (!thread || !thread->random) {
		thread = begin_thread();
		if (!thread)
			return;
		thread->calls++;
		thread->until_chosen -= (int64_t)size + 1;
		if (thread->until_chosen >= 0)
			return;
	}
	choose(thread, address, size);
}

/* One byte more for each, so that those of no bytes have their chance. */
static inline void count(void *address, size_t size)
{
	struct thread *thread = self;

	if (UNLIKELY(!address))
		return;
	if (LIKELY(thread)) {
		thread->calls++;
		thread->until_chosen -= (int64_t)size + 1;
		if (LIKELY(thread->until_chosen >= 0))
			return;
	}
	look_closer(thread, address, size);
}

static NOINLINE void tell_end(void *address)
{
	uint64_t id = forget((uintptr_t)address);

	if (id)
		stackhound_heap_freed(program_id(), id);
}

/* What nothing was said of yet. Other threads may go on meanwhile; what they allocate from now on is in no total. */
static void tell_rest(void)
{
	uint32_t used = __atomic_load_n(&state.threads_used, __ATOMIC_RELAXED);
	uint64_t calls, bytes;

	if (!used || getpid() != state.pid || __atomic_exchange_n(&state.is_over, 1, __ATOMIC_RELAXED))
		return;
	calls = __atomic_exchange_n(&state.left_calls, 0, __ATOMIC_RELAXED);
	bytes = __atomic_exchange_n(&state.left_bytes, 0, __ATOMIC_RELAXED);
	for (uint32_t at = 0; at < used && at < MAX_THREADS; at++) {
		calls += state.threads[at].calls;
		bytes += bytes_since(&state.threads[at]);
	}
	stackhound_heap_counted(program_id(), calls, bytes);
}

/* --- The functions that stand behind ours ------------------------------------------------------------------------- */

static void *first_malloc(size_t size);
static void *first_calloc(size_t number, size_t size);
static void *first_realloc(void *address, size_t size);
static void first_free(void *address);

static struct {
	void *(*malloc)(size_t size);
	void *(*calloc)(size_t number, size_t size);
	void *(*realloc)(void *address, size_t size);
	void (*free)(void *address);
	int (*posix_memalign)(void **address, size_t alignment, size_t size);
	void *(*aligned_alloc)(size_t alignment, size_t size);
	void *(*memalign)(size_t alignment, size_t size);
	void *(*valloc)(size_t size);
	void *(*pvalloc)(size_t size);
	void (*_exit)(int status);
} real = {.malloc = first_malloc, .calloc = first_calloc, .realloc = first_realloc, .free = first_free};

/* What dlsym allocates while it looks for malloc. It is never given back. */
static struct {
	char bytes[16384] __attribute__((aligned(16)));
	size_t used;
	bool is_needed;
} early;

static bool is_early(const void *address)
{
	return (uintptr_t)address - (uintptr_t)early.bytes < sizeof(early.bytes);
}

static void *allocate_early(size_t size)
{
	size_t begin = early.used;

	if (size > sizeof(early.bytes) - begin) {
		errno = ENOMEM;
		return 0;
	}
	early.used = (begin + size + 15) & ~(size_t)15;
	return early.bytes + begin;
}

#define FIND(name) (*(void **)&found.name = dlsym(RTLD_NEXT, #name))

/* The first allocation is made before there is a second thread. */
static NOINLINE void find_real(void)
{
	__typeof__(real) found;

	early.is_needed = true;
	FIND(malloc);
	FIND(calloc);
	FIND(realloc);
	FIND(free);
	FIND(posix_memalign);
	FIND(aligned_alloc);
	FIND(memalign);
	FIND(valloc);
	FIND(pvalloc);
	FIND(_exit);
	real = found;
	early.is_needed = false;
}

static void *first_malloc(size_t size)
{
	if (early.is_needed)
		return allocate_early(size);
	find_real();
	return real.malloc(size);
}

static void *first_calloc(size_t number, size_t size)
{
	if (early.is_needed)
		return number && size > SIZE_MAX / number ? 0 : allocate_early(number * size); /* is zero */
	find_real();
	return real.calloc(number, size);
}

static void *first_realloc(void *address, size_t size)
{
	if (early.is_needed)
		return address ? 0 : allocate_early(size);
	find_real();
	return real.realloc(address, size);
}

static void first_free(void *address)
{
	if (early.is_needed || !address)
		return;
	find_real();
	real.free(address);
}

/* --- What programs call ------------------------------------------------------------------------------------------- */

/* Nothing of it is ever chosen. */
static struct thread nobody = {.until_chosen = INT64_MAX, .random = 1};

/* What one function asks of another (musl's calloc of malloc) is part of what it was asked for itself. */
static inline struct thread *count_for_nobody(void)
{
	struct thread *thread = self;

	self = &nobody;
	return thread;
}

EXPORT void *malloc(size_t size)
{
	void *address = real.malloc(size);

	count(address, size);
	return address;
}

EXPORT void *calloc(size_t number, size_t size)
{
	struct thread *thread = count_for_nobody();
	void *address = real.calloc(number, size);

	self = thread;
	count(address, number * size); /* it did not overflow, or there is no address */
	return address;
}

EXPORT void free(void *address)
{
	if (UNLIKELY(is_early(address)))
		return;
	if (UNLIKELY(may_be_chosen(address)))
		tell_end(address);
	real.free(address);
}

static void *move_early(const void *address, size_t size)
{
	size_t known = (size_t)(early.bytes + early.used - (const char *)address);
	void *moved = malloc(size);

	return moved ? memcpy(moved, address, size < known ? size : known) : 0;
}

/* The end of one allocation and another one. It is taken out first: the address may be another thread's at once. */
EXPORT void *realloc(void *address, size_t size)
{
	uint64_t id = UNLIKELY(may_be_chosen(address)) ? forget((uintptr_t)address) : 0;
	void *moved;

	if (UNLIKELY(is_early(address)))
		return move_early(address, size);
	moved = real.realloc(address, size);
	if (UNLIKELY(id)) {
		if (moved || !size)
			stackhound_heap_freed(program_id(), id);
		else
			remember((uintptr_t)address, id); /* it failed: all is as it was */
	}
	count(moved, size);
	return moved;
}

EXPORT void *reallocarray(void *address, size_t number, size_t size)
{
	if (number && size > SIZE_MAX / number) {
		errno = ENOMEM;
		return 0;
	}
	return realloc(address, number * size);
}

EXPORT int posix_memalign(void **address, size_t alignment, size_t size)
{
	struct thread *thread;
	int error;

	if (UNLIKELY(!real.posix_memalign))
		find_real();
	thread = count_for_nobody();
	error = real.posix_memalign(address, alignment, size);
	self = thread;
	if (!error)
		count(*address, size);
	return error;
}

#define ALIGNED(name, parameters, arguments)                                                                           \
	EXPORT void *name parameters                                                                                   \
	{                                                                                                              \
		struct thread *thread;                                                                                 \
		void *address;                                                                                         \
                                                                                                                       \
		if (UNLIKELY(!real.name))                                                                              \
			find_real();                                                                                   \
		if (UNLIKELY(!real.name)) {                                                                            \
			errno = ENOMEM;                                                                                \
			return 0;                                                                                      \
		}                                                                                                      \
		thread = count_for_nobody();                                                                           \
		address = real.name arguments;                                                                         \
		self = thread;                                                                                         \
		count(address, size);                                                                                  \
		return address;                                                                                        \
	}

ALIGNED(aligned_alloc, (size_t alignment, size_t size), (alignment, size))
ALIGNED(memalign, (size_t alignment, size_t size), (alignment, size))
ALIGNED(valloc, (size_t size), (size))
ALIGNED(pvalloc, (size_t size), (size))

/* How many a program makes that ends without its destructors. */
EXPORT _Noreturn void _exit(int status)
{
	tell_rest();
	if (!real._exit)
		find_real();
	real._exit(status);
	__builtin_unreachable();
}

EXPORT _Noreturn void _Exit(int status)
{
	_exit(status);
}

/* --- The library's own beginning and end -------------------------------------------------------------------------- */

static uint64_t parse_number(const char *digits)
{
	uint64_t number = 0;

	for (; digits && *digits >= '0' && *digits <= '9' && number < (1ULL << 50); digits++)
		number = number * 10 + (uint64_t)(*digits - '0');
	return number;
}

/*
 * User space has to learn of a program's mappings before its stacks can be walked, which takes it some 20 ms. The first
 * program waits for that; those that it starts do not.
 */
static void wait_to_be_known(void)
{
	uint64_t wait_ms = parse_number(getenv("STACKHOUND_HEAP_WAIT_MS"));
	struct timespec wait = {.tv_sec = (time_t)(wait_ms / 1000), .tv_nsec = (long)(wait_ms % 1000) * 1000000};

	if (!wait_ms)
		return;
	unsetenv("STACKHOUND_HEAP_WAIT_MS");
	nanosleep(&wait, 0);
}

__attribute__((constructor)) static void begin(void)
{
	if (madvise(&state, sizeof(state), MADV_WIPEONFORK))
		return; /* since Linux 4.14: without it a child would tell of its parent's */
	if (pthread_key_create && pthread_setspecific)
		has_key = !pthread_key_create(&key, end_thread);
	interval = parse_number(getenv("STACKHOUND_HEAP_INTERVAL"));
	wait_to_be_known();
}

__attribute__((destructor)) static void end(void)
{
	tell_rest();
}
