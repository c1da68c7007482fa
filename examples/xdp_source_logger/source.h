/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the kernel half reports of each packet. */
#ifndef XDP_SOURCE_LOGGER_SOURCE_H
#define XDP_SOURCE_LOGGER_SOURCE_H

struct source {
	unsigned char address[4]; /* IPv4, as it is in the packet */
	unsigned int bytes;       /* of the packet */
};

#endif
