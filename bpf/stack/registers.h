/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The user registers of the current thread, whether it was in its program or in the kernel. */
#ifndef STACKHOUND_STACK_REGISTERS_H
#define STACKHOUND_STACK_REGISTERS_H

#include "../task.h"
#include "unwind.h"

#if defined(__TARGET_ARCH_x86)
#define USER_CS_64 0x33 /* __USER_CS of arch/x86/include/asm/segment.h; 32-bit programs have another */

/* False for a 32-bit program. */
static __always_inline bool begin_walk(struct walk *walk, struct task_struct *task)
{
	const struct pt_regs *from = (const struct pt_regs *)bpf_task_pt_regs(task);
	u64 *registers = walk->registers;

	if (from->cs != USER_CS_64)
		return false;
	registers[0] = from->ax;
	registers[1] = from->dx;
	registers[2] = from->cx;
	registers[3] = from->bx;
	registers[4] = from->si;
	registers[5] = from->di;
	registers[6] = from->bp;
	registers[7] = from->sp;
	registers[8] = from->r8;
	registers[9] = from->r9;
	registers[10] = from->r10;
	registers[11] = from->r11;
	registers[12] = from->r12;
	registers[13] = from->r13;
	registers[14] = from->r14;
	registers[15] = from->r15;
	enter_interrupted(walk, from->ip);
	return true;
}

/* Where the thread is in its program, as a number: the instruction, and how deep its stack is. */
static __always_inline u64 place_in_program(struct task_struct *task)
{
	const struct pt_regs *from = (const struct pt_regs *)bpf_task_pt_regs(task);

	return from->ip * 31 + from->sp;
}
#else
#define PSR_MODE32_BIT 0x10

static __always_inline bool begin_walk(struct walk *walk, struct task_struct *task)
{
	const struct user_pt_regs *from = (const struct user_pt_regs *)bpf_task_pt_regs(task);

	if (from->pstate & PSR_MODE32_BIT)
		return false;
	for (u32 i = 0; i < 31; i++)
		walk->registers[i] = from->regs[i];
	walk->registers[SP_REGISTER] = from->sp;
	enter_interrupted(walk, from->pc);
	return true;
}

static __always_inline u64 place_in_program(struct task_struct *task)
{
	const struct user_pt_regs *from = (const struct user_pt_regs *)bpf_task_pt_regs(task);

	return from->pc * 31 + from->sp;
}
#endif

#endif
