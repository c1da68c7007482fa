/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The walk of a user stack by unwind tables, one frame a step. It knows neither maps nor tasks: who includes it gives the
 * functions declared below, and bpf_loop(), so that the same code runs in the kernel (tables.h) and over recorded stacks
 * (host.c).
 *
 * Searches have no branches that depend on what they compare: a mispredicted branch takes as long as several steps, and
 * the verifier would follow each way.
 */
#ifndef STACKHOUND_STACK_UNWIND_H
#define STACKHOUND_STACK_UNWIND_H

#define SEGMENT_WORDS (1 << UNWIND_SEGMENT_BITS)
#define SEGMENT_PAIRS (SEGMENT_WORDS / 2)

struct task_struct;
struct walk;

/* The segment that a reference lies in; 0 when there is none. */
static const u64 *unwind_segment(u32 reference);
static struct unwind_file *unwind_file(u32 index);
static const struct unwind_rule *unwind_rule(u32 index);
/* A file's table is missed. */
static void want_table(struct unwind_file *file, u32 index);
/* Of the memory of the thread that is walked; what a task is, is not known here. */
static bool read_stack(struct task_struct *task, void *to, u32 bytes, u64 address);
/* Finds the mapping that an address is in, where it is not published. */
static bool find_unpublished(struct walk *walk, struct task_struct *task, u64 address);
/* Of a return address that may be signed (arm64). */
static u64 without_signature(u64 address);

#define PAGE_MASK ((1 << UNWIND_PAGE_BITS) - 1)
#define MAPPING_PAIRS (sizeof(struct unwind_mapping) / sizeof(u64))

#if defined(__TARGET_ARCH_x86)
#define REGISTERS 16    /* DWARF's: rax rdx rcx rbx rsi rdi rbp rsp r8 … r15 */
#define BASE_REGISTER 3 /* rbx: glibc's lazy binding counts from it, and calls */
#define FP_REGISTER 6
#define SP_REGISTER 7
#else
#define REGISTERS 32 /* x0 … x30, sp */
#define FP_REGISTER 29
#define SP_REGISTER 31
#endif

/*
 * The rule that was found for an address, of one publication of one process's mappings: stacks repeat, and one line of
 * memory replaces the search through five.
 */
#define MEMO_BITS 11
struct memo {
	u64 address;
	u32 publication;
	u32 reserved;
	struct unwind_rule rule;
};

/* What was read of a code object of Python's last (python.h). */
#define PYTHON_MEMO_BITS 9
struct python_memo {
	u64 code;
	u64 since_ns; /* since then it had the tag whenever it was looked at */
	u64 trusted_until_ns;
	u32 publication;
	u16 tag;
	u16 reserved;
};

/*
 * The stack is read by so much at a time: a read takes as long as the search for a rule, and frames are small.
 */
#define WINDOW_WORDS 128
#define WINDOW_BYTES (WINDOW_WORDS * sizeof(u64))
#define USER_PAGE_BYTES 4096

/* A mapping of code as the kernel has it, of a process whose mappings are not published, or not all. */
#define MAX_UNPUBLISHED 8
struct unpublished_mapping {
	u64 start;
	u64 end; /* 0: there is none */
	u64 file_offset;
	u64 file;
};

