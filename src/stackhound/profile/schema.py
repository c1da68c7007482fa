"""The tables of a profile: names, columns, types, and what each id points to.

The Rust core writes these tables (``crates/core/src/tables.rs``); this file is their Python side, and a
test compares the two. Ids are row numbers of the table that they name, unless said otherwise.

    samples ─ event ──→ events
       │  ├─ thread ──→ threads ─ process ──→ processes ←─ process ─ mappings ─ object ─┐
       │  └─ stack ───→ stacks ─ parent ──→ stacks                                      │
       │                   └─ location ──→ locations ─ object ──→ objects ←─────────────┘
       └─ id ←─ sample ─ addresses, …          └──← location ─ lines ─ function ──→ functions

A table or a column that is not listed here is kept as it is when a profile is rewritten.
"""

from __future__ import annotations

from typing import Final

FORMAT_VERSION: Final = 1

#: Column types are Arrow's own names. ``utf8?`` marks a column that may be null.
TABLES: Final[dict[str, dict[str, str]]] = {
    # One observation each, ordered by time. Times are CLOCK_BOOTTIME; of what lasted, when it ended.
    "samples": {
        "id": "uint64",
        "event": "uint16",
        "boottime_ns": "uint64",
        "duration_ns": "uint64",  # how long it lasted; 0 for an instant
        "cpu": "uint16",
        "thread": "uint32",
        "stack": "uint32",  # 0 is the empty stack
        "value": "uint64",  # in the event's unit, the sum over ``count`` observations
        # Observations that this row stands for; > 1 under --aggregate, and, estimated, for short times off the CPU.
        "count": "uint64",
        "last_ns": "uint64",  # time of the last of them
        "flags": "uint32",  # SampleFlag bits
    },
    # A prefix tree: row 0 is the empty stack, parents come before children, the path from row 0 is root → leaf.
    "stacks": {
        "id": "uint32",
        "parent": "uint32",
        "location": "uint32",
        "depth": "uint16",  # frames from the root; 0 for row 0
        "hash": "uint64",  # of the path's contents: equal across processes, hosts and files
    },
    # One physical frame each, or (kind task) a virtual one, which nobody executes. A caller's address is its return
    # address − 1, so that it lies in the call.
    "locations": {
        "id": "uint32",
        "object": "uint32",
        # In the object's own space. Made code (kind jit) has the process's addresses; what took the place of other code
        # has, above bit 56, the number of those that had been there before.
        "address": "uint64",
        "reason": "utf8?",  # why it has no name; null when it has one
    },
    # One row a function at a location, innermost (depth 0) first; several where functions were inlined.
    "lines": {
        "location": "uint32",
        "depth": "uint16",
        "function": "uint32",
        "line": "uint32",  # 0: unknown
        "column": "uint32",  # 0: unknown
    },
    "functions": {
        "id": "uint32",
        "name": "utf8",  # demangled
        "system_name": "utf8",  # as the symbol table or DWARF has it
        "file": "utf8",  # empty: unknown
        "object": "uint32",
        "address": "uint64",  # start, in the object's own space; 0 for an inlined function
        "size": "uint64",  # bytes; 0: unknown
    },
    "objects": {
        "id": "uint32",
        "kind": "utf8",  # one of OBJECT_KINDS
        "path": "utf8",  # as the first process that mapped it saw it; a name in brackets where there is no file
        "build_id": "utf8",  # hex; empty: none
    },
    "mappings": {
        "id": "uint32",
        "process": "uint32",
        "start": "uint64",
        "end": "uint64",
        "file_offset": "uint64",
        "object": "uint32",
        "path": "utf8",
        "first_ns": "uint64",
    },
    # One row a (tid, comm): a thread that renames itself gets another row.
    "threads": {
        "id": "uint32",
        "process": "uint32",
        "tid": "uint32",
        "ns_tid": "uint32",  # in the thread's own PID namespace
        "comm": "utf8",
    },
    # One row a program: the same pid has a new row after exec.
    "processes": {
        "id": "uint32",
        "pid": "uint32",
        "ns_pid": "uint32",
        "parent_pid": "uint32",
        "start_boottime_ns": "uint64",
        "comm": "utf8",
        "executable": "utf8",
        "command_line": "utf8",
        "cgroup": "utf8",
        "container": "utf8",
        "exit_boottime_ns": "uint64?",
    },
    "events": {
        "id": "uint16",
        "name": "utf8",  # ``cpu``, ``page-faults``, ``sched:sched_switch``
        "unit": "utf8",  # ``nanoseconds``, ``count``, ``bytes``
        "trigger": "utf8",  # what fired: ``cpu-clock``, ``cycles``, …
        "mode": "utf8",  # ``frequency`` or ``period``
        "rate": "uint64",  # Hz or the period
    },
    # Everything that should have been recorded and was not, by cause.
    "losses": {
        "cause": "utf8",
        "count": "uint64",
        "estimated": "bool",
        "meaning": "utf8",
    },
}

