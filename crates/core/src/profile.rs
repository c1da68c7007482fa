//! A profile while it is recorded: everything interned, in columns that only grow.

use std::ops::Range;

use arrow_array::RecordBatch;
use hashbrown::{HashMap, HashSet};

use crate::address::ObjectAddr;
use crate::intern::{Locations, Objects, Threads};
use crate::rows::{
    BlockIoTotalRow, CgroupId, DeviceId, EventRow, EventTotalRow, HeapTotalRow, LocationId, MappingRow, ObjectId,
    ObjectKind, ProcessId, ProcessRow, SampleRow, StackId, ThreadId, ThreadStateRow,
};
use crate::samples::Samples;
use crate::stacks::{Rows, Stacks};
use crate::symbolize::{Functions, LineRow, Pool};

/// Tables by name.
pub type Tables = Vec<(&'static str, RecordBatch)>;

/// All tables of a profile, growing.
#[derive(Default)]
pub struct Profile {
    pub(crate) objects: Objects,
    pub(crate) locations: Locations,
    pub(crate) stacks: Stacks,
    /// Of the stacks that were handed over.
    rows: Rows,
    pub(crate) threads: Threads,
    pub(crate) functions: Functions,
    pub(crate) lines: Vec<LineRow>,
    pub(crate) processes: Vec<ProcessRow>,
    pub(crate) mappings: Vec<MappingRow>,
    pub(crate) events: Vec<EventRow>,
    pub(crate) losses: Vec<LossRow>,
    pub(crate) event_totals: Vec<EventTotalRow>,
    /// Names of block devices.
    pub(crate) devices: Vec<String>,
    /// Paths of control groups that requests are charged to.
    pub(crate) cgroups: Vec<String>,
    pub(crate) block_io_totals: Vec<BlockIoTotalRow>,
    pub(crate) heap_totals: Vec<HeapTotalRow>,
    pub(crate) samples: Samples,
    /// Locations before this one have their lines, or the reason why not.
    pub(crate) symbolized: usize,
    pub(crate) pool: Pool,
    taken: Taken,
}

/// What should have been recorded and was not.
#[derive(Debug)]
pub(crate) struct LossRow {
    pub(crate) cause: String,
    pub(crate) count: u64,
    pub(crate) estimated: bool,
    pub(crate) meaning: String,
}

/// How many rows of each table were handed over.
#[derive(Clone, Copy, Default)]
pub(crate) struct Taken {
    pub(crate) samples: u64,
    pub(crate) stacks: usize,
    pub(crate) locations: usize,
    pub(crate) lines: usize,
    pub(crate) functions: usize,
    pub(crate) objects: usize,
    pub(crate) mappings: usize,
    pub(crate) threads: usize,
    pub(crate) processes: usize,
    pub(crate) events: usize,
}

impl Profile {
    /// The object of this content: the same build-id, or the same path where there is none.
    pub fn object(&mut self, kind: ObjectKind, path: &str, build_id: &[u8]) -> ObjectId {
        self.objects.intern(kind, path, build_id, &[])
    }

    /// As [`Profile::object`], for a path that may name one file now and another one later: without a build-id,
    /// `identity` (device, inode, generation, …) must be the same too.
    pub fn object_with_identity(&mut self, kind: ObjectKind, path: &str, build_id: &[u8], identity: &[u8]) -> ObjectId {
        self.objects.intern(kind, path, build_id, identity)
    }

    /// The location at this address of the object. A caller's address is its return address − 1.
    pub fn location(&mut self, object: ObjectId, address: ObjectAddr) -> LocationId {
        self.locations.intern(object, address)
    }

    /// The addresses of all locations that these objects have; it goes through all locations.
    pub fn addresses_in(&self, objects: &HashSet<ObjectId>) -> HashMap<ObjectId, Vec<ObjectAddr>> {
        let mut addresses: HashMap<ObjectId, Vec<ObjectAddr>> = HashMap::new();
        for (object, address) in self.locations.object.iter().zip(&self.locations.address) {
            if objects.contains(object) {
                addresses.entry(*object).or_default().push(*address);
            }
        }
        addresses
    }

    /// The stack of these locations, which come root first. Of one that is deeper than the format allows, 65,535
    /// frames, the part next to its root.
    pub fn stack(&mut self, path: &[LocationId]) -> StackId {
        self.stacks.intern(path)
    }

    /// A new process.
    pub fn process(&mut self, row: ProcessRow) -> ProcessId {
        self.processes.push(row);
        ProcessId(self.processes.len() as u32 - 1)
    }

    /// A process, to note what became known of it later.
    pub fn process_mut(&mut self, id: ProcessId) -> &mut ProcessRow {
        &mut self.processes[id.index()]
    }

    /// The thread under this name. What is no UTF-8 in the name becomes U+FFFD; control characters stay, so each
    /// output must escape them.
    pub fn thread(&mut self, process: ProcessId, tid: u32, ns_tid: u32, comm: &[u8]) -> ThreadId {
        self.threads.intern(process, tid, ns_tid, comm)
    }

    /// A mapping of a process.
    pub fn mapping(&mut self, row: MappingRow) {
        self.mappings.push(row);
    }

    /// A new event; returns its id.
    pub fn event(&mut self, row: EventRow) -> u16 {
        self.events.push(row);
        (self.events.len() - 1) as u16
    }

    /// An exact count of an event.
    pub fn event_total(&mut self, row: EventTotalRow) {
        self.event_totals.push(row);
    }

    /// The block device of this name. There are few.
    pub fn device(&mut self, name: &str) -> DeviceId {
        DeviceId(number(&mut self.devices, name))
    }

    /// The control group of this path; empty: not known. There are few.
    pub fn cgroup(&mut self, path: &str) -> CgroupId {
        CgroupId(number(&mut self.cgroups, path))
    }

    /// What all requests to a device with one operation come to, known at the end.
    pub fn block_io_total(&mut self, row: BlockIoTotalRow) {
        self.block_io_totals.push(row);
    }

    /// What all allocations of a process come to, known at its end.
    pub fn heap_total(&mut self, row: HeapTotalRow) {
        self.heap_totals.push(row);
    }

    /// One observation. Its id is given when it is handed over, in the order of time.
    pub fn sample(&mut self, row: SampleRow) {
        self.samples.push(row);
    }

    /// What the thread of the last sample was doing.
    pub fn thread_state(&mut self, row: ThreadStateRow) {
        if let Some(last) = self.samples.len().checked_sub(1) {
            self.samples.thread_states.push((last as u32, row));
        }
    }

    /// An observation that shares a row with those of the same event, CPU, thread and stack.
    pub fn combine(&mut self, row: SampleRow) {
        self.samples.combine(row);
    }

    /// Samples that were not handed over yet.
    pub fn pending_samples(&self) -> usize {
        self.samples.len()
    }

    /// Count `count` more losses of this cause.
    pub fn loss(&mut self, cause: &str, count: u64, estimated: bool, meaning: &str) {
        match self.losses.iter_mut().find(|loss| loss.cause == cause) {
            Some(loss) => {
                loss.count = loss.count.saturating_add(count);
                loss.estimated |= estimated;
            }
            None => {
                let (cause, meaning) = (cause.to_owned(), meaning.to_owned());
                self.losses.push(LossRow {
                    cause,
                    count,
                    estimated,
                    meaning,
                });
            }
        }
    }

    /// All tables; samples ordered by time, without those that [`Profile::take_new`] handed over.
    pub fn tables(&self) -> Tables {
        let mut stacks = self.rows.clone();
        stacks.grow(&self.stacks, &self.locations.hashes(&self.objects));
        let mut tables = self.sample_tables(self.taken.samples, &stacks);
        tables.push(("stacks", stacks.into_table(0)));
        tables.extend(self.tables_since(&Taken::default()));
        tables
    }

    /// The rows that are new since the last call (all losses each time). The samples among them are dropped here.
    /// What is noted later on a process that was handed over is not handed over again.
    pub fn take_new(&mut self) -> Tables {
        self.rows.grow(&self.stacks, self.locations.grow_hashes(&self.objects));
        let mut tables = self.sample_tables(self.taken.samples, &self.rows);
        let stacks = self.rows.since(self.taken.stacks);
        tables.push(("stacks", stacks.into_table(self.taken.stacks)));
        tables.extend(self.tables_since(&self.taken));
        self.taken = Taken {
            samples: self.taken.samples + self.samples.len() as u64,
            stacks: self.rows.len(),
            locations: self.locations.object.len(),
            lines: self.lines.len(),
            functions: self.functions.len(),
            objects: self.objects.kind.len(),
            mappings: self.mappings.len(),
            threads: self.threads.tid.len(),
            processes: self.processes.len(),
            events: self.events.len(),
        };
        self.samples = Samples::default();
        tables
    }

    /// The objects with locations that nobody has looked up yet.
    pub fn unsymbolized_objects(&self) -> HashSet<ObjectId> {
        self.locations.object[self.unsymbolized()].iter().copied().collect()
    }

    /// The locations that nobody has looked up yet.
    pub(crate) fn unsymbolized(&self) -> Range<usize> {
        self.symbolized..self.locations.object.len()
    }
}

/// Which of a few names it is, as the last one where it is new.
fn number(names: &mut Vec<String>, name: &str) -> u32 {
    let known = names.iter().position(|one| one == name);
    let row = known.unwrap_or_else(|| {
        names.push(name.into());
        names.len() - 1
    });
    row as u32
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, StringArray, UInt32Array, UInt64Array};

    use super::*;
    use crate::rows::{SampleRow, ThreadState};

    fn rows(tables: &Tables, name: &str) -> usize {
        table(tables, name).map_or(0, RecordBatch::num_rows)
    }

    fn table<'a>(tables: &'a Tables, name: &str) -> Option<&'a RecordBatch> {
        tables.iter().find(|(table, _)| *table == name).map(|(_, batch)| batch)
    }

    fn column<'a, A: 'static>(tables: &'a Tables, name: &str, column: &str) -> &'a A {
        table(tables, name)
            .unwrap()
            .column_by_name(column)
            .unwrap()
            .as_any()
            .downcast_ref()
            .unwrap()
    }

    /// A path of (path of the object, address), root → leaf.
    fn stack(profile: &mut Profile, path: &[(&str, u64)]) -> StackId {
        let location = |&(object, address): &(&str, u64)| {
            let object = profile.object(ObjectKind::Elf, object, &[]);
            profile.location(object, ObjectAddr(address))
        };
        let path: Vec<LocationId> = path.iter().map(location).collect();
        profile.stack(&path)
    }

    fn hash(profile: &Profile, stack: StackId) -> u64 {
        let mut rows = Rows::default();
        rows.grow(&profile.stacks, &profile.locations.hashes(&profile.objects));
        rows.hash[rows.of(stack) as usize]
    }

    /// The same path has the same hash, whatever was recorded before it; another one has another.
    #[test]
    fn hashes_do_not_depend_on_the_order() {
        let paths = [
            &[("/a", 1), ("/b", 2)][..],
            &[("/a", 1)],
            &[("/b", 2), ("/a", 1)],
            &[("/a", 2), ("/b", 2)],
        ];
        let (mut forwards, mut backwards) = (Profile::default(), Profile::default());
        let one: Vec<StackId> = paths.iter().map(|path| stack(&mut forwards, path)).collect();
        let mut other: Vec<StackId> = paths.iter().rev().map(|path| stack(&mut backwards, path)).collect();
        other.reverse();
        assert_ne!(one, other);
        let hashes: Vec<u64> = one.iter().map(|&id| hash(&forwards, id)).collect();
        assert_eq!(hashes, other.iter().map(|&id| hash(&backwards, id)).collect::<Vec<_>>());
        let distinct: std::collections::HashSet<u64> = hashes.into_iter().chain([0]).collect();
        assert_eq!(distinct.len(), paths.len() + 1);
        assert_eq!(hash(&forwards, StackId::EMPTY), 0);
    }

    /// The hash can be computed again from what the tables say.
    #[test]
    fn hashes_follow_their_definition() {
        let mut profile = Profile::default();
        let object = profile.object(ObjectKind::Elf, "/a", &[0xab, 0x01]);
        let location = profile.location(object, ObjectAddr(0x10));
        let id = profile.stack(&[location]);
        let location_hash = xxhash_rust::xxh3::xxh3_64(b"elf\0ab01\0\x10\0\0\0\0\0\0\0");
        let expected = xxhash_rust::xxh3::xxh3_64(&[0u64.to_le_bytes(), location_hash.to_le_bytes()].concat());
        assert_eq!(hash(&profile, id), expected);
    }

    /// Parents come before children, depths count from the root, and each path is stored once.
    #[test]
    fn stacks_are_a_prefix_tree() {
        let mut profile = Profile::default();
        let long = stack(&mut profile, &[("/a", 1), ("/a", 2), ("/a", 3)]);
        assert_eq!(stack(&mut profile, &[("/a", 1), ("/a", 2), ("/a", 3)]), long);
        stack(&mut profile, &[("/a", 1), ("/a", 4)]);
        let tables = profile.tables();
        assert_eq!(
            column::<UInt32Array>(&tables, "stacks", "parent").values(),
            &[0, 0, 1, 2, 1]
        );
        assert_eq!(
            column::<arrow_array::UInt16Array>(&tables, "stacks", "depth").values(),
            &[0, 1, 2, 3, 2]
        );
    }

    /// A build-id makes an object whatever its path; without one, path and identity do.
    #[test]
    fn objects_are_known_by_their_content() {
        let mut profile = Profile::default();
        let libc = profile.object(ObjectKind::Elf, "/usr/lib/libc.so", &[1, 2]);
        assert_eq!(profile.object(ObjectKind::Elf, "/container/libc.so", &[1, 2]), libc);
        assert_ne!(profile.object(ObjectKind::Vdso, "/usr/lib/libc.so", &[1, 2]), libc);
        let old = profile.object_with_identity(ObjectKind::Elf, "/app", &[], b"inode 1");
        assert_eq!(
            profile.object_with_identity(ObjectKind::Elf, "/app", &[], b"inode 1"),
            old
        );
        assert_ne!(
            profile.object_with_identity(ObjectKind::Elf, "/app", &[], b"inode 2"),
            old
        );
    }

    /// A thread that renames itself gets a row a name, and finds its old row when it takes an old name.
    #[test]
    fn threads_are_known_by_their_name() {
        let mut profile = Profile::default();
        let process = profile.process(ProcessRow::default());
        let first = profile.thread(process, 7, 1, b"one");
        let second = profile.thread(process, 7, 1, b"two");
        assert_ne!(first, second);
        assert_eq!(profile.thread(process, 7, 1, b"one"), first);
        let odd = profile.thread(process, 8, 2, b"\xff\x1b[0m");
        assert_eq!(profile.thread(process, 8, 2, b"\xff\x1b[0m"), odd);
        let tables = profile.tables();
        assert_eq!(
            column::<StringArray>(&tables, "threads", "comm").value(odd.index()),
            "\u{fffd}\u{1b}[0m"
        );
    }

    fn sample(boottime_ns: u64, addresses: Option<&[u64]>) -> SampleRow<'_> {
        SampleRow {
            boottime_ns,
            last_ns: boottime_ns,
            count: 1,
            addresses,
            period: Some(boottime_ns),
            ..Default::default()
        }
    }

    /// Samples are ordered by time, and what hangs on them goes with them.
    #[test]
    fn side_tables_follow_their_samples() {
        let mut profile = Profile::default();
        profile.sample(sample(30, Some(&[3, 4])));
        profile.sample(sample(10, None));
        profile.sample(sample(20, Some(&[])));
        let tables = profile.tables();
        assert_eq!(column::<UInt64Array>(&tables, "samples", "id").values(), &[0, 1, 2]);
        assert_eq!(
            column::<UInt64Array>(&tables, "samples", "boottime_ns").values(),
            &[10, 20, 30]
        );
        assert_eq!(
            column::<UInt64Array>(&tables, "periods", "period").values(),
            &[10, 20, 30]
        );
        assert_eq!(column::<UInt64Array>(&tables, "addresses", "sample").values(), &[1, 2]);
        let lists: &arrow_array::ListArray = column(&tables, "addresses", "addresses");
        assert_eq!(
            lists.value(1).as_any().downcast_ref::<UInt64Array>().unwrap().values(),
            &[3, 4]
        );
    }

    /// What a thread was doing stands beside its sample, whatever their order.
    #[test]
    fn states_of_threads_follow_their_samples() {
        let mut profile = Profile::default();
        for (boottime_ns, state, has_stack) in [(30, ThreadState::Running, false), (10, ThreadState::Sleeping, true)] {
            profile.sample(sample(boottime_ns, None));
            profile.thread_state(ThreadStateRow {
                state,
                io_wait: false,
                cpu_ns: boottime_ns,
                has_stack,
            });
        }
        let tables = profile.tables();
        let states = |name| column::<UInt64Array>(&tables, "thread_states", name).values().to_vec();
        assert_eq!((states("sample"), states("cpu_ns")), (vec![0, 1], vec![10, 30]));
        let names: &StringArray = column(&tables, "thread_states", "state");
        assert_eq!([names.value(0), names.value(1)], ["sleeping", "running"]);
    }

    /// A profile without side data has no side tables.
    #[test]
    fn side_tables_are_optional() {
        let mut profile = Profile::default();
        profile.sample(SampleRow::default());
        let names: Vec<&str> = profile.tables().iter().map(|(name, _)| *name).collect();
        let expected = [
            "samples",
            "stacks",
            "locations",
            "lines",
            "functions",
            "objects",
            "mappings",
            "threads",
        ];
        assert_eq!(names, [&expected[..], &["processes", "events", "losses"]].concat());
    }

    /// Each row is handed over once, ids go on, and the empty stack comes first.
    #[test]
    fn rows_are_taken_once() {
        let mut profile = Profile::default();
        stack(&mut profile, &[("/a", 1)]);
        profile.sample(sample(1, None));
        profile.sample(sample(2, None));
        profile.loss("ring full", 3, false, "");
        let first = profile.take_new();
        assert_eq!(
            ["samples", "stacks", "locations", "objects", "losses"].map(|name| rows(&first, name)),
            [2, 2, 1, 1, 1]
        );
        stack(&mut profile, &[("/a", 1), ("/b", 2)]);
        profile.sample(sample(3, None));
        profile.loss("ring full", 4, true, "");
        let second = profile.take_new();
        assert_eq!(column::<UInt64Array>(&second, "samples", "id").values(), &[2]);
        assert_eq!(column::<UInt32Array>(&second, "stacks", "id").values(), &[2]);
        assert_eq!(column::<UInt32Array>(&second, "locations", "id").values(), &[1]);
        assert_eq!(column::<UInt64Array>(&second, "losses", "count").values(), &[7]);
        assert_eq!(profile.pending_samples(), 0);
        assert_eq!(rows(&profile.tables(), "stacks"), 3);
    }

    /// What became known of a process later is in its row.
    #[test]
    fn processes_can_be_completed() {
        let mut profile = Profile::default();
        let process = profile.process(ProcessRow {
            pid: 5,
            ..Default::default()
        });
        profile.process_mut(process).exit_boottime_ns = Some(9);
        let tables = profile.tables();
        let exits: &UInt64Array = column(&tables, "processes", "exit_boottime_ns");
        assert!(exits.is_valid(0) && exits.value(0) == 9);
    }

    /// A profile may be handed from the thread that records to the one that asks for it.
    #[test]
    fn profiles_are_sent_between_threads() {
        fn is_send<T: Send>() {}
        is_send::<Profile>();
    }
}