/* A walk under way. ip, sp and fp are those of the frame that comes next. */
struct walk {
	u64 ip;
	u64 sp;
	u64 fp;
	u64 registers[REGISTERS]; /* of the innermost frame, or of the one that a signal interrupted */
	u64 base_pointer_address; /* where it was stored since; 0: it was not; BASE_POINTER_LOST */
	u64 mapping_start;        /* the mapping that was found last */
	u64 mapping_end;
	u64 file_offset;
	u32 file;
	u32 mappings; /* reference; 0: not published */
	u32 publication;
	u32 end;               /* enum user_end */
	u32 guess;             /* enum user_end: why the last step was one by the frame pointer; 0: it was not */
	u32 lack;              /* enum user_end: why some step was, that led to code */
	u32 frames;            /* recorded so far */
	u8 has_registers;      /* of this very frame */
	u8 is_call;            /* ip is behind a call */
	u8 has_caller;         /* the last step led somewhere */
	u8 is_at_entry;        /* it begins at a function's first instruction */
	u8 python_is_open;     /* the call of the evaluation loop has frames already */
	u64 python_frame;      /* the one that comes next */
	u64 python_callee;     /* the one before it; 0: there is none */
	u64 python_outer;      /* the thread state whose frames come after those of this one; 0: there is none */
	u64 python_generator;  /* the outermost that is a generator's or a coroutine's; 0: there is none */
	u32 python_at;         /* where in the window the frame lies, in bytes */
	u32 python_frames;     /* recorded so far */
	u32 python_end;        /* enum python_end */
	u32 unpublished_of;    /* whose mappings are noted: its publication */
	u32 unpublished_count; /* noted so far */
	u64 window_start;      /* where in the stack the window lies */
	u64 window_bytes;      /* read so far */
	u64 window[WINDOW_WORDS];
	u64 interpreter_base; /* of a process whose mappings are noted */
	struct unpublished_mapping unpublished[MAX_UNPUBLISHED];
	struct memo memos[1 << MEMO_BITS];
	struct python_memo python_memos[1 << PYTHON_MEMO_BITS];
};

/* All ones where left <= right, else 0; both below 2^63. */
static __always_inline u64 at_most(u64 left, u64 right)
{
	u64 mask = (s64)(left - right - 1) >> 63;

	barrier_var(mask); /* or the compiler makes a branch of it */
	return mask;
}

/* The last of `count` numbers that is not above `key`; the first when all are. */
static __always_inline u32 find_start(const u64 *segment, u32 first, u32 count, u64 key)
{
	u32 found = 0;

	for (u32 step = 0; step < 15 && count > 1; step++) {
		u32 half = count / 2;

		found += half & at_most(segment[(first + found + half) % SEGMENT_PAIRS], key);
		count -= half;
	}
	return found;
}

/* The same for the rows of a page, and where in the page they begin. */
static __always_inline u32 find_row(const u32 *segment, u32 first, u32 count, u32 offset)
{
	for (u32 step = 0; step < UNWIND_PAGE_BITS && count > 1; step++) {
		u32 half = count / 2;

		first += half & at_most(segment[(first + half) % SEGMENT_WORDS] >> UNWIND_RULE_BITS, offset);
		count -= half;
	}
	return segment[first % SEGMENT_WORDS];
}

static __always_inline bool find_published(struct walk *walk, u64 address)
{
	const u64 *segment = unwind_segment(walk->mappings);
	u32 header = walk->mappings / 2;
	u32 first = header + sizeof(struct unwind_mappings) / sizeof(u64);
	u32 count, found, at;
	u64 start;

	if (!walk->mappings || !segment)
		return false;
	count = ((const struct unwind_mappings *)&segment[header % SEGMENT_PAIRS])->count;
	found = find_start(segment, first, count, address);
	start = segment[(first + found) % SEGMENT_PAIRS];
	at = first + count + found * MAPPING_PAIRS;
	if (address < start || address >= segment[at % SEGMENT_PAIRS])
		return false;
	walk->mapping_start = start;
	walk->mapping_end = segment[at % SEGMENT_PAIRS];
	walk->file_offset = segment[(at + 1) % SEGMENT_PAIRS];
	walk->file = segment[(at + 2) % SEGMENT_PAIRS];
	return true;
}

/* Finds the mapping that an address is in. Libraries may have been mapped since the others were published. */
static __always_inline bool find_mapping(struct walk *walk, struct task_struct *task, u64 address)
{
	return find_published(walk, address) || find_unpublished(walk, task, address);
}

