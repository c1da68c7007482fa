/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The ABI between the kernel half and user space: records, counters, configuration. Its only source.
 *
 * crates/capture/build.rs makes src/abi.rs of it and understands just this: `#define NAME number`, `enum name {…};` with
 * explicit numbers, and `struct name {…};` of u8 to u64, s16, s32 and arrays of them. Every struct is laid out without
 * padding, and a static assertion on both sides says how large it is.
 */
#ifndef STACKHOUND_ABI_H
#define STACKHOUND_ABI_H

#define MAX_STACK_FRAMES 127 /* as kernel.perf_event_max_stack has it by default; 2 stacks a sample */
#define MAX_PYTHON_FRAMES 127
#define MAX_STACK_WORDS 509  /* kernel and user addresses; of Python's frames their number and two words each */
#define MAX_SAMPLE_WORDS 512 /* and the two words of RECORD_COMBINED */
#define MAX_DETAIL_WORDS 8
#define MAX_EVENTS 32
#define MAX_TARGETS 65536 /* processes in the filter at once */
#define COMM_BYTES 16
#define NAME_BATCH 64  /* kernel addresses that are named at a time */
#define NAME_BYTES 640 /* KSYM_SYMBOL_LEN: a name of 511, offset and size, a module's name of 55 */

enum sample_flag {
	USER_TRUNCATED = 1,
	KERNEL_TRUNCATED = 2,
	USER_UNREADABLE = 4,
	IN_KERNEL = 8,
	KERNEL_THREAD = 16,
	GUEST = 32,
	USER_BROKEN = 64,          /* set by user space: the walk left the code, and what followed was cut off */
	USER_FRAME_POINTERS = 128, /* some of the user frames were found by frame pointers, for want of a rule */
	HAS_PYTHON = 4096,         /* Python's frames come behind the user frames */
	GIL_KNOWN = 8192,          /* those from here on are set by user space */
	GIL_HELD = 16384,
	PYTHON_CUT = 32768,     /* Python's frames are not all there */
	PYTHON_GUESSED = 65536, /* some may be in the place of others, between the native frames */
};

/* How the walk of a user stack ended: in the upper bits of a sample's flags. */
#define USER_END_SHIFT 8
#define USER_ENDS 16
enum user_end {
	END_UNKNOWN = 0,      /* frame pointers tell no root */
	END_ROOT = 1,         /* where the thread began */
	END_TRUNCATED = 2,    /* more frames than a sample has room for */
	END_NO_MAPPINGS = 3,  /* the process's mappings were not known yet: frame pointers only */
	END_OUTSIDE_CODE = 4, /* an address that is in no code */
	END_NO_TABLE = 5,     /* the file's table was not there yet, and frame pointers led nowhere */
	END_NO_RULE = 6,      /* nothing is known of this code, and frame pointers led nowhere */
	END_UNSUPPORTED = 7,  /* a rule that the tables cannot say, and frame pointers led nowhere */
	END_UNREADABLE = 8,   /* the stack could not be read */
	END_NO_PROGRESS = 9,  /* the caller's frame would not lie above its callee's */
	END_OTHER_ABI = 10,   /* a 32-bit program: frame pointers only */
	END_EXITED = 11,      /* the thread was ending, and had given its memory back: there is no user stack */
	END_EXECUTING = 12,   /* the kernel was loading another program in its place: there is none yet */
};

/* What a sample is before its addresses: the part that two samples of one stack share starts at start_boottime_ns. */
struct sample_header {
	u64 boottime_ns;
	u64 period; /* what it stands for, e.g. cycles; 0 for tracepoints. Of RECORD_COMBINED: all observations together */
	u64 start_boottime_ns; /* of the thread group leader: with tgid it names a process for good */
	u32 tgid;              /* as the collector's PID namespace has it; 0 when it cannot see the process */
	u32 tid;
	u32 ns_tgid; /* as the thread's own PID namespace has it */
	u32 ns_tid;
	u8 comm[COMM_BYTES];
	u16 cpu;
	u16 flags; /* enum sample_flag */
	u8 kind;   /* enum record_kind */
	u8 event;  /* index of the event that fired */
	u8 kernel_frames;
	u8 user_frames;
};

