//! Samples as columns, 24 bytes a row where nothing but time, CPU, thread, stack and flags changes.

use hashbrown::HashMap;

use crate::rows::{
    BlockIoRow, CgroupId, DeviceId, HeapRow, ObjectId, OffCpuRow, OffCpuState, SampleRow, StackId, ThreadId,
    ThreadStateRow, WakerRow,
};

/// A column that takes no memory while all its values are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    len: usize,
    constant: u64,
    /// Empty while the column is constant.
    values: Vec<u64>,
}

impl Column {
    fn push(&mut self, value: u64) {
        if self.len == 0 {
            self.constant = value;
        } else if self.values.is_empty() && value != self.constant {
            self.materialize();
        }
        if !self.values.is_empty() {
            self.values.push(value);
        }
        self.len += 1;
    }

    pub(crate) fn get(&self, row: usize) -> u64 {
        self.values.get(row).copied().unwrap_or(self.constant)
    }

    fn update(&mut self, row: usize, change: impl FnOnce(u64) -> u64) {
        let value = change(self.get(row));
        if self.values.is_empty() && value != self.constant {
            self.materialize();
        }
        if let Some(slot) = self.values.get_mut(row) {
            *slot = value;
        }
    }

    fn materialize(&mut self) {
        self.values = vec![self.constant; self.len];
    }
}

/// The table `samples`, its side tables, and what finds the row to combine with.
#[derive(Default)]
pub(crate) struct Samples {
    pub(crate) boottime_ns: Vec<u64>,
    pub(crate) thread: Vec<ThreadId>,
    pub(crate) stack: Vec<StackId>,
    pub(crate) flags: Vec<u32>,
    pub(crate) event: Vec<u16>,
    pub(crate) cpu: Vec<u16>,
    pub(crate) duration_ns: Column,
    /// Most samples that last stand for just that, and the others are all worth the same.
    value_beyond_duration: Column,
    pub(crate) count: Column,
    /// Time from the first observation to the last.
    pub(crate) span_ns: Column,
    pub(crate) addresses: Addresses,
    /// (row, period)
    pub(crate) periods: Vec<(u32, u64)>,
    /// (row, object, offset, nanoseconds)
    pub(crate) faults: Vec<(u32, ObjectId, u64, u64)>,
    pub(crate) thread_states: Vec<(u32, ThreadStateRow)>,
    pub(crate) off_cpu: Absences,
    pub(crate) wakers: Vec<(u32, WakerRow)>,
    pub(crate) block_io: Vec<(u32, BlockIoRow)>,
    pub(crate) heap: Vec<(u32, HeapRow)>,
    combined: HashMap<Key, u32>,
}

/// (event, CPU, thread, stack, manner): what must be the same for two observations to share a row.
type Key = (u16, u16, ThreadId, StackId, Manner);

/// What side tables say of a sample that others can share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Manner {
    Plain,
    OffCpu(OffCpuState),
    BlockIo(DeviceId, &'static str, CgroupId),
}

impl Manner {
    fn of(sample: &SampleRow) -> Self {
        match (sample.off_cpu, sample.block_io) {
            (Some(away), _) => Self::OffCpu(away.state),
            (_, Some(request)) => Self::BlockIo(request.device, request.operation, request.cgroup),
            _ => Self::Plain,
        }
    }
}

impl Samples {
    pub(crate) fn len(&self) -> usize {
        self.boottime_ns.len()
    }

    pub(crate) fn push(&mut self, sample: SampleRow) {
        let row = self.len() as u32;
        self.boottime_ns.push(sample.boottime_ns);
        self.thread.push(sample.thread);
        self.stack.push(sample.stack);
        self.flags.push(sample.flags);
        self.event.push(sample.event);
        self.cpu.push(sample.cpu);
        self.duration_ns.push(sample.duration_ns);
        self.value_beyond_duration
            .push(sample.value.wrapping_sub(sample.duration_ns));
        self.count.push(sample.count);
        self.span_ns.push(sample.last_ns.saturating_sub(sample.boottime_ns));
        if let Some(addresses) = sample.addresses {
            self.addresses.push(row, addresses);
        }
        self.periods.extend(sample.period.map(|period| (row, period)));
        let memory = sample
            .memory
            .map(|(object, offset)| (row, object, offset, sample.fault_ns));
        self.faults.extend(memory);
        if let Some(away) = sample.off_cpu {
            self.off_cpu.push(row, away);
        }
        self.wakers.extend(sample.waker.map(|waker| (row, waker)));
        self.block_io.extend(sample.block_io.map(|request| (row, request)));
        self.heap.extend(sample.heap.map(|allocation| (row, allocation)));
    }

