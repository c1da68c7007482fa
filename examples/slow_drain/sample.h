/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the kernel half tells the user half of each sample. */
#ifndef SLOW_DRAIN_SAMPLE_H
#define SLOW_DRAIN_SAMPLE_H

#define COMM_BYTES 16

struct sample {
	unsigned long long boottime_ns;
	unsigned int pid;
	unsigned int cpu;
	char comm[COMM_BYTES];
};

#endif
