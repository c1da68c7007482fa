// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* replay SAMPLES: drains made-up samples, the same in every run; what benchmarks measure. */
#include "drain.h"

#include <stdio.h>
#include <stdlib.h>

#define COMMANDS 50

int main(int argc, char **argv)
{
	static struct totals totals;
	struct sample sample = {0};
	long samples = argc == 2 ? atol(argv[1]) : 0;

	if (samples <= 0) {
		fprintf(stderr, "usage: replay SAMPLES\n");
		return 2;
	}
	for (long i = 0; i < samples; i++) {
		sample.pid = 1 + i % COMMANDS;
		snprintf(sample.comm, sizeof(sample.comm), "command-%u", sample.pid);
		drain_sample(&totals, &sample);
	}
	print_totals(&totals, 3);
	return 0;
}