    pub(crate) fn combine(&mut self, sample: SampleRow) {
        let next = self.len() as u32;
        let key = (
            sample.event,
            sample.cpu,
            sample.thread,
            sample.stack,
            Manner::of(&sample),
        );
        let row = *self.combined.entry(key).or_insert(next) as usize;
        if row == next as usize {
            return self.push(sample);
        }
        let first_ns = self.boottime_ns[row].min(sample.boottime_ns);
        let last_ns = self.last_ns(row).max(sample.last_ns);
        self.boottime_ns[row] = first_ns;
        self.span_ns.update(row, |_| last_ns.saturating_sub(first_ns));
        self.flags[row] |= sample.flags;
        let value = self.value(row).saturating_add(sample.value);
        let duration_ns = self.duration_ns.get(row).saturating_add(sample.duration_ns);
        self.duration_ns.update(row, |_| duration_ns);
        self.value_beyond_duration
            .update(row, |_| value.wrapping_sub(duration_ns));
        self.count.update(row, |sum| sum.saturating_add(sample.count));
        if let Some(away) = sample.off_cpu {
            self.off_cpu.add(row, away);
        }
        if let (Some(request), Some(sum)) = (sample.block_io, find(&mut self.block_io, row)) {
            sum.add(&request);
        }
    }

    pub(crate) fn last_ns(&self, row: usize) -> u64 {
        self.boottime_ns[row] + self.span_ns.get(row)
    }

    pub(crate) fn value(&self, row: usize) -> u64 {
        self.duration_ns
            .get(row)
            .wrapping_add(self.value_beyond_duration.get(row))
    }

    /// The rows in the order of their time; equal times stay as they came.
    pub(crate) fn by_time(&self) -> Vec<u32> {
        let mut rows: Vec<u32> = (0..self.len() as u32).collect();
        rows.sort_by_key(|&row| self.boottime_ns[row as usize]); // linear when they are in order
        rows
    }
}

impl BlockIoRow {
    fn add(&mut self, other: &Self) {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.queue_ns = sum(self.queue_ns, other.queue_ns);
        self.device_ns = sum(self.device_ns, other.device_ns);
        self.requeues = self.requeues.saturating_add(other.requeues);
        self.is_failure |= other.is_failure;
        self.is_sync |= other.is_sync;
        self.is_meta |= other.is_meta;
    }
}

/// What a side table says of a row; rows come in order.
fn find<T>(table: &mut [(u32, T)], row: usize) -> Option<&mut T> {
    let place = table.binary_search_by_key(&(row as u32), |(row, _)| *row).ok()?;
    Some(&mut table[place].1)
}

/// The table `off_cpu` as columns: 13 bytes a row instead of 24.
#[derive(Default)]
pub(crate) struct Absences {
    pub(crate) rows: Vec<u32>,
    pub(crate) state: Vec<OffCpuState>,
    pub(crate) queued_ns: Vec<u64>,
}

impl Absences {
    fn push(&mut self, row: u32, away: OffCpuRow) {
        self.rows.push(row);
        self.state.push(away.state);
        self.queued_ns.push(away.queued_ns);
    }

    /// Another one of the same state, to a row that is there.
    fn add(&mut self, row: usize, away: OffCpuRow) {
        if let Ok(place) = self.rows.binary_search(&(row as u32)) {
            self.queued_ns[place] += away.queued_ns;
        }
    }
}