/* The row for a place in a file; 0, which no row is, when nothing is known there. */
static __always_inline u32 find_in_table(const struct unwind_file *file, u64 table, u64 offset)
{
	u32 at = (offset >> UNWIND_PAGE_BITS) - file->first_page;
	const u64 *pages = unwind_segment(table);
	const u32 *rows;
	u64 page;

	if (at >= table >> 32 || !pages)
		return 0;
	page = pages[((u32)table / 2 + at) % SEGMENT_PAIRS];
	rows = (const u32 *)unwind_segment(page);
	if (!(page >> 32) || !rows)
		return 0;
	return find_row(rows, page, page >> 32, offset & PAGE_MASK);
}

/* Looks up the rule for an address in the mapping that was found last. False when its file's table is not there yet. */
static __always_inline bool find_rule(struct walk *walk, u64 address, struct unwind_rule *rule)
{
	struct unwind_file *file = unwind_file(walk->file);
	const struct unwind_rule *found;
	u64 table = 0;
	u32 row = 0;

	if (file && !file->has_none) {
		table = *(volatile u64 *)file;
		if (!table) {
			want_table(file, walk->file);
			return false;
		}
		row = find_in_table(file, table, address - walk->mapping_start + walk->file_offset);
	}
	found = unwind_rule(row % (1 << UNWIND_RULE_BITS));
	if (!found)
		return false;
	*rule = *found;
	return true;
}

/* Moves the window to an address; up to the end of a page where the next one cannot be read. */
static __always_inline bool move_window(struct walk *walk, struct task_struct *task, u64 address)
{
	u64 bytes = WINDOW_BYTES;

	walk->window_start = address;
	walk->window_bytes = 0;
	if (!read_stack(task, walk->window, bytes, address)) {
		bytes = USER_PAGE_BYTES - address % USER_PAGE_BYTES;
		if (bytes >= WINDOW_BYTES || !read_stack(task, walk->window, bytes, address))
			return false;
	}
	walk->window_bytes = bytes;
	return true;
}

/* The word at an address of the stack. */
static __always_inline bool load(struct walk *walk, struct task_struct *task, u64 address, u64 *word)
{
	u64 distance = address - walk->window_start;

	if (address % sizeof(u64))
		return read_stack(task, word, sizeof(*word), address);
	if (distance >= walk->window_bytes) {
		if (!move_window(walk, task, address))
			return false;
		distance = 0;
	}
	*word = walk->window[distance / sizeof(u64) % WINDOW_WORDS];
	return true;
}

/* Ends the walk. */
static __always_inline bool end_walk(struct walk *walk, u32 end)
{
	walk->end = end;
	return false;
}

static __always_inline bool enter_caller(struct walk *walk, u64 ip, u64 sp, u64 fp)
{
	if (!ip)
		return end_walk(walk, END_ROOT);
	walk->ip = without_signature(ip);
	walk->sp = sp;
	walk->fp = fp;
	walk->has_registers = false;
	walk->is_call = true;
	return true;
}

/* A frame with all its registers: what a signal interrupted. */
static __always_inline bool enter_interrupted(struct walk *walk, u64 ip)
{
	walk->base_pointer_address = 0;
	walk->ip = ip;
	walk->sp = walk->registers[SP_REGISTER];
	walk->fp = walk->registers[FP_REGISTER];
	walk->has_registers = true;
	walk->is_call = false;
	return true;
}

/* One step by the frame pointer: it points to the caller's, with the return address behind it. */
static __always_inline bool step_by_frame_pointer(struct walk *walk, struct task_struct *task, u64 cfa)
{
	u64 fp, ip;

	walk->base_pointer_address = BASE_POINTER_LOST;
	if (walk->fp % sizeof(u64) || !load(walk, task, walk->fp, &fp) ||
	    !load(walk, task, walk->fp + sizeof(u64), &ip))
		return end_walk(walk, END_UNREADABLE);
	return enter_caller(walk, ip, cfa, fp);
}

