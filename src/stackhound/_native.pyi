"""The contract with the Rust module, checked by stubtest."""

from typing import Any, ClassVar, Protocol, final

__all__ = [
    "BpfObject",
    "BpfStatistics",
    "CodeReader",
    "NativeError",
    "Session",
    "Tables",
    "bpf_contents",
    "bpf_maps",
    "bpf_programs",
    "bpf_programs_alone",
    "build_id",
    "call_tree",
    "dump",
    "encode_pprof",
    "heap_library",
    "inspect_process",
    "intern_paths",
    "list_events",
    "probe",
    "probe_block_io",
    "probe_event",
    "probe_heap",
    "probe_off_cpu",
    "read_parquet",
    "stack_hashes",
    "stack_paths",
    "write_parquet",
]

class ArrowArray(Protocol):
    """Anything with the Arrow PyCapsule interface for an array (arro3, polars, pyarrow)."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class ArrowStream(Protocol):
    """Anything with the Arrow PyCapsule interface for a stream of batches."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class NativeError(Exception):
    """A failed request. ``args`` are (kind, message, remedy); `stackhound.errors` makes its own of it."""

@final
class Tables:
    """Tables by name. Each one is handed over once, without a copy."""

    def names(self) -> list[str]: ...
    def take(self, name: str) -> ArrowStream:
        """The table ``name``; KeyError when there is none or it was taken."""

@final
class Session:
    """One recording: created, started, finished. The GIL is released in each call that waits."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Check ``options`` (see recording/options.py: ``RecordOptions.native``). Touches nothing."""
    def start(self) -> None:
        """Load and attach the BPF programs, read what runs already, begin sampling."""
    def wait(self, timeout_s: float) -> str:
        """``timeout``, ``targets-exited`` (every `pids` process is gone) or ``failed``."""
    def add_pid(self, pid: int) -> None:
        """Let a process into the filter while the recording runs."""
    def status(self) -> dict[str, int | float]:
        """samples, lost, entries, bpf_ns, bpf_runs, collector_cpu_ns, resident_bytes, elapsed_ns."""
    def take(self, lines: bool) -> Tables:
        """The rows that are new since the last take, symbolized, in all tables (for `stream`)."""
    def stop(self, lines: bool) -> list[tuple[str, str]]:
        """Stop and drain. Returns (build-id, path) of files whose debug files are not here, most important first."""
    def finish(self, lines: bool) -> tuple[Tables, str]:
        """Stop and drain unless that is done, symbolize. Returns the tables and the metadata as JSON text."""
    def close(self) -> None:
        """Stop and throw away. Does nothing the second time."""

def dump(options: dict[str, Any]) -> tuple[Tables, str]:
    """What every thread of the processes ``pids`` does now, none of which is stopped.

    Args:
        options: as of a `Session`; its events are not used.

    Returns:
        One sample a thread of the event ``dump``, the table ``thread_states``, and the metadata as JSON text.
    """

@final
class CodeReader:
    """What a symbol server is asked about ELF files. Keeps what it parsed; the GIL is released in each call.

    Every call names a file by its path and its build-id in hexadecimal digits (empty: none), and raises NativeError
    where that is not the file which is there now, or where reading it takes longer than 20 s.
    """

    def __init__(self, debug_dirs: list[str]) -> None:
        """Look for debug files in these directories, and then in the usual ones."""
    def functions(
        self, path: str, build_id: str, addresses: list[int]
    ) -> list[list[tuple[str, str, int, int, int, int]]]:
        """For each address (name, source file, line, column, start, size) of the functions there, innermost first.

        A number is 0 and a file empty where it is not known; an inlined function has no start. None at an address of
        which nothing is known.
        """
    def instructions(
        self, path: str, build_id: str, start: int, size: int, whole: bool
    ) -> tuple[str, int, list[tuple[int, str]]]:
        """(``x86_64`` or ``aarch64``, bytes, [(offset from start, text)]) of code.

        Args:
            start, size: in the file's own addresses, in bytes. At most 1 MiB is shown.
            whole: go on to the end of the function at ``start``, where that is known.
        """
    def source_md5(self, path: str, build_id: str, address: int, source: str) -> bytes | None:
        """The MD5 sum of a source file when it was compiled, if the debug information at ``address`` says it."""

def bpf_programs() -> list[dict[str, Any]]:
    """All BPF programs of the machine; the keys are the fields of `stackhound.bpf.Program`."""

def bpf_programs_alone(ids: list[int]) -> list[dict[str, Any]]:
    """Those with these ids, as far as they are there; ``attachments`` and ``owners`` are empty."""

def bpf_maps(ids: list[int]) -> list[dict[str, Any]]:
    """The BPF maps with these ids, as far as they are there; the keys are the fields of `stackhound.bpf.Map`."""

def bpf_contents(path: str) -> list[tuple[str, str, str]]:
    """(name, section, type) of the programs in an object file; an empty type: nobody knows."""

