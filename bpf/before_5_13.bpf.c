// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * The same programs for kernels before Linux 5.13, which refuse even in code that never runs what they do not know:
 * functions that only a helper calls (5.13), and changes of memory that give back what was there (5.12). So nothing is
 * walked by tables there, and what needs an exchange is not recorded: off-cpu, heap, exact numbers of page faults.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define bpf_loop(count, callback, context, flags) ((void)(count), (void)(callback), (void)(context), 0)
#define bpf_find_vma(task, address, callback, context, flags) ((void)(callback), (void)(context), -1)
#define __sync_fetch_and_add(place, number) __atomic_fetch_add(place, number, __ATOMIC_RELAXED)
#define __sync_lock_test_and_set(place, value) ((void)(value), *(place))
#define __sync_val_compare_and_swap(place, expected, value) ((void)(expected), (void)(value), *(place))

#include "programs.bpf.c"
