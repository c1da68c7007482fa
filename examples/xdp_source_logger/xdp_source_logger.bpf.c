// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * The kernel half: the source of each IPv4 packet goes into a ring buffer, and the packet goes on its way. What cannot be
 * reported is dropped as an error (XDP_ABORTED), which the tracepoint xdp:xdp_exception tells.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "source.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} sources SEC(".maps");

SEC("xdp")
int log_source(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = data + sizeof(*ethernet);
	struct source *source;

	if ((void *)(ethernet + 1) > end)
		return XDP_ABORTED;
	if (ethernet->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	if ((void *)(ip + 1) > end)
		return XDP_ABORTED;
	source = bpf_ringbuf_reserve(&sources, sizeof(*source), 0);
	if (!source)
		return XDP_ABORTED;
	__builtin_memcpy(source->address, &ip->saddr, sizeof(source->address));
	source->bytes = end - data;
	bpf_ringbuf_submit(source, BPF_RB_NO_WAKEUP); /* the reader looks in on its own */
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
