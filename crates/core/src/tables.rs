//! The profile as Arrow tables. `src/stackhound/profile/schema.py` is the Python side of each column here.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, UInt64Builder};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt16Array, UInt32Array, UInt64Array};
use arrow_schema::{Field, Schema};

use crate::heap::Fate;
use crate::off_cpu::WaitReasons;
use crate::profile::{Profile, Tables, Taken};
use crate::rows::{BlockIoRow, DeviceId, HeapRow, LocationId, ObjectId, ThreadStateRow, WakerRow};
use crate::samples::Column;
use crate::stacks::Rows;

/// (name, column, whether it may be null)
type Named = (&'static str, ArrayRef, bool);

impl Profile {
    /// Those that say nothing of single samples or stacks.
    pub(crate) fn tables_since(&self, taken: &Taken) -> Tables {
        let mut tables = vec![
            ("locations", self.locations(taken.locations)),
            ("lines", self.lines(taken.lines)),
            ("functions", self.functions(taken.functions)),
            ("objects", self.objects(taken.objects)),
            ("mappings", self.mappings(taken.mappings)),
            ("threads", self.threads(taken.threads)),
            ("processes", self.processes(taken.processes)),
            ("events", self.events(taken.events)),
            ("losses", self.losses()),
        ];
        tables.extend((!self.event_totals.is_empty()).then(|| ("event_totals", self.event_totals())));
        tables.extend((!self.block_io_totals.is_empty()).then(|| ("block_io_totals", self.block_io_totals())));
        tables.extend((!self.heap_totals.is_empty()).then(|| ("heap_totals", self.heap_totals())));
        tables
    }

    /// The table `samples` and what hangs on it. `stacks`: the rows that they name.
    pub(crate) fn sample_tables(&self, first_id: u64, stacks: &Rows) -> Tables {
        let order = self.samples.by_time();
        let mut tables = vec![("samples", self.samples(first_id, &order, stacks))];
        let has_addresses = !self.samples.addresses.rows.is_empty();
        let has_states = !self.samples.thread_states.is_empty();
        let has_faults = !self.samples.faults.is_empty();
        let has_off_cpu = !self.samples.off_cpu.rows.is_empty();
        let has_wakers = !self.samples.wakers.is_empty();
        let has_block_io = !self.samples.block_io.is_empty();
        let has_heap = !self.samples.heap.is_empty();
        let has_periods = !self.samples.periods.is_empty();
        if has_addresses || has_states || has_faults || has_off_cpu || has_block_io || has_heap || has_periods {
            let ids = ids_by_row(first_id, &order);
            tables.extend(has_addresses.then(|| ("addresses", self.addresses(&ids))));
            tables.extend(has_periods.then(|| ("periods", self.periods(&ids))));
            tables.extend(has_states.then(|| ("thread_states", self.thread_states(&ids))));
            tables.extend(has_faults.then(|| ("faults", self.faults(&ids))));
            tables.extend(has_off_cpu.then(|| ("off_cpu", self.off_cpu(&ids))));
            tables.extend(has_wakers.then(|| ("wakers", self.wakers(&ids, stacks)))); // of rows that have been off the CPU
            tables.extend(has_block_io.then(|| ("block_io", self.block_io(&ids))));
            tables.extend(has_heap.then(|| ("heap", self.heap(&ids))));
        }
        tables
    }

    fn samples(&self, first_id: u64, order: &[u32], stacks: &Rows) -> RecordBatch {
        let samples = &self.samples;
        let rows = || order.iter().map(|&row| row as usize);
        let column = |column: &Column| uint64(rows().map(|row| column.get(row)));
        table([
            ("id", uint64(first_id..first_id + order.len() as u64), false),
            ("event", uint16(rows().map(|row| samples.event[row])), false),
            ("boottime_ns", uint64(rows().map(|row| samples.boottime_ns[row])), false),
            ("duration_ns", column(&samples.duration_ns), false),
            ("cpu", uint16(rows().map(|row| samples.cpu[row])), false),
            ("thread", uint32(rows().map(|row| samples.thread[row].0)), false),
            ("stack", uint32(rows().map(|row| stacks.of(samples.stack[row]))), false),
            ("value", uint64(rows().map(|row| samples.value(row))), false),
            ("count", column(&samples.count), false),
            ("last_ns", uint64(rows().map(|row| samples.last_ns(row))), false),
            ("flags", uint32(rows().map(|row| samples.flags[row])), false),
        ])
    }

    fn addresses(&self, ids: &[u64]) -> RecordBatch {
        let addresses = &self.samples.addresses;
        let mut rows: Vec<usize> = (0..addresses.rows.len()).collect();
        rows.sort_unstable_by_key(|&at| ids[addresses.rows[at] as usize]);
        let mut lists = ListBuilder::new(UInt64Builder::with_capacity(addresses.values.len()));
        for &at in &rows {
            lists.values().append_slice(addresses.of(at));
            lists.append(true);
        }
        let samples = rows.iter().map(|&at| ids[addresses.rows[at] as usize]);
        table([
            ("sample", uint64(samples), false),
            ("addresses", Arc::new(lists.finish()), false),
        ])
    }

    fn periods(&self, ids: &[u64]) -> RecordBatch {
        let mut rows: Vec<(u64, u64)> = self
            .samples
            .periods
            .iter()
            .map(|&(row, period)| (ids[row as usize], period))
            .collect();
        rows.sort_unstable();
        table([
            ("sample", uint64(rows.iter().map(|row| row.0)), false),
            ("period", uint64(rows.iter().map(|row| row.1)), false),
        ])
    }

    fn thread_states(&self, ids: &[u64]) -> RecordBatch {
        let mut rows: Vec<_> = (self.samples.thread_states.iter())
            .map(|(row, state)| (ids[*row as usize], state))
            .collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        let boolean = |of: fn(&ThreadStateRow) -> bool| boolean(rows.iter().map(|(_, state)| of(state)));
        table([
            ("sample", uint64(rows.iter().map(|(id, _)| *id)), false),
            ("state", utf8(rows.iter().map(|(_, state)| state.state.name())), false),
            ("io_wait", boolean(|state| state.io_wait), false),
            ("cpu_ns", uint64(rows.iter().map(|(_, state)| state.cpu_ns)), false),
            ("has_stack", boolean(|state| state.has_stack), false),
        ])
    }

    fn faults(&self, ids: &[u64]) -> RecordBatch {
        let by_id = |&(row, object, offset, ns): &(u32, ObjectId, u64, u64)| (ids[row as usize], object, offset, ns);
        let mut rows: Vec<_> = self.samples.faults.iter().map(by_id).collect();
        rows.sort_unstable();
        table([
            ("sample", uint64(rows.iter().map(|row| row.0)), false),
            ("object", uint32(rows.iter().map(|row| row.1.0)), false),
            ("offset", uint64(rows.iter().map(|row| row.2)), false),
            ("ns", uint64(rows.iter().map(|row| row.3)), false),
        ])
    }

    fn off_cpu(&self, ids: &[u64]) -> RecordBatch {
        let absences = &self.samples.off_cpu;
        let mut rows: Vec<(u64, usize)> = (absences.rows.iter().enumerate())
            .map(|(at, row)| (ids[*row as usize], at))
            .collect();
        rows.sort_unstable();
        let each = || rows.iter().map(|(_, at)| *at);
        let mut reasons = WaitReasons::new(self);
        let reason = each().map(|at| reasons.of(self.samples.stack[absences.rows[at] as usize]));
        let reason: Vec<&str> = reason.collect();
        table([
            ("sample", uint64(rows.iter().map(|row| row.0)), false),
            ("state", utf8(each().map(|at| absences.state[at].name())), false),
            ("reason", utf8(reason.into_iter()), false),
            ("queued_ns", uint64(each().map(|at| absences.queued_ns[at])), false),
        ])
    }

    fn wakers(&self, ids: &[u64], stacks: &Rows) -> RecordBatch {
        let by_id = |(row, waker): &(u32, WakerRow)| (ids[*row as usize], waker.thread.0, stacks.of(waker.stack));
        let mut rows: Vec<_> = self.samples.wakers.iter().map(by_id).collect();
        rows.sort_unstable();
        table([
            ("sample", uint64(rows.iter().map(|row| row.0)), false),
            ("thread", uint32(rows.iter().map(|row| row.1)), false),
            ("stack", uint32(rows.iter().map(|row| row.2)), false),
        ])
    }

    fn block_io(&self, ids: &[u64]) -> RecordBatch {
        let by_id = |(row, request)| (ids[row as usize], request);
        let mut rows: Vec<(u64, BlockIoRow)> = self.samples.block_io.iter().copied().map(by_id).collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        let each = || rows.iter().map(|(_, request)| request);
        table([
            ("sample", uint64(rows.iter().map(|(id, _)| *id)), false),
            (
                "device",
                utf8(each().map(|request| self.device_name(request.device))),
                false,
            ),
            ("operation", utf8(each().map(|request| request.operation)), false),
            ("sync", boolean(each().map(|request| request.is_sync)), false),
            ("meta", boolean(each().map(|request| request.is_meta)), false),
            ("sector", uint64(each().map(|request| request.sector)), false),
            ("bytes", uint64(each().map(|request| request.bytes)), false),
            (
                "queue_ns",
                nullable_uint64(each().map(|request| request.queue_ns)),
                true,
            ),
            (
                "device_ns",
                nullable_uint64(each().map(|request| request.device_ns)),
                true,
            ),
            ("requeues", uint32(each().map(|request| request.requeues)), false),
            ("failed", boolean(each().map(|request| request.is_failure)), false),
            (
                "cgroup",
                utf8(each().map(|request| &self.cgroups[request.cgroup.index()])),
                false,
            ),
        ])
    }

    fn block_io_totals(&self) -> RecordBatch {
        let rows = &self.block_io_totals;
        table([
            (
                "device",
                utf8(rows.iter().map(|row| self.device_name(row.device))),
                false,
            ),
            ("operation", utf8(rows.iter().map(|row| row.operation)), false),
            ("requests", uint64(rows.iter().map(|row| row.requests)), false),
            ("bytes", uint64(rows.iter().map(|row| row.bytes)), false),
            ("latency_ns", uint64(rows.iter().map(|row| row.latency_ns)), false),
        ])
    }

    fn device_name(&self, device: DeviceId) -> &str {
        &self.devices[device.index()]
    }

    fn locations(&self, first: usize) -> RecordBatch {
        let objects = &self.locations.object[first..];
        let reasons = (first..first + objects.len()).map(|row| self.locations.reason.get(&LocationId(row as u32)));
        table([
            ("id", ids(first, objects.len()), false),
            ("object", uint32(objects.iter().map(|object| object.0)), false),
            (
                "address",
                uint64(self.locations.address[first..].iter().map(|address| address.0)),
                false,
            ),
            ("reason", Arc::new(StringArray::from_iter(reasons)), true),
        ])
    }

    fn lines(&self, first: usize) -> RecordBatch {
        let rows = &self.lines[first..];
        table([
            ("location", uint32(rows.iter().map(|row| row.location.0)), false),
            ("depth", uint16(rows.iter().map(|row| row.depth)), false),
            ("function", uint32(rows.iter().map(|row| row.function.0)), false),
            ("line", uint32(rows.iter().map(|row| row.line)), false),
            ("column", uint32(rows.iter().map(|row| row.column)), false),
        ])
    }

    fn functions(&self, first: usize) -> RecordBatch {
        let rows = self.functions.rows(first);
        table([
            ("id", ids(first, rows.len()), false),
            ("name", utf8(rows.iter().map(|row| &*row.name)), false),
            ("system_name", utf8(rows.iter().map(|row| &*row.system_name)), false),
            ("file", utf8(rows.iter().map(|row| &*row.file)), false),
            ("object", uint32(rows.iter().map(|row| row.object.0)), false),
            ("address", uint64(rows.iter().map(|row| row.address.0)), false),
            ("size", uint64(rows.iter().map(|row| row.size)), false),
        ])
    }

    fn objects(&self, first: usize) -> RecordBatch {
        let objects = &self.objects;
        table([
            ("id", ids(first, objects.kind.len() - first), false),
            (
                "kind",
                utf8(objects.kind[first..].iter().map(|kind| kind.name())),
                false,
            ),
            ("path", utf8(objects.path[first..].iter()), false),
            ("build_id", utf8(objects.build_id[first..].iter()), false),
        ])
    }

    fn mappings(&self, first: usize) -> RecordBatch {
        let rows = &self.mappings[first..];
        table([
            ("id", ids(first, rows.len()), false),
            ("process", uint32(rows.iter().map(|row| row.process.0)), false),
            ("start", uint64(rows.iter().map(|row| row.start.0)), false),
            ("end", uint64(rows.iter().map(|row| row.end.0)), false),
            ("file_offset", uint64(rows.iter().map(|row| row.file_offset.0)), false),
            ("object", uint32(rows.iter().map(|row| row.object.0)), false),
            ("path", utf8(rows.iter().map(|row| &row.path)), false),
            ("first_ns", uint64(rows.iter().map(|row| row.first_ns)), false),
        ])
    }

    fn threads(&self, first: usize) -> RecordBatch {
        let threads = &self.threads;
        table([
            ("id", ids(first, threads.tid.len() - first), false),
            (
                "process",
                uint32(threads.process[first..].iter().map(|process| process.0)),
                false,
            ),
            ("tid", uint32(threads.tid[first..].iter().copied()), false),
            ("ns_tid", uint32(threads.ns_tid[first..].iter().copied()), false),
            ("comm", utf8(threads.comm[first..].iter()), false),
        ])
    }

    fn processes(&self, first: usize) -> RecordBatch {
        let rows = &self.processes[first..];
        table([
            ("id", ids(first, rows.len()), false),
            ("pid", uint32(rows.iter().map(|row| row.pid)), false),
            ("ns_pid", uint32(rows.iter().map(|row| row.ns_pid)), false),
            ("parent_pid", uint32(rows.iter().map(|row| row.parent_pid)), false),
            (
                "start_boottime_ns",
                uint64(rows.iter().map(|row| row.start_boottime_ns)),
                false,
            ),
            ("comm", utf8(rows.iter().map(|row| &row.comm)), false),
            ("executable", utf8(rows.iter().map(|row| &row.executable)), false),
            ("command_line", utf8(rows.iter().map(|row| &row.command_line)), false),
            ("cgroup", utf8(rows.iter().map(|row| &row.cgroup)), false),
            ("container", utf8(rows.iter().map(|row| &row.container)), false),
            (
                "exit_boottime_ns",
                nullable_uint64(rows.iter().map(|row| row.exit_boottime_ns)),
                true,
            ),
        ])
    }

    fn events(&self, first: usize) -> RecordBatch {
        let rows = &self.events[first..];
        table([
            ("id", uint16((first..first + rows.len()).map(|row| row as u16)), false),
            ("name", utf8(rows.iter().map(|row| &row.name)), false),
            ("unit", utf8(rows.iter().map(|row| &row.unit)), false),
            ("trigger", utf8(rows.iter().map(|row| &row.trigger)), false),
            ("mode", utf8(rows.iter().map(|row| &row.mode)), false),
            ("rate", uint64(rows.iter().map(|row| row.rate)), false),
        ])
    }

    fn heap(&self, ids: &[u64]) -> RecordBatch {
        let by_id = |(row, allocation)| (ids[row as usize], allocation);
        let mut rows: Vec<(u64, HeapRow)> = self.samples.heap.iter().copied().map(by_id).collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        let each = || rows.iter().map(|(_, allocation)| allocation);
        let in_use = |value: fn(&HeapRow) -> u64| {
            let of = move |row: &HeapRow| if row.fate == Fate::InUse { value(row) } else { 0 };
            uint64(each().map(of))
        };
        let (objects, bytes) = (|row: &HeapRow| row.estimate.objects, |row: &HeapRow| row.estimate.bytes);
        let fate = each().map(|row| row.fate.name());
        table([
            ("sample", uint64(rows.iter().map(|(id, _)| *id)), false),
            ("alloc_objects", uint64(each().map(objects)), false),
            ("alloc_space", uint64(each().map(bytes)), false),
            ("inuse_objects", in_use(objects), false),
            ("inuse_space", in_use(bytes), false),
            ("size", uint64(each().map(|row| row.size)), false),
            ("fate", utf8(fate), false),
            ("lifetime_ns", nullable_uint64(each().map(|row| row.lifetime_ns)), true),
        ])
    }

    fn heap_totals(&self) -> RecordBatch {
        let rows = &self.heap_totals;
        table([
            ("pid", uint32(rows.iter().map(|row| row.pid)), false),
            (
                "start_boottime_ns",
                uint64(rows.iter().map(|row| row.start_boottime_ns)),
                false,
            ),
            ("allocations", uint64(rows.iter().map(|row| row.allocations)), false),
            ("bytes", uint64(rows.iter().map(|row| row.bytes)), false),
        ])
    }

    fn event_totals(&self) -> RecordBatch {
        let rows = &self.event_totals;
        table([
            ("event", uint16(rows.iter().map(|row| row.event)), false),
            ("pid", uint32(rows.iter().map(|row| row.pid)), false),
            (
                "start_boottime_ns",
                uint64(rows.iter().map(|row| row.start_boottime_ns)),
                false,
            ),
            ("count", uint64(rows.iter().map(|row| row.count)), false),
        ])
    }

    fn losses(&self) -> RecordBatch {
        let rows = &self.losses;
        table([
            ("cause", utf8(rows.iter().map(|row| &row.cause)), false),
            ("count", uint64(rows.iter().map(|row| row.count)), false),
            ("estimated", boolean(rows.iter().map(|row| row.estimated)), false),
            ("meaning", utf8(rows.iter().map(|row| &row.meaning)), false),
        ])
    }
}

impl Rows {
    /// The table `stacks`, of rows that begin with this one. Their columns are not copied: they may be large.
    pub(crate) fn into_table(self, first: usize) -> RecordBatch {
        table([
            ("id", ids(first, self.parent.len()), false),
            ("parent", Arc::new(UInt32Array::from(self.parent)), false),
            ("location", Arc::new(UInt32Array::from(self.location)), false),
            ("depth", Arc::new(UInt16Array::from(self.depth)), false),
            ("hash", Arc::new(UInt64Array::from(self.hash)), false),
        ])
    }
}

/// The id that each row has in this order.
fn ids_by_row(first_id: u64, order: &[u32]) -> Vec<u64> {
    let mut ids = vec![0; order.len()];
    for (id, &row) in (first_id..).zip(order) {
        ids[row as usize] = id;
    }
    ids
}

fn ids(first: usize, rows: usize) -> ArrayRef {
    uint32(first as u32..(first + rows) as u32)
}

fn uint16(values: impl Iterator<Item = u16>) -> ArrayRef {
    Arc::new(UInt16Array::from_iter_values(values))
}

fn uint32(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn uint64(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn nullable_uint64(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter(values))
}

fn boolean(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(values.map(Some).collect::<BooleanArray>())
}

fn utf8(values: impl Iterator<Item = impl AsRef<str>>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// A table of columns that the functions above made equally long.
fn table<const N: usize>(columns: [Named; N]) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column, nullable)| Field::new(*name, column.data_type().clone(), *nullable))
        .collect();
    let columns = columns.into_iter().map(|(_, column, _)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a table's columns are of one length")
}