/// The virtual addresses behind some of the samples.
#[derive(Default)]
pub(crate) struct Addresses {
    pub(crate) rows: Vec<u32>,
    /// Where each row's addresses end in `values`.
    pub(crate) ends: Vec<usize>,
    pub(crate) values: Vec<u64>,
}

impl Addresses {
    fn push(&mut self, row: u32, addresses: &[u64]) {
        self.values.extend_from_slice(addresses);
        self.rows.push(row);
        self.ends.push(self.values.len());
    }

    pub(crate) fn of(&self, at: usize) -> &[u64] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.values[start..self.ends[at]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A column gives back what was put in, whether or not it ever changed.
    #[test]
    fn a_column_remembers_its_values() {
        for values in [&[][..], &[7, 7, 7], &[7, 7, 8, 7], &[0, 1]] {
            let mut column = Column::default();
            values.iter().for_each(|&value| column.push(value));
            let read: Vec<u64> = (0..values.len()).map(|row| column.get(row)).collect();
            assert_eq!(read, values);
        }
    }

    /// Changing one value of a constant column leaves the others.
    #[test]
    fn a_constant_column_can_change() {
        let mut column = Column::default();
        (0..3).for_each(|_| column.push(5));
        column.update(1, |value| value + 1);
        column.push(9);
        assert_eq!([0, 1, 2, 3].map(|row| column.get(row)), [5, 6, 5, 9]);
    }

    fn sample(cpu: u16, boottime_ns: u64) -> SampleRow<'static> {
        SampleRow {
            cpu,
            boottime_ns,
            last_ns: boottime_ns,
            value: 10,
            count: 1,
            ..Default::default()
        }
    }

    /// Observations alike share a row, with the earliest and the latest of their times; others do not.
    #[test]
    fn observations_alike_are_combined() {
        let mut samples = Samples::default();
        for row in [sample(0, 100), sample(1, 110), sample(0, 90), sample(0, 120)] {
            samples.combine(row);
        }
        assert_eq!(
            (samples.len(), samples.boottime_ns[0], samples.last_ns(0)),
            (2, 90, 120)
        );
        assert_eq!([0, 1].map(|row| samples.count.get(row)), [3, 1]);
        assert_eq!([0, 1].map(|row| samples.value(row)), [30, 10]);
    }

    /// Times off the CPU share a row with their like, and add up what they were ready for.
    #[test]
    fn absences_alike_are_combined() {
        let mut samples = Samples::default();
        let away = |state| SampleRow {
            off_cpu: Some(OffCpuRow { state, queued_ns: 3 }),
            ..sample(0, 100)
        };
        for state in [OffCpuState::Waiting, OffCpuState::Preempted, OffCpuState::Waiting] {
            samples.combine(away(state));
        }
        assert_eq!((samples.len(), samples.off_cpu.queued_ns), (2, vec![6, 3]));
    }

    /// Requests share a row with those of the same device and operation.
    #[test]
    fn requests_alike_are_combined() {
        let mut samples = Samples::default();
        let request = |operation, queue_ns| SampleRow {
            block_io: Some(BlockIoRow {
                device: DeviceId(0),
                operation,
                is_sync: false,
                is_meta: false,
                sector: 7,
                bytes: 512,
                queue_ns,
                device_ns: Some(2),
                requeues: 0,
                is_failure: operation == "write",
                cgroup: CgroupId(0),
            }),
            ..sample(0, 100)
        };
        for row in [("read", Some(1)), ("write", Some(1)), ("read", None)] {
            samples.combine(request(row.0, row.1));
        }
        let first = samples.block_io[0].1;
        assert_eq!((samples.len(), first.bytes, samples.count.get(0)), (2, 1024, 2));
        assert_eq!(
            (first.queue_ns, first.device_ns, first.is_failure),
            (None, Some(4), false)
        );
    }

    /// Samples of several CPUs come out in the order of their time.
    #[test]
    fn samples_are_ordered_by_time() {
        let mut samples = Samples::default();
        [30, 10, 20, 10]
            .into_iter()
            .for_each(|time| samples.push(sample(0, time)));
        assert_eq!(samples.by_time(), [1, 3, 2, 0]);
    }
}
