//! One event of a profile as an uncompressed pprof protobuf.
//!
//! Samples of one thread with the same stack become one; only what they use is written. Addresses stay in their
//! object's own space, so each mapping begins at 0.

mod measures;
mod message;
mod places;

use hashbrown::HashMap;
use prost::Message;
use prost::encoding::message::encode;

use crate::Error;
use crate::columns::TableSet;
use crate::paths::StackTree;
use measures::{Measure, measures};
use message::{Label, Profile, Sample, ValueType};
use places::Places;

/// The field of `Profile` that samples are in.
const SAMPLE_TAG: u32 = 2;

/// What the tables do not say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// When the recording began.
    pub time_unix_ns: i64,
    /// How long it took.
    pub duration_ns: i64,
    /// Between two samples, in the event's unit.
    pub period: i64,
    /// Lines about the recording as a whole.
    pub comments: Vec<String>,
}

/// Encode one event's samples. Fails when a table or column is missing, or points beyond another one.
pub fn encode_pprof(tables: &TableSet, event: u16, options: &Options) -> Result<Vec<u8>, Error> {
    let mut strings = StringTable::default();
    let (name, unit) = describe_event(tables, event)?;
    let measures = measures(tables, name, unit)?;
    let mut profile = describe(&measures, options, &mut strings);
    let samples = Samples::read(tables, event)?;
    let mut places = Places::read(tables)?;
    let mut bytes = Vec::new();
    let labels = Labels::read(tables, &mut strings)?;
    let (keys, sums) = samples.merge(&measures);
    for ((thread, stack), values) in keys.into_iter().zip(sums.chunks_exact(measures.len())) {
        let sample = Sample {
            location_id: samples
                .locations(stack)
                .map(|location| places.location_id(location))
                .collect(),
            value: values.iter().copied().map(to_i64).collect(),
            label: labels.of(thread)?,
        };
        encode(SAMPLE_TAG, &sample, &mut bytes);
    }
    (profile.mapping, profile.location, profile.function) = places.finish(&mut strings);
    profile.string_table = strings.strings;
    profile.encode(&mut bytes).map_err(Error::output)?;
    Ok(bytes)
}

/// (name, unit)
fn describe_event(tables: &TableSet, event: u16) -> Result<(&str, &str), Error> {
    let events = tables.table("events")?;
    if usize::from(event) >= events.rows() {
        return Err(Error::usage(format_args!("there is no event {event}")));
    }
    let text = |column| Ok(events.strings(column)?.get(event.into()));
    Ok((text("name")?, text("unit")?))
}

fn describe(measures: &[Measure<'_>], options: &Options, strings: &mut StringTable) -> Profile {
    let mut describe = |measure: &Measure<'_>| ValueType {
        r#type: strings.id(measure.name),
        unit: strings.id(measure.unit),
    };
    let types: Vec<ValueType> = measures.iter().map(&mut describe).collect();
    let last = types.last().copied();
    Profile {
        default_sample_type: last.map_or(0, |last| last.r#type),
        period_type: last,
        sample_type: types,
        time_nanos: options.time_unix_ns,
        duration_nanos: options.duration_ns,
        period: options.period,
        comment: options.comments.iter().map(|comment| strings.id(comment)).collect(),
        ..Profile::default()
    }
}

/// One event's samples, and the stacks they point into.
struct Samples<'t> {
    event: u16,
    events: &'t [u16],
    thread: &'t [u32],
    stack: &'t [u32],
    stacks: StackTree<'t>,
}

/// (thread, stack)
type Key = (u32, u32);

impl<'t> Samples<'t> {
    fn read(tables: &'t TableSet, event: u16) -> Result<Self, Error> {
        let (samples, stacks) = (tables.table("samples")?, tables.table("stacks")?);
        let locations = tables.table("locations")?.rows();
        let tree = StackTree::new(stacks.uint32("parent")?, stacks.uint32("location")?)?;
        if tree
            .max_location()
            .is_some_and(|location| location as usize >= locations)
        {
            return Err(Error::damaged("a stack has a location that is not there"));
        }
        Ok(Self {
            event,
            events: samples.uint16("event")?,
            thread: samples.uint32("thread")?,
            stack: samples.references("stack", tree.len())?,
            stacks: tree,
        })
    }