#: Tables that only some recordings have. Those with a column ``sample`` say more about samples, by their ids.
OPTIONAL_TABLES: Final[dict[str, dict[str, str]]] = {
    # The virtual addresses behind a sample's stack, leaf first, as the CPU had them (`stream`).
    "addresses": {"sample": "uint64", "addresses": "list<uint64>"},
    # The hardware period behind a ``cpu`` sample whose value is nominal time.
    "periods": {"sample": "uint64", "period": "uint64"},
    # What the thread of a dump's sample was doing.
    "thread_states": {
        "sample": "uint64",
        "state": "utf8",  # one of THREAD_STATES
        "io_wait": "bool",  # for a device
        "cpu_ns": "uint64",  # its time on the CPU so far
        "has_stack": "bool",  # false: it ran each time that it was looked at
    },
    # The memory whose touch a page fault was of. No row: it was gone when it was looked at.
    "faults": {
        "sample": "uint64",
        "object": "uint32",  # a file, or memory without one: ``[heap]``, ``[stack]``, ``[shared memory]``, …
        "offset": "uint64",  # bytes in the file, or where there is none from the start of the mapping
        "ns": "uint64",  # how long it took; 0: not measured
    },
    # How often an event truly happened, sampled or not: major-faults, minor-faults. Samples' values add up to it within
    # sampling error. Of a process it is the kernel's own count (minflt and majflt in /proc/PID/stat), which has also
    # the faults that the kernel takes for the process (as when it pins memory); these are no events and never sampled.
    "event_totals": {
        "event": "uint16",
        "pid": "uint32",  # a process that was sampled; 0: all that was recorded
        "start_boottime_ns": "uint64",  # of the process, as in ``processes``; nothing where pid is 0
        "count": "uint64",
    },
    # How a thread was off the CPU.
    "off_cpu": {
        "sample": "uint64",
        "state": "utf8",  # ``preempted``, ``disk`` or ``waiting``
        "reason": "utf8",  # what it waited for, told by the kernel's functions: ``futex``, ``poll``, …, ``other``
        "queued_ns": "uint64",  # of the time away: ready, but without a CPU
    },
    # Who woke the thread of an off-cpu sample (``--wakers``). No row: nobody had to, or nobody was expected to matter.
    "wakers": {
        "sample": "uint64",
        "thread": "uint32",  # of process 0 where it was an interrupt, or a thread that cannot be seen from here
        "stack": "uint32",  # with which it did; of an interrupt only its own part
    },
    # A request to a block device. The sample has the thread that submitted it, and its stack; its duration is from
    # there to its end, and its value that of all requests that it stands for. Under --aggregate these are sums.
    "block_io": {
        "sample": "uint64",
        "device": "utf8",  # ``sda``, ``nvme0n1``, ``loop0``
        "operation": "utf8",  # ``read``, ``read ahead``, ``write``, ``flush``, ``discard``, …
        "sync": "bool",  # somebody waits for it
        "meta": "bool",  # of the file system's own data
        "sector": "uint64",  # the first one, of 512 bytes
        "bytes": "uint64",
        "queue_ns": "uint64?",  # until it was handed to the device; null: it never was by itself (flushes)
        "device_ns": "uint64?",  # from then on
        "requeues": "uint32",  # times that the device had no room for it
        "failed": "bool",
        "cgroup": "utf8",  # charged with it; of the page cache's writes that of the writer; empty: not told
    },
    # All requests that were asked for and have ended, sampled or not.
    "block_io_totals": {
        "device": "utf8",
        "operation": "utf8",
        "requests": "uint64",
        "bytes": "uint64",
        "latency_ns": "uint64",  # the sum of their times
    },
    # An allocation. The sample's value is what it stands for, in bytes, and its count in allocations, as here.
    "heap": {
        "sample": "uint64",
        "alloc_objects": "uint64",  # these four as pprof calls them; estimates
        "alloc_space": "uint64",
        "inuse_objects": "uint64",  # not freed until its program or the recording ended
        "inuse_space": "uint64",
        "size": "uint64",  # bytes that this one asked for
        "fate": "utf8",  # ``freed``, ``in use``, or ``unknown``: nobody could follow it
        "lifetime_ns": "uint64?",  # until it was freed; null: it was not, or nobody knows
    },
    # All allocations of processes that have told of them up to their end, chosen as samples or not.
    "heap_totals": {
        "pid": "uint32",
        "start_boottime_ns": "uint64",
        "allocations": "uint64",
        "bytes": "uint64",
    },
}

