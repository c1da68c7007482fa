// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* Asks the kernel where its own unwind tables lie: /proc/kallsyms would have to be read to its end for that. */
#include "vmlinux.h"
#include "abi.h"
#include <bpf/bpf_helpers.h>

struct orc_tables found;

#define LOOK_UP(name, place) bpf_kallsyms_lookup_name(name, sizeof(name), 0, place)

SEC("syscall")
int find_orc_tables(void *context)
{
	bool is_found = !LOOK_UP("_stext", &found.text_start) && !LOOK_UP("_etext", &found.text_end) &&
			!LOOK_UP("__start_orc_unwind_ip", &found.places) &&
			!LOOK_UP("__stop_orc_unwind_ip", &found.places_end) &&
			!LOOK_UP("__start_orc_unwind", &found.entries);

	found.count = is_found ? (found.places_end - found.places) / sizeof(s32) : 0;
	return found.count;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