/*
 * A ring holds the header and as many words as there are: kernel frames leaf first, user frames leaf first, with
 * HAS_PYTHON Python's frames (below), and what the kind of record has to say: for RECORD_COMBINED the number of
 * observations and the time of the last one, for RECORD_ADDRESSED an address, for RECORD_OFF_CPU a
 * struct off_cpu, for RECORD_WAKING its number, for RECORD_BLOCK_IO a struct block_step, for RECORD_DEPARTURE its number
 * and, above 32 bits, the site, for RECORD_FAULT a struct fault, for RECORD_HEAP a struct heap_step.
 */
struct sample {
	struct sample_header header;
	u64 words[MAX_SAMPLE_WORDS];
	u64 room[MAX_DETAIL_WORDS]; /* so that details behind the longest stack need no other bound than its words */
};

/* How a thread was away from the CPU. The header's period is the time that the sample stands for. */
struct off_cpu {
	u64 duration_ns;
	u64 queued_ns; /* of that: ready, but waiting for a CPU */
	u64 waking;    /* which RECORD_WAKING tells who woke it; 0: none does */
	u32 flags;     /* enum off_cpu_flag */
	u32 departure; /* the stack is that of the thread's RECORD_DEPARTURE of this number; 0: it is here */
	u32 site;      /* of that departure, numbered by thread */
	u32 absences;  /* that the sample stands for; 0: they were not counted */
	u64 since_ns;  /* that it is over */
};
#define WAKING_CPU_SHIFT 48 /* of the number of such a record: its CPU and 1; below it how many there were before */
enum off_cpu_flag {
	OFF_CPU_PREEMPTED = 1, /* it did not mean to leave */
	OFF_CPU_DISK = 2,      /* it waited for a block device (in_iowait) */
	OFF_CPU_AS_USUAL = 4,  /* the stack was not taken: it is that of the last departure from that site */
};

/*
 * A step of a request to a block device. Only with BLOCK_SAMPLED is there a thread and its stack: the submitter's; the
 * header's period is then the number of requests that it stands for.
 */
struct block_step {
	u64 request; /* its address, which the next one may have, too */
	u64 sector;
	u32 device; /* as the kernel numbers it */
	u32 flags;  /* cmd_flags: the operation and how it is to be done */
	u32 bytes;  /* of all of it; of a completion those that are done */
	u8 step;    /* enum block_step_kind */
	u8 traits;  /* enum block_trait */
	u8 reserved[2];
	u64 cgroup; /* with BLOCK_FIRST, the number of the one that it is charged to; 0: not told */
};
enum block_step_kind {
	BLOCK_SUBMIT = 1, /* by the thread that asks for it; before Linux 6.5 when it comes to the scheduler's queue */
	BLOCK_ISSUE = 2,  /* to the device */
	BLOCK_REQUEUE = 3,
	BLOCK_MERGE = 4,    /* another request takes it over */
	BLOCK_COMPLETE = 5, /* by the device: so many bytes of it */
	BLOCK_END = 6,      /* whoever waits for it has been told */
};
enum block_trait {
	BLOCK_FIRST = 1,    /* nothing was told of it before, unless that it was submitted */
	BLOCK_SAMPLED = 2,  /* there is a stack */
	BLOCK_UNWANTED = 4, /* its submitter is not to be recorded */
	BLOCK_FAILED = 8,
	BLOCK_LAST = 16, /* nothing of it is left to be done */
};

/* A page fault, up to where the kernel counts it. */
struct fault {
	u64 address; /* of the memory that was touched */
	u64 ns;      /* how long it took; 0: not measured */
	u64 inode;   /* of the file whose page was not mapped, if it is one's */
	u64 page;    /* of that file */
	u32 device;
	u32 has_file;
};

