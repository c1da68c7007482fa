/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
#ifndef XDP_SOURCE_LOGGER_LOG_H
#define XDP_SOURCE_LOGGER_LOG_H

#include <stdio.h>

#include "source.h"

/* Write one line: what the user half does for each packet. */
void log_source(FILE *out, const struct source *source);

#endif