/* Nothing has been pushed yet: the return address is where the call left it. */
static __always_inline bool step_from_entry(struct walk *walk, struct task_struct *task)
{
#ifdef LR_REGISTER
	return enter_caller(walk, walk->registers[LR_REGISTER], walk->sp, walk->fp);
#else
	u64 ip;

	if (!load(walk, task, walk->sp, &ip))
		return end_walk(walk, END_UNREADABLE);
	return enter_caller(walk, ip, walk->sp + sizeof(u64), walk->fp);
#endif
}

/* No rule: walk->end says why, and that is the end unless the frame pointer leads on, upwards. */
static __always_inline bool step_without_rule(struct walk *walk, struct task_struct *task)
{
	u32 reason = walk->end;

	if (walk->is_at_entry && walk->frames == 1)
		return step_from_entry(walk, task);
	if (walk->fp < walk->sp)
		return false;
	if (step_by_frame_pointer(walk, task, walk->fp + 2 * sizeof(u64))) {
		walk->guess = reason;
		return true;
	}
	walk->end = reason; /* also where it led to 0: only a rule knows a root */
	return false;
}

#if defined(__TARGET_ARCH_x86)
/* struct rt_sigframe, from where the handler returns to: the general registers lie 40 bytes above the stack pointer. */
static __always_inline bool step_over_signal(struct walk *walk, struct task_struct *task)
{
	u64 *stored = walk->window;
	u64 *registers = walk->registers;

	walk->window_bytes = 0; /* used for another purpose */
	if (!read_stack(task, stored, 17 * sizeof(u64), walk->sp + 40))
		return end_walk(walk, END_UNREADABLE);
	for (u32 i = 0; i < 8; i++)
		registers[8 + i] = stored[i];
	registers[5] = stored[8];  /* rdi */
	registers[4] = stored[9];  /* rsi */
	registers[6] = stored[10]; /* rbp */
	registers[3] = stored[11]; /* rbx */
	registers[1] = stored[12]; /* rdx */
	registers[0] = stored[13]; /* rax */
	registers[2] = stored[14]; /* rcx */
	registers[7] = stored[15]; /* rsp */
	return enter_interrupted(walk, stored[16]);
}
#else
/* struct rt_sigframe: 128 bytes of siginfo, then ucontext, whose mcontext begins 176 bytes in, after fault_address. */
static __always_inline bool step_over_signal(struct walk *walk, struct task_struct *task)
{
	u64 address = walk->sp + 128 + 176 + 8;
	u64 ip;

	if (!read_stack(task, walk->registers, 32 * sizeof(u64), address) ||
	    !read_stack(task, &ip, sizeof(u64), address + 32 * sizeof(u64)))
		return end_walk(walk, END_UNREADABLE);
	return enter_interrupted(walk, ip);
}
#endif

/* Where the caller's frame pointer is stored; 0 when it is not. */
static __always_inline u64 frame_pointer_address(const struct walk *walk, const struct unwind_rule *rule, u64 cfa)
{
	if (rule->frame_pointer == FRAME_POINTER_AT_CFA)
		return cfa + rule->frame_pointer_offset;
	if (rule->frame_pointer == FRAME_POINTER_AT_FP)
		return walk->fp + rule->frame_pointer_offset;
	return 0;
}

/* Code that has pushed nothing yet, where a call pushes nothing, or taken it off again: innermost, or interrupted. */
static __always_inline bool may_have_no_frame(const struct unwind_rule *rule)
{
	return rule->return_address == RETURN_ADDRESS_IN_REGISTER;
}

/* The register is read where a rule counts from it, which few do. */
static __always_inline void follow_base_pointer(struct walk *walk, const struct unwind_rule *rule, u64 cfa)
{
	s64 offset = rule->base_pointer_offset;

	if (offset)
		walk->base_pointer_address = offset == BASE_POINTER_LOST ? BASE_POINTER_LOST : cfa + offset;
}