    /// Each thread's stacks in the order of their first sample, and of each the sums of all measures in a row.
    fn merge(&self, measures: &[Measure<'_>]) -> (Vec<Key>, Vec<u64>) {
        let (mut keys, mut sums): (Vec<Key>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut rows: HashMap<Key, usize> = HashMap::new();
        for sample in (0..self.events.len()).filter(|&sample| self.events[sample] == self.event) {
            let key = (self.thread[sample], self.stack[sample]);
            let row = *rows.entry(key).or_insert(keys.len());
            if row == keys.len() {
                keys.push(key);
                sums.resize(sums.len() + measures.len(), 0);
            }
            for (sum, measure) in sums[row * measures.len()..].iter_mut().zip(measures) {
                *sum = sum.saturating_add(measure.values[sample]);
            }
        }
        (keys, sums)
    }

    /// The locations of a stack, leaf first.
    fn locations(&self, stack: u32) -> impl Iterator<Item = u32> {
        let chain = std::iter::successors(Some(stack), |&stack| Some(self.stacks.parent(stack)));
        chain
            .take_while(|&stack| stack != 0)
            .map(|stack| self.stacks.location(stack))
    }
}

/// Labels of each thread.
struct Labels(Vec<Vec<Label>>);

impl Labels {
    fn read(tables: &TableSet, strings: &mut StringTable) -> Result<Self, Error> {
        let (threads, processes) = (tables.table("threads")?, tables.table("processes")?);
        let process = threads.references("process", processes.rows())?;
        let (tid, pid) = (threads.uint32("tid")?, processes.uint32("pid")?);
        let (thread_comm, process_comm) = (threads.strings("comm")?, processes.strings("comm")?);
        let [comm, thread_key, pid_key, tid_key] = ["comm", "thread", "pid", "tid"].map(|key| strings.id(key));
        let labels = (0..).zip(process).map(|(thread, &process)| {
            vec![
                Label::text(comm, strings.id(process_comm.get(process))),
                Label::text(thread_key, strings.id(thread_comm.get(thread))),
                Label::number(pid_key, pid[process as usize].into()),
                Label::number(tid_key, tid[thread as usize].into()),
            ]
        });
        Ok(Self(labels.collect()))
    }

    fn of(&self, thread: u32) -> Result<Vec<Label>, Error> {
        let labels = self.0.get(thread as usize).cloned();
        labels.ok_or_else(|| Error::damaged(format_args!("a sample has thread {thread}, of {}", self.0.len())))
    }
}

/// Strings by number; 0 is the empty one.
struct StringTable {
    strings: Vec<String>,
    ids: HashMap<String, i64>,
}

impl Default for StringTable {
    fn default() -> Self {
        Self {
            strings: vec![String::new()],
            ids: HashMap::from([(String::new(), 0)]),
        }
    }
}

impl StringTable {
    fn id(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

fn to_i64(value: u64) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ObjectAddr;
    use crate::heap::{Estimate, Fate};
    use crate::perfmap::PerfMap;
    use crate::profile::Profile as Recorded;
    use crate::rows::{EventRow, HeapRow, ObjectId, ObjectKind, ProcessRow, SampleRow};
    use crate::symbolize::{Source, Sources};

    struct ByKind;

    impl Sources for ByKind {
        fn source(&mut self, object: ObjectId, addresses: &[u64]) -> Source {
            let map = PerfMap::parse(b"10 10 main\n20 10 work\n");
            match object.index() {
                0 => Source::Found(addresses.iter().map(|at| map.find(*at).cloned()).collect()),
                1 => Source::Named("vfs_read".into()),
                _ => Source::Missing("no symbol table".into()),
            }
        }
    }

    /// Two threads in main → work → vfs_read, and one sample of another event.
    fn recorded() -> Recorded {
        let mut profile = Recorded::default();
        let row = |name: &str, unit: &str| EventRow {
            name: name.into(),
            unit: unit.into(),
            trigger: String::new(),
            mode: "frequency".into(),
            rate: 99,
        };
        profile.event(row("cpu", "nanoseconds"));
        profile.event(row("page-faults", "count"));
        let program = profile.object(ObjectKind::Elf, "/bin/app", &[0xab]);
        let kernel = profile.object(ObjectKind::Kernel, "[kernel]", &[]);
        let stripped = profile.object(ObjectKind::Jit, "[jit]", &[]);
        let path = [(program, 0x11), (program, 0x22), (kernel, 0x100), (stripped, 0x5)];
        let locations = path.map(|(object, address)| profile.location(object, ObjectAddr(address)));
        let stacks = [0, 1, 2, 3, 4].map(|frames| profile.stack(&locations[..frames]));
        let process = profile.process(ProcessRow {
            pid: 7,
            comm: "app".into(),
            executable: "/bin/app".into(),
            ..Default::default()
        });
        let threads = [
            profile.thread(process, 7, 7, b"app"),
            profile.thread(process, 8, 8, b"worker"),
        ];
        for (event, thread, stack, value) in [(0, 0, 3, 10), (0, 1, 2, 10), (0, 0, 3, 10), (1, 0, 4, 1)] {
            let (thread, stack) = (threads[thread], stacks[stack]);
            profile.sample(SampleRow {
                event,
                thread,
                stack,
                value,
                count: 1,
                ..Default::default()
            });
        }
        profile.symbolize(&mut ByKind, false);
        profile
    }

    fn tables(profile: &Recorded) -> TableSet {
        let mut tables = TableSet::default();
        for (name, batch) in profile.tables() {
            tables.insert(name.to_owned(), &batch.schema(), &[batch]).unwrap();
        }
        tables
    }

    fn encoded(event: u16) -> Profile {
        let options = Options {
            time_unix_ns: 5,
            duration_ns: 6,
            period: 7,
            comments: vec!["hello".into()],
        };
        Profile::decode(encode_pprof(&tables(&recorded()), event, &options).unwrap().as_slice()).unwrap()
    }

    /// The names of a sample's functions, leaf first.
    fn names(profile: &Profile, sample: &Sample) -> Vec<String> {
        let location = |id: &u64| &profile.location[*id as usize - 1];
        let lines = sample.location_id.iter().flat_map(|id| location(id).line.iter());
        let name = |line: &message::Line| profile.function[line.function_id as usize - 1].name;
        lines
            .map(|line| profile.string_table[name(line) as usize].clone())
            .collect()
    }

    /// Samples alike become one, leaf first, with their count and value.
    #[test]
    fn samples_are_merged_leaf_first() {
        let profile = encoded(0);
        assert_eq!(profile.sample.len(), 2);
        assert_eq!(names(&profile, &profile.sample[0]), ["vfs_read", "work", "main"]);
        assert_eq!(profile.sample[0].value, [2, 20]);
        assert_eq!(names(&profile, &profile.sample[1]), ["work", "main"]);
        assert_eq!(profile.sample[1].value, [1, 10]);
    }

    /// Threads are told apart by their labels.
    #[test]
    fn samples_have_labels() {
        let profile = encoded(0);
        let text = |id: i64| profile.string_table[id as usize].as_str();
        let labels: Vec<_> = profile.sample[1]
            .label
            .iter()
            .map(|label| (text(label.key), text(label.str), label.num))
            .collect();
        assert_eq!(
            labels,
            [
                ("comm", "app", 0),
                ("thread", "worker", 0),
                ("pid", "", 7),
                ("tid", "", 8)
            ]
        );
    }

    /// The event gives the second value its name and unit; the first counts.
    #[test]
    fn values_have_their_units() {
        let profile = encoded(1);
        let text = |id: i64| profile.string_table[id as usize].as_str();
        let types: Vec<_> = profile
            .sample_type
            .iter()
            .map(|kind| (text(kind.r#type), text(kind.unit)))
            .collect();
        assert_eq!(types, [("samples", "count"), ("page-faults", "count")]);
        assert_eq!(text(profile.default_sample_type), "page-faults");
        assert_eq!((profile.time_nanos, profile.duration_nanos, profile.period), (5, 6, 7));
        assert_eq!(text(profile.comment[0]), "hello");
        assert_eq!(profile.string_table[0], "");
    }

    /// Allocations have four values, what is in use being the one that is shown first.
    #[test]
    fn allocations_are_measured_as_go_does() {
        let mut profile = recorded();
        profile.event(EventRow {
            name: "heap".into(),
            unit: "bytes".into(),
            trigger: String::new(),
            mode: "period".into(),
            rate: 512,
        });
        for (fate, size) in [(Fate::Freed, 1000), (Fate::InUse, 3000)] {
            let estimate = Estimate {
                objects: 2,
                bytes: 2 * size,
            };
            profile.sample(SampleRow {
                event: 2,
                value: 2 * size,
                count: 2,
                heap: Some(HeapRow {
                    size,
                    estimate,
                    fate,
                    lifetime_ns: None,
                }),
                ..Default::default()
            });
        }
        let encoded = encode_pprof(&tables(&profile), 2, &Options::default()).unwrap();
        let encoded = Profile::decode(encoded.as_slice()).unwrap();
        let text = |id: i64| encoded.string_table[id as usize].as_str();
        let types: Vec<_> = encoded.sample_type.iter().map(|kind| text(kind.r#type)).collect();
        assert_eq!(types, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
        assert_eq!(text(encoded.default_sample_type), "inuse_space");
        assert_eq!(encoded.sample[0].value, [4, 8000, 2, 6000]);
    }

    /// Only what the event's samples use is there, the program first, and a mapping says what is known in it.
    #[test]
    fn only_what_is_used_is_written() {
        let cpu = encoded(0);
        assert_eq!((cpu.location.len(), cpu.function.len(), cpu.mapping.len()), (3, 3, 2));
        let names: Vec<&str> = cpu
            .mapping
            .iter()
            .map(|m| cpu.string_table[m.filename as usize].as_str())
            .collect();
        assert_eq!(names, ["/bin/app", KERNEL]);
        assert_eq!(cpu.string_table[cpu.mapping[0].build_id as usize], "ab");
        assert!(
            cpu.mapping
                .iter()
                .all(|m| m.has_functions && !m.has_filenames && !m.has_line_numbers)
        );
        let mapping = |id| cpu.mapping.iter().find(|mapping| mapping.id == id).unwrap();
        assert!(
            cpu.location
                .iter()
                .all(|location| location.address < mapping(location.mapping_id).memory_limit)
        );
        let faults = encoded(1);
        assert_eq!((faults.location.len(), faults.function.len()), (4, 3));
        let unnamed = faults
            .location
            .iter()
            .find(|location| location.line.is_empty())
            .unwrap();
        assert_eq!(unnamed.mapping_id, 0);
    }

    const KERNEL: &str = "[kernel.kallsyms]_stext";

    /// Missing tables, ids beyond their table and an unknown event are errors.
    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let options = Options::default();
        assert!(encode_pprof(&TableSet::default(), 0, &options).is_err());
        assert!(encode_pprof(&tables(&recorded()), 2, &options).is_err());
        for table in ["locations", "stacks", "threads", "processes", "functions", "objects"] {
            let mut set = TableSet::default();
            for (name, batch) in recorded().tables() {
                let rows = if name == table {
                    1.min(batch.num_rows() - 1)
                } else {
                    batch.num_rows()
                };
                set.insert(name.to_owned(), &batch.schema(), &[batch.slice(0, rows)])
                    .unwrap();
            }
            assert!(encode_pprof(&set, 0, &options).is_err(), "{table}");
        }
    }
}