@final
class BpfObject:
    """Programs of an object file, loaded if the kernel takes them. To be used in the thread that made it."""

    def __init__(self, path: str, programs: list[str], in_words: bool) -> None:
        """``in_words``: keep each step of the verifier, up to 16 MiB a program."""
    NOTHING: ClassVar[str]
    @staticmethod
    def nothing(section: str, return_value: int) -> BpfObject:
        """An object with one program, ``NOTHING``, that does nothing, to be attached as those of a section are."""
    def is_loaded(self) -> bool: ...
    def verified(self) -> dict[str, tuple[str, str]]:
        """By program what the verifier said, and why the object was refused or an empty text."""
    def id(self, program: str) -> int: ...
    def sizes(self, program: str) -> tuple[int, int]:
        """(instructions after the verifier, bytes of machine code)."""
    def run(self, program: str, data: bytes, context: bytes, repeat: int) -> tuple[int, int]:
        """(return value, ns of the whole call) of running it ``repeat`` times.

        ``repeat`` is 1 for what runs once a call.
        """
    def run_empty(self, program: str, data: bytes, context: bytes, repeat: int, return_value: int) -> tuple[int, int]:
        """The same of a program of its kind that does nothing but return this value."""
    def empty_id(self, program: str, return_value: int) -> int:
        """The kernel's number of that one."""
    def update(self, map: str, key: bytes, value: bytes) -> None: ...
    def attach(self, program: str, interface: str) -> None:
        """Where its section says; for perf events to the clock of each CPU, for XDP to a network interface."""
    def detach(self, program: str) -> None: ...
    def close(self) -> None:
        """Unload it."""

@final
class BpfStatistics:
    """The kernel's statistics of BPF programs, switched on until it is closed."""

    def __init__(self) -> None: ...
    def overhead(self) -> tuple[float, float]:
        """What they take of each run of an empty program, in ns: counted as the program's own, and all of it."""
    def read(self) -> list[tuple[int, int, int, int]]:
        """(id, runs, ns, recursion misses) of each program, since statistics were on for the first time."""
    def close(self) -> None:
        """Switch them off. Does nothing the second time."""

def build_id(path: str) -> str:
    """The build-id of an ELF file in hexadecimal digits; empty when it has none, or is no ELF file."""

def list_events() -> list[tuple[str, str, str]]:
    """(name, kind, why it cannot be used here or ''), for each tracepoint of this machine."""

def probe() -> list[tuple[str, str, str]]:
    """(name, state, detail) of what this kernel lets us do, tried out; state: ``ok``, ``degraded``, ``missing``."""

def inspect_process(pid: int) -> dict[str, Any]:
    """What a process offers of its code. Nothing is changed.

    Returns:
        comm; mappings, a list of dictionaries by address: start, end, path (a name in brackets, or empty: no file),
        build_id (hex), sections (names of the telling ones: ``.eh_frame``, ``.symtab``, ...), debug_link, reason
        (why its file cannot be read, or empty); perf_map_names and jitdump_codes: counts, None without such a file.
    """

def probe_off_cpu() -> str:
    """Why time off the CPU cannot be recorded here; empty when it can."""

def probe_block_io() -> str:
    """Why requests to block devices cannot be recorded here; empty when they can."""

def probe_heap() -> str:
    """Why allocations cannot be followed here; empty when they can."""

def heap_library() -> bytes:
    """The shared library in which programs choose samples of their allocations (``preload/heap.c``)."""

def probe_event(type: int, config: int) -> str:
    """Why perf_event_open(2) refuses this event here; empty when it does not."""

def read_parquet(data: bytes) -> ArrowStream: ...
def write_parquet(table: ArrowStream, sorted_samples: bool = False) -> bytes: ...
def call_tree(
    *,
    root: ArrowArray | None,
    stack: ArrowArray,
    value: ArrowArray,
    stack_parent: ArrowArray,
    stack_location: ArrowArray,
    frame_offsets: ArrowArray,
    frames: ArrowArray,
) -> ArrowStream:
    """Merge samples into one tree of frames.

    Args:
        root: uint32 (n_samples,): a label per sample that becomes the first level; None for no such level.
        stack: uint32 (n_samples,): stack ids.
        value: uint64 (n_samples,): weights.
        stack_parent, stack_location: uint32 (n_stacks,): the prefix tree.
        frame_offsets, frames: uint32 (n_locations + 1,), uint32 (…): the frames at each location, outermost first.

    Returns:
        Columns parent uint32, frame uint32, depth uint32, self uint64, total uint64. Row 0 is the root
        (frame 2**32 − 1); parents come before children.
    """

def intern_paths(*, offsets: ArrowArray, locations: ArrowArray) -> tuple[ArrowStream, ArrowArray]:
    """Build a prefix tree of paths given root → leaf (CSR: uint32 offsets (n + 1,), uint32 locations).

    Returns:
        (parent, location, depth) of each stack, row 0 the empty one, and uint32 (n,): each path's stack id.
    """

def stack_paths(*, stack_parent: ArrowArray, stack_location: ArrowArray) -> tuple[ArrowArray, ArrowArray]:
    """The path root → leaf of every stack, as CSR: uint32 offsets (n_stacks + 1,), uint32 locations."""

def stack_hashes(
    *,
    stack_parent: ArrowArray,
    stack_location: ArrowArray,
    location_object: ArrowArray,
    location_address: ArrowArray,
    objects: list[tuple[str, str]],
) -> ArrowArray:
    """The hash of every stack's contents, as in ``stacks.hash``: uint64 (n_stacks,).

    Args:
        stack_parent, stack_location: uint32 (n_stacks,): the prefix tree.
        location_object, location_address: uint32, uint64 (n_locations,).
        objects: (kind, build-id, or path where there is none) of each object.
    """

def encode_pprof(tables: dict[str, ArrowStream], event: int, options: dict[str, Any]) -> bytes:
    """One event's samples as an uncompressed pprof protobuf (perftools.profiles.Profile).

    options: time_unix_ns, duration_ns, period, comments (list of str).
    """