static __always_inline bool step_to_caller(struct walk *walk, struct task_struct *task, const struct unwind_rule *rule,
					   u64 cfa)
{
	u64 fp_address = frame_pointer_address(walk, rule, cfa);
	u64 fp = rule->frame_pointer == FRAME_POINTER_UNDEFINED ? 0 : walk->fp;
	u64 ip;

	follow_base_pointer(walk, rule, cfa);
	if (cfa < walk->sp || (cfa == walk->sp && !may_have_no_frame(rule)))
		return end_walk(walk, END_NO_PROGRESS);
	if (fp_address && !load(walk, task, fp_address, &fp))
		return end_walk(walk, END_UNREADABLE);
	if (rule->return_address == RETURN_ADDRESS_IN_REGISTER) {
		if (!walk->has_registers)
			return end_walk(walk, END_UNSUPPORTED);
		return enter_caller(walk, walk->registers[(u16)rule->return_address_offset % REGISTERS], cfa, fp);
	}
	if (!load(walk, task, cfa + rule->return_address_offset, &ip))
		return end_walk(walk, END_UNREADABLE);
	return enter_caller(walk, ip, cfa, fp);
}

/* Whether a register of a frame that called others is known, all the same. `value` is what it was in the innermost. */
static __always_inline bool has_base_pointer(struct walk *walk, struct task_struct *task, u32 number, u64 *value)
{
#ifdef BASE_REGISTER
	if (number != BASE_REGISTER || walk->base_pointer_address == BASE_POINTER_LOST)
		return false;
	return !walk->base_pointer_address || load(walk, task, walk->base_pointer_address, value);
#else
	return false;
#endif
}

/* What the CFA is counted from; false where that is not known. */
static __always_inline bool cfa_base(struct walk *walk, struct task_struct *task, const struct unwind_rule *rule,
				     u64 *base)
{
	switch (rule->cfa) {
	case CFA_AT_SP:
		*base = walk->sp;
		return true;
	case CFA_AT_FP:
		*base = walk->fp;
		return true;
	case CFA_PLT:
		*base = walk->sp + ((walk->ip & 15) >= rule->cfa_register ? 8 : 0);
		return true;
	case CFA_REGISTER:
	case CFA_AT_REGISTER:
		*base = walk->registers[rule->cfa_register % REGISTERS];
		return walk->has_registers || has_base_pointer(walk, task, rule->cfa_register, base);
	}
	return false;
}

static __always_inline bool has_indirect_cfa(const struct unwind_rule *rule)
{
	return rule->cfa == CFA_AT_SP || rule->cfa == CFA_AT_FP || rule->cfa == CFA_AT_REGISTER;
}

/* What the CFA is counted from by a rule that few functions have. False where there is none; walk->end says why. */
static __always_inline bool find_rare_base(struct walk *walk, struct task_struct *task, const struct unwind_rule *rule,
					   u64 *base)
{
	if (!cfa_base(walk, task, rule, base))
		return end_walk(walk, rule->cfa == CFA_NONE ? END_NO_RULE : END_UNSUPPORTED);
	if (has_indirect_cfa(rule) && !load(walk, task, *base + rule->cfa_indirect_offset, base))
		return end_walk(walk, END_UNREADABLE);
	return true;
}

static __always_inline bool has_cfa(const struct unwind_rule *rule)
{
	return rule->cfa != CFA_END && rule->cfa != CFA_SIGNAL && rule->cfa != CFA_FRAME_POINTER;
}

static __always_inline bool step_without_cfa(struct walk *walk, struct task_struct *task,
					     const struct unwind_rule *rule)
{
	if (rule->cfa == CFA_SIGNAL)
		return step_over_signal(walk, task);
	if (rule->cfa == CFA_END || !walk->fp)
		return end_walk(walk, END_ROOT);
	return step_by_frame_pointer(walk, task, walk->fp + rule->cfa_offset); /* from one stack of Go's to another */
}

