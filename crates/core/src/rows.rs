//! What a profile is made of, row by row. `src/stackhound/profile/schema.py` says what each column means.

use crate::address::{FileOffset, ProcessAddr};
use crate::heap::{Estimate, Fate};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// The row number.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A row of `objects`.
    ObjectId
}
id! {
    /// A row of `locations`.
    LocationId
}
id! {
    /// A row of `stacks`.
    StackId
}
id! {
    /// A row of `functions`.
    FunctionId
}
id! {
    /// A row of `processes`.
    ProcessId
}
id! {
    /// A row of `threads`.
    ThreadId
}
id! {
    /// A block device: no table, its name is in the rows that are about it.
    DeviceId
}
id! {
    /// A control group, likewise.
    CgroupId
}

impl StackId {
    /// The stack without frames.
    pub const EMPTY: Self = Self(0);
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// An executable or shared library.
    Elf,
    /// The kernel's own text.
    Kernel,
    /// A kernel module.
    Module,
    /// The code that the kernel maps into each process.
    Vdso,
    /// A BPF program.
    Bpf,
    /// Code that a process made at run time.
    Jit,
    /// A Python code object.
    Python,
    /// Virtual: an asyncio task, or Python code of one that awaits another one.
    Task,
    /// A file or memory that was touched, and is no code.
    Data,
    /// Anything else, and addresses outside any mapping.
    Unknown,
}

impl ObjectKind {
    /// As in the column `objects.kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Elf => "elf",
            Self::Kernel => "kernel",
            Self::Module => "module",
            Self::Vdso => "vdso",
            Self::Bpf => "bpf",
            Self::Jit => "jit",
            Self::Python => "python",
            Self::Task => "task",
            Self::Data => "data",
            Self::Unknown => "unknown",
        }
    }
}

/// One program in one process.
#[derive(Clone, Debug, Default)]
pub struct ProcessRow {
    /// Process id in the initial namespace.
    pub pid: u32,
    /// Process id in its own PID namespace.
    pub ns_pid: u32,
    /// The process that forked it.
    pub parent_pid: u32,
    /// When the process started.
    pub start_boottime_ns: u64,
    /// Name of the main thread.
    pub comm: String,
    /// Path of the executable, as the process sees it.
    pub executable: String,
    /// Arguments, separated by spaces.
    pub command_line: String,
    /// Path of the cgroup v2.
    pub cgroup: String,
    /// Container id; empty: none.
    pub container: String,
    /// When it ended, if it did.
    pub exit_boottime_ns: Option<u64>,
}

/// Where one process has an object.
#[derive(Clone, Debug)]
pub struct MappingRow {
    /// Whose mapping it is.
    pub process: ProcessId,
    /// First address.
    pub start: ProcessAddr,
    /// First address after it.
    pub end: ProcessAddr,
    /// Where in the file it begins.
    pub file_offset: FileOffset,
    /// What is mapped.
    pub object: ObjectId,
    /// Path of the file, as the process sees it.
    pub path: String,
    /// When it was first seen.
    pub first_ns: u64,
}

/// What is sampled.
#[derive(Clone, Debug)]
pub struct EventRow {
    /// As the user calls it.
    pub name: String,
    /// Unit of the samples' values.
    pub unit: String,
    /// What fired.
    pub trigger: String,
    /// `frequency` or `period`.
    pub mode: String,
    /// Hz, or the period.
    pub rate: u64,
}

/// What a thread was doing when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// On a CPU.
    Running,
    /// Waiting for a CPU.
    Runnable,
    /// Until something happens, or a signal comes.
    Sleeping,
    /// Until something happens; most often for a device.
    Uninterruptible,
    /// By a signal.
    Stopped,
    /// By a debugger.
    Traced,
    /// By a cgroup's freezer, or while the machine is being suspended.
    Frozen,
    /// A kernel thread that has nothing to do.
    Idle,
    /// Nobody has taken note of its end yet.
    Ended,
}

impl ThreadState {
    /// As in the column `thread_states.state`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Runnable => "runnable",
            Self::Sleeping => "sleeping",
            Self::Uninterruptible => "uninterruptible",
            Self::Stopped => "stopped",
            Self::Traced => "traced",
            Self::Frozen => "frozen",
            Self::Idle => "idle",
            Self::Ended => "ended",
        }
    }
}