/* What a program tells of its memory (preload/heap.c). Only an allocation has a stack. */
struct heap_step {
	u64 program; /* tells programs of one process apart */
	u64 id;      /* of an allocation that was chosen; 0: its end will not be told */
	u64 size;    /* bytes that were asked for */
	u64 calls;   /* allocations, chosen or not, since the last time that these two were told */
	u64 bytes;   /* of those */
	u8 step;     /* enum heap_step_kind */
	u8 reserved[7];
};
enum heap_step_kind {
	HEAP_ALLOCATED = 1,
	HEAP_FREED = 2,
	HEAP_COUNTED = 3,    /* at the program's end: calls and bytes that nothing was said of yet */
	HEAP_UNFOLLOWED = 4, /* of one that was told: its end will not be */
};
/* What a function of an allocator is asked: the cookie of its uprobe (crates/core/src/allocators.rs). */
enum allocator_call {
	CALL_MALLOC = 1,         /* (bytes) */
	CALL_CALLOC = 2,         /* (number, bytes) */
	CALL_REALLOC = 3,        /* (address, bytes) */
	CALL_REALLOCARRAY = 4,   /* (address, number, bytes) */
	CALL_ALIGNED = 5,        /* (alignment, bytes) */
	CALL_POSIX_MEMALIGN = 6, /* (where to put the address, alignment, bytes) */
	CALL_FREE = 7,           /* (address) */
	CALL_MMAP = 8,           /* (address, bytes, protection, flags) */
	CALL_MREMAP = 9,         /* (address, bytes, new bytes) */
};

/* What user space may change while the programs run. */
struct settings {
	u64 off_cpu_period_ns; /* absences at least so long are samples; of shorter ones so much makes a sample */
	u64 block_io_period;   /* of so many requests one is a sample, at random */
	u64 heap_window;       /* the number of the one in which allocators are watched */
};

/*
 * Python's frames: a word that says how many there are, how their walk ended and what is known of the lock, then two
 * words a frame, leaf first: its code object, and how far it had come in it (as the interpreter notes it: an address or
 * an index). Above the 48 bits of its address a code object has a tag, of the pointers to its names and lines: another
 * object that comes to the same place has another one. A code object with PYTHON_ENTRY is the last one of its call of the evaluation loop; a frame with no code
 * object is such a call that runs nothing yet. Before all frames comes, with PYTHON_TASK in place of a code object, the
 * asyncio task that the thread runs, with a tag, too; or 0, where it turned out that it runs none.
 */
#define PYTHON_ENTRY 1
#define PYTHON_TASK 3 /* it is a call by itself */
#define PYTHON_TAG_SHIFT 48
#define PYTHON_FRAMES_MASK 255
#define PYTHON_END_SHIFT 8 /* enum python_end */
#define PYTHON_END_MASK 15
#define PYTHON_HOLDS_GIL 65536
#define PYTHON_KNOWS_GIL 131072
enum python_end {
	PYTHON_COMPLETE = 1,
	PYTHON_TRUNCATED = 2,
	PYTHON_UNREADABLE = 3,
};

/* What the filter knows of a process; one that it does not know is not sampled. */
enum target_state {
	TARGET_SAMPLED = 1,
	TARGET_HELD = 2, /* until its exec: a COMMAND that its launcher has forked */
};

enum record_kind {
	RECORD_SAMPLE = 1,
	RECORD_COMBINED = 2,
	RECORD_ADDRESSED = 3, /* a sample with the address of the memory that was touched */
	RECORD_OFF_CPU = 4,
	RECORD_WAKING = 5, /* no sample: who woke a thread, whose sample tells the record's number */
	RECORD_BLOCK_IO = 6,
	RECORD_DEPARTURE = 7, /* the stack with which a thread leaves a CPU, and the number of that departure */
	RECORD_FAULT = 8,     /* a sample of a page fault, timed */
	RECORD_HEAP = 9,      /* an allocation, with a stack, or what became of it */
};

/*
 * Programs of one kind never interrupt each other on a CPU, but may interrupt those of another kind: each kind has
 * counters, rings and memory to walk with of its own.
 */
