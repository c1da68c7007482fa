/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
#ifndef SLOW_DRAIN_DRAIN_H
#define SLOW_DRAIN_DRAIN_H

#include "sample.h"

#define MAX_COMMANDS 1024 /* a power of two */

struct command {
	char comm[COMM_BYTES]; /* empty: this place is free */
	unsigned long samples;
};

struct totals {
	struct command commands[MAX_COMMANDS];
	unsigned long samples;
	unsigned long homeless; /* of commands beyond MAX_COMMANDS */
};

/* Add one sample: what the drain loop does with each. */
void drain_sample(struct totals *totals, const struct sample *sample);

/* Print the commands with the most samples, so many at most. */
void print_totals(const struct totals *totals, int most);

#endif
