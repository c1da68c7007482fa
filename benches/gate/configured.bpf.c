// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * One of our objects (PROGRAMS: its source), configured as a recording of all events is, for `make bench-gate`: what is
 * switched off the verifier does not follow. A recording writes the same into the object before it is loaded.
 */
#include PROGRAMS
#include "maps.h"

const volatile struct config config = {
	.ring_bytes = 1 << 20,
	.self_tgid = 1,
	.max_frames = 127,
	.cpus = 2,
	.own_counts = 1,
	.comm = "x",
	.filter_targets = 1,
	.filter_comm = 1,
	.filter_cgroup = 1,
	.inherit = 1,
	.lone_event = MAX_EVENTS,
	.unwind = 1,
	.code_mask = ~0ULL,
	.off_cpu_max_ns = ~0ULL,
	.off_cpu = 1,
	.count_faults = 1,
	.tells_submission = 1,
	.tells_end = 1,
	.addressed = 1,
	.timed_faults = 1,
	.kernel_walk = KERNEL_WALK_TABLES,
};
