// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * xdp_source_logger OBJECT INTERFACE SECONDS: writes a line for each IPv4 packet that arrives at a network interface, its
 * source and its bytes. OBJECT is what xdp_source_logger.bpf.c was compiled to.
 */
#include "log.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TURN_US 1000 /* 1 MiB of records holds 10 ms of 5 M packets a second */

static int on_record(void *context, void *data, size_t bytes)
{
	if (bytes >= sizeof(struct source))
		log_source(stdout, data);
	return 0;
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static int drain(struct bpf_object *object, double seconds)
{
	int sources = bpf_object__find_map_fd_by_name(object, "sources");
	struct ring_buffer *ring = ring_buffer__new(sources, on_record, NULL, NULL);
	double end_s = now_s() + seconds;

	if (!ring)
		return -errno;
	while (now_s() < end_s) {
		usleep(TURN_US);
		ring_buffer__consume(ring);
	}
	ring_buffer__free(ring);
	return fflush(stdout) ? -errno : 0;
}

static int run(struct bpf_object *object, unsigned int interface, double seconds)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, "log_source");
	struct bpf_link *link;
	int error = bpf_object__load(object);

	if (error)
		return error;
	link = bpf_program__attach_xdp(program, interface);
	if (!link)
		return -errno;
	error = drain(object, seconds);
	bpf_link__destroy(link);
	return error;
}

int main(int argc, char **argv)
{
	struct bpf_object *object;
	unsigned int interface;
	int error;

	if (argc != 4 || atof(argv[3]) <= 0) {
		fprintf(stderr, "usage: xdp_source_logger OBJECT INTERFACE SECONDS\n");
		return 2;
	}
	interface = if_nametoindex(argv[2]);
	object = interface ? bpf_object__open_file(argv[1], NULL) : NULL;
	error = object ? run(object, interface, atof(argv[3])) : -errno;
	if (error)
		fprintf(stderr, "xdp_source_logger: %s\n", strerror(-error));
	return error ? 1 : 0;
}
