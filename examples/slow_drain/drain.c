// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The user half: samples added up by command. */
#include "drain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* 1 plants the regression that docs/tutorial-regression.md finds. */
#ifndef PLANTED
#define PLANTED 0
#endif

#define LINE_BYTES 4096
#define PAUSE_NS 50000

struct line {
	struct line *next;
	char text[LINE_BYTES];
};

static struct line *history;

/* "So that we can print them later, if somebody asks." */
static void remember(const struct sample *sample)
{
	struct line *line = calloc(1, sizeof(*line));

	if (!line)
		return;
	snprintf(line->text, sizeof(line->text), "%u %s on CPU %u", sample->pid, sample->comm, sample->cpu);
	line->next = history;
	history = line;
}

/* "So that we do not take a whole CPU." */
static void take_a_break(void)
{
	nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static unsigned int hash(const char *comm)
{
	unsigned int sum = 5381; /* Bernstein's */

	for (int i = 0; i < COMM_BYTES && comm[i]; i++)
		sum = sum * 33 + (unsigned char)comm[i];
	return sum;
}

static struct command *find(struct totals *totals, const char *comm)
{
	unsigned int first = hash(comm);

	for (unsigned int i = 0; i < MAX_COMMANDS; i++) {
		struct command *command = &totals->commands[(first + i) % MAX_COMMANDS];

		if (!command->comm[0])
			memcpy(command->comm, comm, COMM_BYTES);
		if (!strncmp(command->comm, comm, COMM_BYTES))
			return command;
	}
	return NULL;
}

void drain_sample(struct totals *totals, const struct sample *sample)
{
	struct command *command = find(totals, sample->comm);

	if (PLANTED) {
		remember(sample);
		take_a_break();
	}
	totals->samples++;
	if (command)
		command->samples++;
	else
		totals->homeless++;
}

static int by_samples(const void *a, const void *b)
{
	const struct command *one = a, *other = b;

	return (one->samples < other->samples) - (one->samples > other->samples);
}

void print_totals(const struct totals *totals, int most)
{
	static struct command sorted[MAX_COMMANDS];

	memcpy(sorted, totals->commands, sizeof(sorted));
	qsort(sorted, MAX_COMMANDS, sizeof(*sorted), by_samples);
	for (int i = 0; i < most && i < MAX_COMMANDS && sorted[i].samples; i++)
		printf("%6lu %.*s\n", sorted[i].samples, COMM_BYTES, sorted[i].comm);
	printf("%6lu samples, %lu of commands that found no place\n", totals->samples, totals->homeless);
}
