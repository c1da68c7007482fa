/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The mappings of a process that user space has not heard of yet, as the kernel has them: most programs that live for
 * milliseconds are made of files that have tables.
 */
#ifndef STACKHOUND_STACK_UNPUBLISHED_H
#define STACKHOUND_STACK_UNPUBLISHED_H

#include "../maps.h"
#include "unwind.h"

#define VM_EXEC 4 /* include/linux/mm.h */
#define AT_BASE 7 /* include/uapi/linux/auxvec.h */
#define AT_SYSINFO_EHDR 33
#define AUXILIARY_PAIRS 16 /* x86-64 and arm64 have both among the first eleven */

/* Files that have tables. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, UNWIND_FILES);
	__type(key, struct inode_key);
	__type(value, struct known_file);
} unwind_inodes SEC(".maps");

#define UNPUBLISHED (1U << 31) /* of publications: those of user space are below */

/*
 * What stands for a publication until there is one: it is another for another program, and when more or less code is
 * mapped.
 */
static __always_inline u32 unpublished(struct task_struct *task, u32 tgid)
{
	struct task_struct *leader = task->group_leader;
	u64 code_pages = task->mm->exec_vm;
	u64 hash = leader->start_boottime ^ (u64)tgid << 32;

	hash = (hash ^ (u64)leader->self_exec_id << 48 ^ code_pages << 24) * 0x9e3779b97f4a7c15ULL;
	return UNPUBLISHED | hash >> 33;
}

#ifdef LOOKS_AT_OTHERS /* whose mappings were published before */
static __always_inline bool find_unpublished(struct walk *walk, struct task_struct *task, u64 address)
{
	return false;
}
#else
static __always_inline struct inode_key key_of(const struct file *file)
{
	const struct inode *inode = file->f_inode;

	return (struct inode_key){.inode = inode->i_ino, .device = inode->i_sb->s_dev};
}

static __always_inline struct known_file *known_file(const struct inode_key *key)
{
	return bpf_map_lookup_elem(&unwind_inodes, key);
}

static __always_inline void note_mapping(struct walk *walk, u64 start, u64 end, u64 file_offset, u64 file)
{
	struct unpublished_mapping *noted = &walk->unpublished[walk->unpublished_count++ % MAX_UNPUBLISHED];

	noted->start = start;
	noted->end = end;
	noted->file_offset = file_offset;
	noted->file = file;
}

static __always_inline void note_file(struct walk *walk, u64 base, const struct known_file *known)
{
	u64 start = base + known->code_address;

	note_mapping(walk, start, start + known->code_bytes, known->code_offset, known->file);
}

/* Whether a file is loaded there: what the file says of itself is in the process's memory. */
static __always_inline bool is_at(u64 base, const struct known_file *known)
{
	u64 found = 0;

	return known->build_id_address &&
	       !bpf_probe_read_user(&found, sizeof(found), (void *)(base + known->build_id_address)) &&
	       found == known->build_id;
}

/* What the kernel tells a program of itself. */
static __always_inline void read_auxiliary_vector(const struct mm_struct *mm, u64 *interpreter_base, u64 *vdso)
{
	for (u32 i = 0; i < AUXILIARY_PAIRS; i++) {
		u64 type = mm->saved_auxv[2 * i];
		u64 value = mm->saved_auxv[2 * i + 1];

		*interpreter_base |= type == AT_BASE ? value : 0;
		*vdso |= type == AT_SYSINFO_EHDR ? value : 0;
	}
}

/*
 * The program, the vDSO and the interpreter: where they are, the kernel keeps outside of its list of mappings. Once for
 * the walks of a process that follow each other on a CPU.
 */
static __always_inline void begin_unpublished(struct walk *walk, struct task_struct *task)
{
	struct mm_struct *mm = task->mm;
	struct inode_key key = {};
	const struct known_file *vdso = known_file(&key);
	const struct known_file *program, *interpreter;
	u64 vdso_base = 0;

	walk->unpublished_of = walk->publication;
	walk->unpublished_count = 0;
	for (u32 i = 0; i < MAX_UNPUBLISHED; i++)
		walk->unpublished[i].end = 0;
	walk->interpreter_base = 0;
	read_auxiliary_vector(mm, &walk->interpreter_base, &vdso_base);
	if (vdso && vdso_base)
		note_file(walk, vdso_base, vdso);
	key = key_of(mm->exe_file);
	program = known_file(&key);
	if (!program)
		return;
	if (program->code_bytes == mm->end_code - mm->start_code)
		note_file(walk, mm->start_code - program->code_address, program);
	key = program->interpreter;
	interpreter = key.inode ? known_file(&key) : 0;
	if (interpreter && is_at(walk->interpreter_base, interpreter))
		note_file(walk, walk->interpreter_base, interpreter);
}

/* The next process of the program will have it, too, if the build-id is there. */
static __always_inline void remember_interpreter(struct task_struct *task, const struct inode_key *interpreter)
{
	struct inode_key key = key_of(task->mm->exe_file);
	struct known_file *program = known_file(&key);

	if (program)
		program->interpreter = *interpreter;
}

static long look_at_unpublished(struct task_struct *task, struct vm_area_struct *mapping, struct walk **walk)
{
	u64 file_offset = mapping->vm_pgoff << config.page_bits;
	struct file *file = mapping->vm_file;
	const struct known_file *known;
	struct inode_key key;

	if (!file || !(mapping->vm_flags & VM_EXEC))
		return 0;
	key = key_of(file);
	known = known_file(&key);
	if (!known)
		return 0;
	note_mapping(*walk, mapping->vm_start, mapping->vm_end, file_offset, known->file);
	if (mapping->vm_start - file_offset + known->code_offset == (*walk)->interpreter_base + known->code_address)
		remember_interpreter(task, &key);
	return 0;
}

/* One that was noted before. */
static __always_inline bool find_noted(struct walk *walk, u64 address)
{
	const struct unpublished_mapping *mapping;
	u32 found = 0;

	for (u32 i = 0; i < MAX_UNPUBLISHED; i++) {
		mapping = &walk->unpublished[i];
		u32 is_in = at_most(mapping->start, address) & ~at_most(mapping->end, address);

		found = (i & is_in) | (found & ~is_in);
	}
	barrier_var(found); /* or the compiler leaves out the bound that old verifiers need */
	mapping = &walk->unpublished[found % MAX_UNPUBLISHED];
	walk->mapping_start = mapping->start;
	walk->mapping_end = mapping->end;
	walk->file_offset = mapping->file_offset;
	walk->file = mapping->file;
	return address >= walk->mapping_start && address < walk->mapping_end;
}

/* Where interrupts are off, the kernel answers once: it gives its lock back after the interrupt. */
static __always_inline bool find_unpublished(struct walk *walk, struct task_struct *task, u64 address)
{
	if (walk->unpublished_of != walk->publication)
		begin_unpublished(walk, task);
	if (find_noted(walk, address))
		return true;
	return !bpf_find_vma(task, address, look_at_unpublished, &walk, 0) && find_noted(walk, address);
}
#endif

#endif
