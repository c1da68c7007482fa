// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
#include "log.h"

/* fprintf would read its format for each line. */
static char *write_number(char *at, unsigned int number)
{
	char digits[10];
	int count = 0;

	do
		digits[count++] = '0' + number % 10;
	while (number /= 10);
	while (count)
		*at++ = digits[--count];
	return at;
}

void log_source(FILE *out, const struct source *source)
{
	char line[sizeof("255.255.255.255 4294967295\n")], *at = line;

	for (int i = 0; i < 4; i++) {
		at = write_number(at, source->address[i]);
		*at++ = i < 3 ? '.' : ' ';
	}
	at = write_number(at, source->bytes);
	*at++ = '\n';
	fwrite(line, 1, at - line, out);
}
