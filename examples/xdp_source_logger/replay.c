// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* replay PACKETS: logs made-up sources, the same in every run; what benchmarks measure of the user half. */
#include <stdlib.h>

#include "log.h"

int main(int argc, char **argv)
{
	long packets = argc == 2 ? atol(argv[1]) : 0;

	if (packets <= 0) {
		fprintf(stderr, "usage: replay PACKETS\n");
		return 2;
	}
	for (long i = 0; i < packets; i++) {
		struct source source = {{192, 0, 2, i % 256}, 60 + i % 1000};

		log_source(stdout, &source);
	}
	return fflush(stdout) ? 1 : 0;
}
