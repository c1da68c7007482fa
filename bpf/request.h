/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the programs ask of a request to a block device. */
#ifndef STACKHOUND_REQUEST_H
#define STACKHOUND_REQUEST_H

#include "maps.h"
#include <bpf/bpf_core_read.h>

#define REQ_OP_BITS 8 /* include/linux/blk_types.h */
#define REQ_OP_FLUSH 2
#define NO_SECTOR (~0ULL) /* of a request that reads or writes no sectors (blk_rq_trace_sector) */

/* Of what a tracepoint tells. The verifier sees one of the two branches. */
static __always_inline struct request *request_of(u64 *context)
{
	struct request *request;

	if (!config.queue_comes_first)
		return (struct request *)context[0];
	/* From the context's own pointer: the verifier takes no other. */
	asm volatile("%0 = *(u64 *)(%1 + 8)" : "=r"(request) : "r"(context));
	return request;
}

static __always_inline u32 device_of(struct request *request)
{
	struct gendisk *disk;

	if (bpf_core_field_exists(struct request_queue, disk))
		disk = request->q->disk;
	else
		disk = ((struct request___with_disk *)request)->rq_disk;
	return disk ? disk->major << 20 | disk->first_minor : 0;
}

#define UNIFIED_HIERARCHY 0 /* of cgroups: version 2 */

/* For a write from the page cache this is the one whose process wrote there, whoever submits it. */
static __always_inline u64 charged_cgroup(struct request *request)
{
	struct cgroup *cgroup;

	if (!bpf_core_field_exists(struct bio, bi_blkg)) /* a kernel without CONFIG_BLK_CGROUP */
		return 0;
	cgroup = BPF_CORE_READ(request, bio, bi_blkg, blkcg, css.cgroup);
	if (!cgroup || BPF_CORE_READ(cgroup, root, hierarchy_id) != UNIFIED_HIERARCHY)
		return 0;
	return BPF_CORE_READ(cgroup, kn, id);
}

static __always_inline struct block_step describe_step(struct request *request, u8 step)
{
	u64 sector = request->__sector;

	return (struct block_step){
		.request = (u64)request,
		.sector = sector == NO_SECTOR ? 0 : sector,
		.device = device_of(request),
		.flags = request->cmd_flags,
		.bytes = request->__data_len,
		.step = step,
	};
}

/* RQF_FLUSH_SEQ: before or behind it the device's cache is written, too, so that it is not over with its own bytes. */
static __always_inline bool is_in_flush(struct request *request)
{
	u32 flag = 1 << 4; /* until Linux 6.10 */

	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_FLUSH_SEQ))
		flag = 1 << bpf_core_enum_value(enum rqf_flags, __RQF_FLUSH_SEQ);
	return request->rq_flags & flag;
}

/* RQF_IO_STAT: the kernel takes its time, and so tells its end (blk_account_io_done). */
static __always_inline bool is_accounted(struct request *request)
{
	u32 flag = 1 << 13; /* until Linux 6.10 */

	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_IO_STAT))
		flag = 1 << bpf_core_enum_value(enum rqf_flags, __RQF_IO_STAT);
	return request->rq_flags & flag;
}

/* Made by the kernel for those that it is in flush for: they last until it is done, and are what is recorded. */
static __always_inline bool is_flush_of_others(struct request *request)
{
	return (request->cmd_flags & ((1 << REQ_OP_BITS) - 1)) == REQ_OP_FLUSH && is_in_flush(request);
}

#endif
