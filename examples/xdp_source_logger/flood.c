// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * flood INTERFACE SECONDS: sends packets of 60 bytes as fast as it can, from 192.0.2.0 to 192.0.2.255 in turn, to
 * whoever is at the other end; prints how many. SECONDS may be 0.05.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define PACKET_BYTES 60
#define BURST 64

static unsigned char packets[BURST][PACKET_BYTES];

static void make_packet(unsigned char *packet)
{
	struct ether_header ethernet = {.ether_type = htons(ETHERTYPE_IP)};
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.ttl = 64,
		.protocol = 253, /* for experiments (RFC 3692): nobody answers */
		.tot_len = htons(PACKET_BYTES - sizeof(ethernet)),
		.daddr = htonl(0xc6336401), /* 198.51.100.1 */
	};

	memset(ethernet.ether_dhost, 0xff, sizeof(ethernet.ether_dhost));
	memcpy(packet, &ethernet, sizeof(ethernet));
	memcpy(packet + sizeof(ethernet), &ip, sizeof(ip));
}

static void set_source(unsigned char *packet, unsigned int number)
{
	unsigned int address = htonl(0xc0000200 | number % 256);

	memcpy(packet + sizeof(struct ether_header) + offsetof(struct iphdr, saddr), &address, sizeof(address));
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static long send_for(int descriptor, struct sockaddr_ll *to, double seconds)
{
	struct iovec parts[BURST];
	struct mmsghdr messages[BURST];
	double end_s = now_s() + seconds;
	long sent = 0;

	memset(messages, 0, sizeof(messages));
	for (int i = 0; i < BURST; i++) {
		make_packet(packets[i]);
		parts[i] = (struct iovec){packets[i], PACKET_BYTES};
		messages[i].msg_hdr = (struct msghdr){
			.msg_name = to,
			.msg_namelen = sizeof(*to),
			.msg_iov = &parts[i],
			.msg_iovlen = 1,
		};
	}
	while (now_s() < end_s) {
		int count;

		for (int i = 0; i < BURST; i++)
			set_source(packets[i], sent + i);
		count = sendmmsg(descriptor, messages, BURST, 0);
		if (count < 0 && errno != ENOBUFS)
			return -1;
		sent += count > 0 ? count : 0;
	}
	return sent;
}

int main(int argc, char **argv)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_halen = ETHER_ADDR_LEN};
	int descriptor = socket(AF_PACKET, SOCK_RAW, 0);
	long sent = -1;

	if (argc != 3 || atof(argv[2]) <= 0) {
		fprintf(stderr, "usage: flood INTERFACE SECONDS\n");
		return 2;
	}
	to.sll_ifindex = if_nametoindex(argv[1]);
	if (descriptor >= 0 && to.sll_ifindex)
		sent = send_for(descriptor, &to, atof(argv[2]));
	if (sent < 0) {
		fprintf(stderr, "flood: %s\n", strerror(errno));
		return 1;
	}
	printf("%ld packets\n", sent);
	return 0;
}