#: Those that say more about samples.
SIDE_TABLES: Final = tuple(name for name, columns in OPTIONAL_TABLES.items() if "sample" in columns)

#: Columns that hold row numbers, and of which table.
REFERENCES: Final[dict[tuple[str, str], str]] = {
    ("samples", "event"): "events",
    ("samples", "thread"): "threads",
    ("samples", "stack"): "stacks",
    ("stacks", "parent"): "stacks",
    ("stacks", "location"): "locations",  # row 0, the empty stack, has none
    ("locations", "object"): "objects",
    ("lines", "location"): "locations",
    ("lines", "function"): "functions",
    ("functions", "object"): "objects",
    ("mappings", "process"): "processes",
    ("mappings", "object"): "objects",
    ("threads", "process"): "processes",
    ("faults", "object"): "objects",
    ("wakers", "thread"): "threads",
    ("wakers", "stack"): "stacks",
    ("event_totals", "event"): "events",
}

THREAD_STATES: Final = (
    "running",
    "runnable",  # waits for a CPU
    "sleeping",
    "uninterruptible",
    "stopped",  # by a signal
    "traced",  # stopped by a debugger
    "frozen",
    "idle",  # a kernel thread without work
    "ended",  # and nobody has taken note of it
)
#: ``task`` is virtual: an asyncio task by its name, or Python code of a task that awaits another one.
#: ``data`` is no code: a file or memory that was touched. ``waker`` is code that another thread ran (`show_wakers`).
OBJECT_KINDS: Final = ("elf", "kernel", "module", "vdso", "bpf", "jit", "python", "task", "data", "waker", "unknown")
KERNEL_KINDS: Final = frozenset({"kernel", "module", "bpf"})


class SampleFlag:
    """Bits of ``samples.flags``; ``bpf/abi.h`` has the same."""

    USER_TRUNCATED: Final = 1
    KERNEL_TRUNCATED: Final = 2
    USER_UNREADABLE: Final = 4  # the walker could not read the user stack
    IN_KERNEL: Final = 8  # the CPU was in the kernel
    KERNEL_THREAD: Final = 16  # there is no user stack
    GUEST: Final = 32  # the CPU ran a virtual machine's guest
    USER_BROKEN: Final = 64  # the walk left the code, as without frame pointers: what followed was cut off
    USER_FRAME_POINTERS: Final = 128  # some user frames were found by frame pointers, for want of a rule
    PYTHON: Final = 0x1000  # the thread runs Python: its frames are among the user frames
    GIL_KNOWN: Final = 0x2000
    GIL_HELD: Final = 0x4000  # the thread holds the interpreter's lock
    PYTHON_CUT: Final = 0x8000  # Python's frames are not all there
    PYTHON_GUESSED: Final = 0x10000  # some may be in the place of others, between the native frames
    USER_END: Final = 0xF00  # how the walk of the user stack ended: one of USER_ENDS
    USER_END_SHIFT: Final = 8


#: By the number in ``SampleFlag.USER_END``; ``bpf/abi.h`` says more.
USER_ENDS: Final = (
    "unknown",  # walked by frame pointers, which tell no root
    "complete",
    "truncated",
    "mappings not known yet",
    "outside code",
    "table not there yet",
    "no rule",
    "unsupported rule",
    "stack unreadable",
    "no progress",
    "32-bit program",
    "thread was ending",  # had given its memory back: there is no user stack
    "program was being loaded",  # by execve(2), in place of another: there is none yet
)
