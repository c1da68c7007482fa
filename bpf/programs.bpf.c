// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* All programs in one object, so that they share its maps, and the kernel's types are read once to load them. */
#include "oncpu.bpf.c"
#include "offcpu.bpf.c"
#include "wakers.bpf.c"
#include "departures.bpf.c"
#include "blockio.bpf.c"
#include "heap.bpf.c"
#include "allocators.bpf.c"
#include "faults.bpf.c"
#include "lifecycle.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