enum hook {
	HOOK_EVENT = 0,      /* perf events and tracepoints (bpf_prog_active) */
	HOOK_ARRIVAL = 1,    /* of a thread on a CPU, or its departure: where it cannot be preempted */
	HOOK_WAKING = 2,     /* of a thread, by another one or an interrupt */
	HOOK_SUBMISSION = 3, /* of a request to a block device, until the device has it: by threads */
	HOOK_COMPLETION = 4, /* of such a request: anywhere; nothing is walked */
	HOOK_ALLOCATION = 5, /* and the end of one: uprobes, between which a CPU may change from thread to thread */
};
#define HOOKS 6

/*
 * Each CPU has a ring of its own: this, ring_bytes of records, and room for one sample more, so that none is ever cut
 * in two. A record begins at head modulo ring_bytes; after one that reaches that end the next begins at 0.
 */
struct ring {
	u64 head; /* bytes given out since the start; the programs write it, when a record is whole */
	u64 busy; /* whether a program writes, where another one may interrupt it */
	u64 head_line[6];
	u64 tail; /* bytes taken; user space writes it, in a cache line of its own */
	u64 tail_line[7];
};

/*
 * What a dump says of a thread: this, then its sample as a ring has it. task_state has the kernel's own bits of
 * task_struct.__state and, in the upper half, those of exit_state.
 */
struct dumped_thread {
	u64 cpu_ns; /* time on the CPU so far */
	u64 task_state;
	u8 has_run; /* while it was looked at, or its mappings were locked: there is no stack */
	u8 io_wait;
	u8 reserved[6];
};

struct dumped {
	struct dumped_thread thread;
	struct sample sample;
};

#define COMMAND_LINE_BYTES 4096 /* a power of two; what is longer is cut */

/* A program that begins; of the command line only as many bytes as it has. Or a process that was moved. */
struct new_program {
	u64 boottime_ns;
	u64 cgroup; /* number of its version-2 control group */
	u32 tgid;   /* as the collector's PID namespace has it */
	u16 command_line_bytes;
	u16 has_moved; /* to another control group; nothing else is told then */
	u8 command_line[COMMAND_LINE_BYTES];
};

/* One place of the combining cache; free when count is 0. */
struct combined {
	u64 hash;
	u64 count;
	u64 last_ns;
	struct sample sample;
};

/*
 * For each CPU and hook. entries = idle + filtered + saved + emitted + wakings + steps + combined + Σ lost_*, always; of
 * what was combined, combined = Σ count of the cache and of RECORD_COMBINED records + lost_ring_combined.
 */
struct counters {
	u64 entries; /* runs of the program */
	u64 idle;
	u64 filtered; /* not what was asked for */
	u64 saved; /* what one of the next samples stands for, too (short absences, some of many requests), and who ended them */
	u64 arrivals;           /* runs for a thread that came, left or was woken; steps of requests */
	u64 samples;            /* runs that took a sample: what each switch counts is in one cache line up to here */
	u64 emitted;            /* ring records of samples that are not combined */
	u64 wakings;            /* ring records of kind RECORD_WAKING */
	u64 steps;              /* ring records behind the first of a request, or of an allocation */
	u64 combined;           /* added to the combining cache */
	u64 lost_ring_full;     /* also: the machine got a CPU more than it had rings for */
	u64 lost_ring_combined; /* observations in cache entries that found no room in the ring when evicted */
	u64 lost_nested;        /* interrupted another program that was writing to the ring */
	u64 lost_no_process;    /* the sampled process is not in the collector's PID namespace */
	u64 user_truncated;
	u64 kernel_truncated;
	u64 user_unreadable;
	u64 user_ends[USER_ENDS];      /* walks of user stacks by enum user_end */
	u64 kernel_walks;              /* of kernel stacks, by the kernel's tables */
	u64 kernel_walks_failed;       /* the kernel was asked after all */
	u64 kernel_walks_differ;       /* from what the kernel finds, where both were asked for */
	u64 targets_full;              /* children that could not be added to the filter */
	u64 untold_command_lines;      /* of programs that began, or were moved: no room in their ring */
	u64 uncounted_faults;          /* threads whose page faults are in no process's sum, for want of room */
	u64 timed_samples;             /* of the runs that took a sample, those that looked at the clock twice */
	u64 timed_ns;                  /* spent in those */
	u64 arrival_samples;           /* of the arrivals, those that took a sample */
	u64 traps;                     /* runs for a call of an allocator, or its end */
	u64 timed_passes;              /* of the others, those that looked at the clock twice */
	u64 timed_passes_ns;           /* spent in those */
	u64 event_entries[MAX_EVENTS]; /* without idle ones */
};