/// What a dump says of a thread beyond its sample.
#[derive(Clone, Copy, Debug)]
pub struct ThreadStateRow {
    /// What it was doing.
    pub state: ThreadState,
    /// Whether it was waiting for a device.
    pub io_wait: bool,
    /// Its time on the CPU so far.
    pub cpu_ns: u64,
    /// Whether the sample has its stack: not of a thread that ran each time that it was looked at.
    pub has_stack: bool,
}

/// How often an event happened in a process, whether or not it was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTotalRow {
    /// Row of `events`.
    pub event: u16,
    /// The process; 0: all that was recorded.
    pub pid: u32,
    /// When the process started; 0 for all that was recorded.
    pub start_boottime_ns: u64,
    /// So often, exactly.
    pub count: u64,
}

/// One observation, or several alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleRow<'a> {
    /// Row of `events`.
    pub event: u16,
    /// When.
    pub boottime_ns: u64,
    /// How long it lasted; 0 for an instant.
    pub duration_ns: u64,
    /// Where.
    pub cpu: u16,
    /// Who.
    pub thread: ThreadId,
    /// Doing what.
    pub stack: StackId,
    /// In the event's unit, over all `count` observations.
    pub value: u64,
    /// Observations that this row stands for.
    pub count: u64,
    /// When the last of them was.
    pub last_ns: u64,
    /// `SampleFlag` bits.
    pub flags: u32,
    /// The virtual addresses behind the stack, leaf first, for the table `addresses`.
    pub addresses: Option<&'a [u64]>,
    /// The hardware period behind a nominal value, for the table `periods`.
    pub period: Option<u64>,
    /// The memory that was touched, and where in it, for the table `faults`.
    pub memory: Option<(ObjectId, u64)>,
    /// How long the fault took; 0: not measured.
    pub fault_ns: u64,
    /// Of time off the CPU, for the table `off_cpu`.
    pub off_cpu: Option<OffCpuRow>,
    /// Who ended that, for the table `wakers`.
    pub waker: Option<WakerRow>,
    /// Of a request to a block device, for the table `block_io`.
    pub block_io: Option<BlockIoRow>,
    /// Of an allocation, for the table `heap`.
    pub heap: Option<HeapRow>,
}

/// Who woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakerRow {
    /// Or an interrupt, which is a thread of process 0.
    pub thread: ThreadId,
    /// With which it did.
    pub stack: StackId,
}

/// A request to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIoRow {
    /// Which, by [`crate::profile::Profile::device`].
    pub device: DeviceId,
    /// In words.
    pub operation: &'static str,
    /// Whether somebody waits for it.
    pub is_sync: bool,
    /// Whether it is of a file system's own data.
    pub is_meta: bool,
    /// The first one, of 512 bytes.
    pub sector: u64,
    /// Those that were done.
    pub bytes: u64,
    /// Until it was handed to the device; None where it never was by itself, or nobody told.
    pub queue_ns: Option<u64>,
    /// From then to its end.
    pub device_ns: Option<u64>,
    /// Times that the device had no room for it.
    pub requeues: u32,
    /// Whether some bytes of it were not read or written.
    pub is_failure: bool,
    /// The one that it is charged to, by [`crate::profile::Profile::cgroup`].
    pub cgroup: CgroupId,
}

/// All requests to a device with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIoTotalRow {
    /// Which, by [`crate::profile::Profile::device`].
    pub device: DeviceId,
    /// In words.
    pub operation: &'static str,
    /// So many.
    pub requests: u64,
    /// Of all of them.
    pub bytes: u64,
    /// The time of all of them.
    pub latency_ns: u64,
}

/// An allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapRow {
    /// Bytes that were asked for.
    pub size: u64,
    /// What it stands for.
    pub estimate: Estimate,
    /// What became of it.
    pub fate: Fate,
    /// Until it was freed.
    pub lifetime_ns: Option<u64>,
}

/// All allocations of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapTotalRow {
    /// The process.
    pub pid: u32,
    /// When it started.
    pub start_boottime_ns: u64,
    /// So many, exactly.
    pub allocations: u64,
    /// Bytes that they asked for, exactly.
    pub bytes: u64,
}

/// How a thread was away from the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpuRow {
    /// Why it left.
    pub state: OffCpuState,
    /// Of the time away: ready, but waiting for a CPU.
    pub queued_ns: u64,
}

/// Why a thread left the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OffCpuState {
    /// It did not mean to: another one had its turn.
    Preempted,
    /// For a block device.
    Disk,
    /// For anything else.
    Waiting,
}

impl OffCpuState {
    /// As in the column `off_cpu.state`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Disk => "disk",
            Self::Waiting => "waiting",
        }
    }
}