/* Where the rule for an address is kept. */
static __always_inline struct memo *memo_of(struct walk *walk, u64 address)
{
	return &walk->memos[address * 0x9e3779b97f4a7c15ULL >> (64 - MEMO_BITS)];
}

/* Sees to it that the memo holds the rule. False when there is none to be had, and walk->end says why. */
static __always_inline bool look_up(struct walk *walk, struct task_struct *task, struct memo *memo, u64 address)
{
	if (memo->address == address && memo->publication == walk->publication)
		return true;
	memo->publication = 0;
	if (address - walk->mapping_start >= walk->mapping_end - walk->mapping_start &&
	    !find_mapping(walk, task, address))
		return end_walk(walk, END_OUTSIDE_CODE);
	if (!find_rule(walk, address, &memo->rule))
		return end_walk(walk, END_NO_TABLE);
	memo->address = address;
	memo->publication = walk->publication;
	return true;
}

/* Goes from a frame to its caller's. False when the walk has ended; walk->end says how. */
static __always_inline bool step(struct walk *walk, struct task_struct *task, const struct unwind_rule *rule)
{
	u64 base = 0;

	if (rule->cfa == CFA_SP)
		base = walk->sp;
	else if (rule->cfa == CFA_FP)
		base = walk->fp;
	else if (!has_cfa(rule))
		return step_without_cfa(walk, task, rule);
	else if (!find_rare_base(walk, task, rule, &base))
		return walk->end != END_UNREADABLE && step_without_rule(walk, task);
	return step_to_caller(walk, task, rule, base + rule->cfa_offset);
}

/* What the steps of a walk share; all that changes is in memory that the verifier does not follow. */
struct frames {
	struct walk *walk;
	struct task_struct *task;
	u64 *words;
};

/*
 * Callers are looked up at one byte before the address they return to; what a signal interrupted is shown one too far,
 * so that this is right for it, too.
 */
static __always_inline void record_frame(const struct frames *frames, u32 index)
{
	struct walk *walk = frames->walk;

	frames->words[index % (MAX_STACK_FRAMES + 1)] = walk->ip + (index && !walk->is_call);
	walk->frames = index + 1;
}

static long walk_frame(u32 index, struct frames *frames)
{
	struct walk *walk = frames->walk;
	struct task_struct *task = frames->task;
	u64 address = walk->ip - walk->is_call;
	struct memo *memo = memo_of(walk, address);
	bool has_rule = look_up(walk, task, memo, address);

	if (!has_rule && index && walk->end == END_OUTSIDE_CODE) {
		if (walk->guess)
			walk->end = walk->guess; /* a try that failed */
		return 1;
	}
	if (walk->guess)
		walk->lack = walk->guess;
	walk->guess = 0;
	record_frame(frames, index);
	walk->has_caller = has_rule ? step(walk, task, &memo->rule) : step_without_rule(walk, task);
	return !walk->has_caller;
}

/* Walks from where the walk begins, and writes an address for each frame. */
static __always_inline void walk_frames(struct walk *walk, struct task_struct *task, u64 *words, u32 max_frames)
{
	struct frames frames = {.walk = walk, .task = task, .words = words};

	walk->mapping_start = 0;
	walk->mapping_end = 0;
	walk->window_bytes = 0;
	walk->base_pointer_address = 0;
	walk->guess = 0;
	walk->lack = 0;
	walk->frames = 0;
	bpf_loop(max_frames, walk_frame, &frames, 0);
	if (walk->frames >= max_frames && walk->has_caller)
		walk->end = END_TRUNCATED;
}

/* Tells one publication from others that are, or were, at the same place; 0: there is none. */
static __always_inline u32 publication_of(u32 mappings)
{
	const u64 *segment = mappings ? unwind_segment(mappings) : 0;

	if (!segment)
		return 0;
	return ((const struct unwind_mappings *)&segment[mappings / 2 % SEGMENT_PAIRS])->publication;
}

#endif