/* Read-only once loaded: what the verifier cuts away costs nothing. */
struct config {
	u64 pidns_inode;   /* of the collector's PID namespace; 0: the initial one */
	u64 ring_bytes;    /* of each CPU, a power of two, at least one sample */
	u32 self_tgid;     /* in the collector's namespace; 0: the collector is sampled too */
	u32 max_frames;    /* min(MAX_STACK_FRAMES, kernel.perf_event_max_stack) */
	u32 combine_slots; /* a CPU, a power of two; 0: no combining */
	u32 own_counts; /* a bit each: events whose samples stand for what the event has counted since the last one */
	u32 cpus;       /* that have rings */
	u32 off_cpu_event; /* its index */
	u8 comm[COMM_BYTES];
	u32 tracepoint_periods[MAX_EVENTS]; /* of the hits on a CPU, each so many makes a sample */
	u8 filter_targets;
	u8 filter_comm;
	u8 filter_cgroup;
	u8 inherit;
	u8 user_only;
	u8 kernel_only;
	u8 lone_event; /* the only one that perf tells of; MAX_EVENTS: bpf_get_attach_cookie tells which fired */
	u8 unwind;     /* by tables; otherwise by frame pointers alone */
	u64 code_mask; /* of a return address: without the bits that sign it (arm64) */
	u64 begin_boottime_ns; /* older threads' faults are counted from what they had when they were first looked at */
	u64 first_ring[HOOKS]; /* of its CPUs' rings, the first; memory to walk with is numbered alike */
	u64 off_cpu_min_ns;    /* shorter absences, and longer ones than the next, are not what was asked for */
	u64 off_cpu_max_ns;
	u8 off_cpu;              /* is an event */
	u8 count_faults;         /* of each process, exactly */
	u8 tells_submission;     /* block_io_start does; otherwise it is when a request is first queued or issued */
	u8 queue_comes_first;    /* among what tracepoints tell of requests: until Linux 5.10 */
	u32 addressed;           /* a bit each: events that tell the address of the memory that was touched */
	u32 block_io_event;      /* its index */
	u32 timed_faults;        /* a bit each: events whose samples tell a struct fault */
	u8 off_cpu_at_departure; /* threads are seen when they leave a CPU, not when they come back */
	u8 tells_end;            /* block_io_done does; otherwise it is when the last byte is done */
	u8 asyncio;              /* the task that a thread of Python's runs is told */
	u8 kernel_walk;          /* enum kernel_walker */
	u32 heap_event;          /* its index */
	u64 heap_interval_bytes; /* one allocation in so many bytes is a sample, where allocators are watched */
	u64 page_bits;           /* of the kernel's pages */
};

/* A process for good. */
struct process_key {
	u64 start_boottime_ns;
	u32 tgid;
	u32 reserved;
};

struct fault_counts {
	u64 minor;
	u64 major;
};

/* A kernel address, and how the kernel names it: `name+0xOFFSET/0xSIZE [MODULE]`, or just a number where it cannot. */
struct named_address {
	u64 address;
	u8 name[NAME_BYTES];
};

/* Who walks a kernel stack that begins with registers. */
enum kernel_walker {
	KERNEL_WALK_ITS_OWN = 0,
	KERNEL_WALK_TABLES =
		1, /* our programs, by the kernel's tables (ORC); the kernel where they do not lead to the end */
	KERNEL_WALK_COMPARED = 2, /* both, and where they differ is counted */
};

