// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Names kernel addresses as the kernel does in its own messages (%pS). To find a thousand names in /proc/kallsyms it
 * would have to print a hundred thousand.
 */
#include "vmlinux.h"
#include "abi.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct named_address batch[NAME_BATCH];

static const char FORMAT[] = "%pS";

/* User space fills in the addresses, runs this and takes the names. */
SEC("syscall")
int name_batch(void *context)
{
	u64 address;
	int i;

	for (i = 0; i < NAME_BATCH; i++) {
		address = batch[i].address;
		bpf_snprintf((char *)batch[i].name, sizeof(batch[i].name), FORMAT, &address, sizeof(address));
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
