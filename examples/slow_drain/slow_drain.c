// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * slow_drain OBJECT SECONDS [HZ]: samples who runs on each CPU, and prints who ran most.
 * OBJECT is what slow_drain.bpf.c was compiled to.
 */
#include "drain.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_HZ 999
#define TURN_MS 100

static struct totals totals;

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Returns an error, which ends the turn, when the time is over: a slow reader may never see the ring empty. */
static int on_record(void *context, void *data, size_t bytes)
{
	const double *end_s = context;

	if (bytes >= sizeof(struct sample))
		drain_sample(&totals, data);
	return now_s() < *end_s ? 0 : -ETIME;
}

/* A clock that fires on one CPU, whoever runs there. */
static int open_clock(int cpu, unsigned long long hz)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attributes),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_freq = hz,
		.freq = 1,
	};

	return syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static int attach(struct bpf_object *object, unsigned long long hz)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, "take_sample");

	for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++) {
		int clock = open_clock(cpu, hz);

		if (clock < 0 && errno == ENODEV)
			continue; /* offline */
		if (clock < 0 || !bpf_program__attach_perf_event(program, clock))
			return -errno;
	}
	return 0;
}

/* The drain loop. */
static int drain(struct bpf_object *object, double seconds)
{
	int samples = bpf_object__find_map_fd_by_name(object, "samples");
	double end_s = now_s() + seconds;
	struct ring_buffer *ring = ring_buffer__new(samples, on_record, &end_s, NULL);

	if (!ring)
		return -errno;
	while (now_s() < end_s) {
		usleep(TURN_MS * 1000);
		ring_buffer__consume(ring);
	}
	ring_buffer__free(ring);
	return 0;
}

int main(int argc, char **argv)
{
	struct bpf_object *object;
	int error;

	if (argc < 3 || atof(argv[2]) <= 0) {
		fprintf(stderr, "usage: slow_drain OBJECT SECONDS [HZ]\n");
		return 2;
	}
	object = bpf_object__open_file(argv[1], NULL);
	error = object ? bpf_object__load(object) : -errno;
	if (!error)
		error = attach(object, argc > 3 ? strtoull(argv[3], NULL, 10) : DEFAULT_HZ);
	if (!error)
		error = drain(object, atof(argv[2]));
	if (error) {
		fprintf(stderr, "slow_drain: %s\n", strerror(-error));
		return 1;
	}
	print_totals(&totals, 10);
	return 0; /* which detaches and unloads everything */
}