/* Where the kernel's own unwind tables lie (arch/x86/kernel/unwind_orc.c), and the code that they are for. */
struct orc_tables {
	u64 text_start;
	u64 text_end;
	u64 places;  /* of each entry, as 32-bit distances from themselves: __start_orc_unwind_ip */
	u64 entries; /* __start_orc_unwind */
	u64 places_end;
	u32 count; /* 0: there are none */
	u32 reserved;
};

/*
 * Unwinding of user stacks. What the walker (bpf/stack/unwind.h) reads and user space alone writes, all of it mapped
 * into user space: segments of memory, in which a reference is the index of a 32-bit word; 0 refers to nothing.
 *
 *   process → mappings: starts, then ends with files → file → pages of 4 KiB of the file → rows → rules
 *
 * What is taken out of use is used again only after no program can still be reading it (membarrier(2) waits for RCU).
 */
#define UNWIND_SEGMENT_BITS 18 /* words of 4 bytes: 1 MiB */
#define UNWIND_SEGMENTS 256
#define UNWIND_PAGE_BITS 12
#define UNWIND_RULE_BITS 20 /* of a row: which rule; above them where in its page the row begins */
#define UNWIND_RULES 65536
#define UNWIND_FILES 16384
#define UNWIND_NO_FILE 16384      /* code that is in no file */
#define UNWIND_MAX_MAPPINGS 16384 /* of code, a process */
#define UNWIND_PROCESSES 65536    /* slots of the table of processes */
#define UNWIND_PROBES 16          /* slots to look at for a process, from the one that its id leads to */

enum unwind_cfa {
	CFA_NONE = 0, /* nothing is known of this code */
	CFA_SP = 1,   /* stack pointer + cfa_offset */
	CFA_FP = 2,   /* frame pointer + cfa_offset */
	CFA_REGISTER =
		3, /* cfa_register + cfa_offset: known in the innermost frame and after a signal; rbx in others, too */
	CFA_AT_SP = 4, /* *(stack pointer + cfa_indirect_offset) + cfa_offset */
	CFA_AT_FP = 5,
	CFA_AT_REGISTER = 6,
	CFA_PLT = 7,    /* stack pointer + cfa_offset, + 8 from byte cfa_register of each 16 on */
	CFA_SIGNAL = 8, /* the kernel's frame below a signal handler: all registers */
	CFA_END = 9,    /* nobody called this code */
	CFA_UNSUPPORTED = 10,
	CFA_FRAME_POINTER = 11, /* known to keep a frame pointer */
};

enum unwind_frame_pointer {
	FRAME_POINTER_SAME = 0,
	FRAME_POINTER_AT_CFA = 1,
	FRAME_POINTER_AT_FP = 2,
	FRAME_POINTER_UNDEFINED = 3,
};

enum unwind_return_address {
	RETURN_ADDRESS_AT_CFA = 0,
	RETURN_ADDRESS_IN_REGISTER = 1, /* known in the innermost frame and after a signal */
};

/* Of base_pointer_offset: what the caller had in that register is lost. */
#define BASE_POINTER_LOST 1

/* crates/core/src/unwind/rule.rs says it at length. */
struct unwind_rule {
	u8 cfa; /* enum unwind_cfa */
	u8 cfa_register;
	u8 frame_pointer;  /* enum unwind_frame_pointer */
	u8 return_address; /* enum unwind_return_address */
	s16 frame_pointer_offset;
	s16 return_address_offset; /* from the CFA; in a register: its number */
	s32 cfa_offset;
	s16 cfa_indirect_offset;
	s16 base_pointer_offset; /* where the caller's rbx is stored, from the CFA; 0: it is in its register */
};

/* A file's table; pages 0: not there. */
struct unwind_file {
	u32 pages;      /* refers to a struct unwind_page for each page */
	u32 page_count; /* pages and page_count are written at once */
	u32 first_page; /* of the file */
	u8 has_none;    /* there will be none: nothing in the file tells how to unwind its code */
	u8 wanted;      /* set by the walker, when it misses the table for the first time */
	u16 reserved;
};

/* A file, as the kernel knows it; of the vDSO all is 0. */
struct inode_key {
	u64 inode;
	u32 device; /* major << 20 | minor */
	u32 reserved;
};

/* A file that has a table, for processes whose mappings are not published. Addresses are the file's own. */
struct known_file {
	u64 code_offset; /* in the file: its first code */
	u64 code_address;
	u64 code_bytes;
	u64 build_id_address; /* 0: it has none */
	u64 build_id;         /* the first bytes of it */
	u64 file;
	struct inode_key interpreter; /* of a program: what loaded it the last time; inode 0: not known */
};

struct unwind_page {
	u32 rows; /* refers to the first one */
	u32 count;
};

/* Before the starts of the mappings, u64 each, sorted; behind them one of the next struct for each. */
struct unwind_mappings {
	u32 count;
	u32 publication; /* counts up; never 0 */
	u32 python;      /* refers to the struct python of the process; 0: it runs none. Written when it is found out */
	u32 reserved;
};

struct unwind_mapping {
	u64 end;
	u64 file_offset;
	u32 file; /* index of its struct unwind_file, or UNWIND_NO_FILE */
	u32 reserved;
};

/* How the last frame of a call of the evaluation loop is told. */
enum python_entry {
	ENTRY_EACH = 1, /* each frame is one: until 3.10 */
	ENTRY_FLAG = 2, /* a byte of the frame is not 0: 3.11 */
	ENTRY_SHIM =
		3, /* behind it comes a frame that runs no code, whose owner is at least `shim_owner`: from 3.12 on */
};

/* Where the walker finds Python's frames in a process. Offsets are bytes; those of words are multiples of 8. */
struct python {
	u64 gil;                   /* address of the main interpreter's lock; 0: there is none, or it is not known */
	u64 current_tasks;         /* address of a dict of the tasks that are run, by event loop; 0: not asked for */
	s32 thread_state;          /* where a thread has the address of its state, from its thread pointer */
	s32 thread_state_indirect; /* or from what is stored there, which may be 0; PYTHON_STATE_IS_DIRECT: not so */
	u16 current_frame;         /* in the thread state */
	u16 frame_in_cframe;       /* in what is stored there; PYTHON_NO_CFRAME: that is the frame */
	u16 frame_bytes;           /* of a frame, to be read: at most 128 */
	u16 code;
	u16 previous;
	u16 instruction;
	u16 owner;
	u8 entry; /* enum python_entry */
	u8 shim_owner;
	u16 names;           /* of a code object: so many words from here on point to its file, names and lines */
	u8 names_words;      /* 0: it is not known where; at most 4 */
	u8 object_bytes;     /* what every object begins with; in a text its length and its hash come behind */
	u16 running_task;    /* in the thread state; 0: it is not there, or not asked for */
	u16 task_coroutine;  /* in a task; its name comes behind */
	u16 coroutine_frame; /* in a coroutine */
	u8 code_tag;         /* bits of a reference to a code object that are not part of it */
	u8 instruction_bytes;
	u16 running_state; /* where the state of the thread that holds the lock is, from the lock; 0: each has its own */
	u16 loop_mark;  /* in a thread state: address of what the newest call of the evaluation loop has on the stack */
	u16 gil_holder; /* in a lock: address of the state of the thread that held it last */
	u16 gil_locked; /* in a lock: an s32, 1 while it is held */
	u16 interpreter;     /* in a thread state: address of its interpreter; 0: there is but one lock */
	u16 interpreter_gil; /* in an interpreter: address of its lock */
};
#define PYTHON_NO_CFRAME 65535
#define PYTHON_STATE_IS_DIRECT 65535

/* A slot of the table of processes, a u64: tgid in the upper half, reference to its mappings in the lower. */

#endif
