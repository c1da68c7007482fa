//! Requests to block devices, put together from what the kernel tells of them one by one.
//!
//! ```text
//! insert ──→ issue ──→ complete … end            the usual way; on older kernels without an I/O scheduler there is no insert
//!   ↑          │
//!   └─ requeue ┘                                 the device was busy
//! insert ──→ merge                               another request takes the bytes along
//! ```
//!
//! A request is known by its address. The kernel uses the address again as soon as the request is over, so that a record
//! that cannot belong to the request that is open there begins another one, and the open one is counted as unmatched.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// Requests that may be open at once: 64 Ki, as many as 64 devices with queues of 1,024 have.
const MAX_OPEN: usize = 1 << 16;

/// What the kernel tells of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A thread submits it (before Linux 6.5: it waits in the queue of an I/O scheduler).
    Insert,
    /// It was handed to the device.
    Issue,
    /// The device took it back into the queue.
    Requeue,
    /// Another request has taken its bytes over, and it is no more.
    Merge,
    /// The device is done with this many bytes of it.
    Complete {
        /// Whether they were not read or written.
        is_failure: bool,
        /// Whether nothing of it is left to be done: its own bytes, and writing the device's cache before or behind them.
        is_last: bool,
    },
    /// The kernel is done with all of it (since Linux 6.5). What was complete before then need not be told.
    End,
}

/// One record of the kernel's.
#[derive(Clone, Copy, Debug)]
pub struct Record<Origin> {
    /// When.
    pub boottime_ns: u64,
    /// The address of the request.
    pub request: u64,
    /// What happened.
    pub step: Step,
    /// As the kernel numbers it (`dev_t`).
    pub device: u32,
    /// `cmd_flags`: the operation and how it is to be done.
    pub flags: u32,
    /// First sector, of 512 bytes.
    pub sector: u64,
    /// Of the whole request; of a completion those that are done.
    pub bytes: u64,
    /// Whatever the caller knows of the submitter. Without it nothing begins.
    pub origin: Option<Origin>,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<Origin> {
    /// As the kernel numbers it.
    pub device: u32,
    /// `cmd_flags`.
    pub flags: u32,
    /// First sector, of 512 bytes.
    pub sector: u64,
    /// Those that were done.
    pub bytes: u64,
    /// When it was first seen, in a queue or on its way to the device.
    pub begin_boottime_ns: u64,
    /// When the device was done with it.
    pub end_boottime_ns: u64,
    /// Until it was handed to the device, the last time; None where that was not told.
    pub queue_ns: Option<u64>,
    /// Times that the device had no room for it.
    pub requeues: u32,
    /// Whether some bytes of it were not read or written.
    pub is_failure: bool,
    /// Who submitted it.
    pub origin: Origin,
}

impl<Origin> Request<Origin> {
    /// From its submission to its end.
    pub fn duration_ns(&self) -> u64 {
        self.end_boottime_ns.saturating_sub(self.begin_boottime_ns)
    }

    /// On the device; None where nobody told when it got there.
    pub fn device_ns(&self) -> Option<u64> {
        self.queue_ns
            .map(|queue_ns| self.duration_ns().saturating_sub(queue_ns))
    }
}

/// What did not become a request, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unmatched {
    /// Ends of requests that nobody had told of: they began before the recording, or their first record was lost.
    pub without_beginning: u64,
    /// Requests whose address became another one's: the record of their end was lost.
    pub without_end: u64,
    /// Requests that were beyond those that may be open at once.
    pub beyond_limit: u64,
}

/// The requests that are under way.
pub struct Requests<Origin> {
    open: HashMap<u64, Open<Origin>>,
    unmatched: Unmatched,
    merged: u64,
}

struct Open<Origin> {
    first: Record<Origin>,
    origin: Origin,
    issued_ns: Option<u64>,
    bytes: u64,
    done_bytes: u64,
    requeues: u32,
    is_failure: bool,
}

impl<Origin> Default for Requests<Origin> {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            unmatched: Unmatched::default(),
            merged: 0,
        }
    }
}

impl<Origin> Requests<Origin> {
    /// Takes the next record in the order of time, and gives back the request that is over with it.
    pub fn take(&mut self, record: Record<Origin>) -> Option<Request<Origin>> {
        match record.step {
            Step::Insert => self.insert(record),
            Step::Issue => self.issue(record),
            Step::Requeue => self.requeue(&record),
            Step::Merge => self.merge(&record),
            Step::Complete { is_failure, is_last } => return self.complete(&record, is_failure, is_last),
            Step::End => return self.end(&record),
        }
        None
    }

    /// Requests that others took over: they are part of those.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// What did not become a request so far.
    pub fn unmatched(&self) -> Unmatched {
        self.unmatched
    }

    /// Those that are not over, the oldest first, as far as they have come.
    pub fn finish(self) -> Vec<Request<Origin>> {
        let mut left: Vec<_> = self.open.into_values().map(|open| open.close(None)).collect();
        left.sort_by_key(|request| request.begin_boottime_ns);
        left
    }

    /// A request that was taken back is inserted again; any other one that is open here has ended unseen.
    fn insert(&mut self, record: Record<Origin>) {
        match self.open.get_mut(&record.request) {
            Some(open) if open.issued_ns.is_none() && open.is_about(&record) => {
                open.bytes = open.bytes.max(record.bytes)
            }
            Some(_) => self.replace(record, None),
            None => self.begin(record, None),
        }
    }

    /// What was merged into a request while it waited is told here: its start may have moved to an earlier sector.
    fn issue(&mut self, record: Record<Origin>) {
        let now_ns = record.boottime_ns;
        match self.open.get_mut(&record.request) {
            Some(open) if open.issued_ns.is_none() && open.may_have_grown_to(&record) => {
                open.issued_ns = Some(now_ns);
                if open.done_bytes == 0 {
                    open.first.sector = record.sector;
                    open.bytes = record.bytes;
                }
            }
            Some(_) => self.replace(record, Some(now_ns)),
            None => self.begin(record, Some(now_ns)),
        }
    }

    fn requeue(&mut self, record: &Record<Origin>) {
        match self.open.get_mut(&record.request) {
            Some(open) if open.first.device == record.device => {
                open.issued_ns = None;
                open.requeues = open.requeues.saturating_add(1);
            }
            _ => {} // its end is told, too
        }
    }

    fn merge(&mut self, record: &Record<Origin>) {
        match self.open.entry(record.request) {
            Entry::Occupied(open) if open.get().first.device == record.device => {
                open.remove();
                self.merged += 1;
            }
            _ => self.unmatched.without_beginning += 1,
        }
    }

    /// The device may be done with a request in parts.
    fn complete(&mut self, record: &Record<Origin>, is_failure: bool, is_last: bool) -> Option<Request<Origin>> {
        let Entry::Occupied(mut place) = self.open.entry(record.request) else {
            self.unmatched.without_beginning += u64::from(is_last);
            return None;
        };
        let open = place.get_mut();
        if open.first.device != record.device {
            place.remove();
            self.unmatched.without_end += 1;
            self.unmatched.without_beginning += u64::from(is_last);
            return None;
        }
        open.done_bytes = open.done_bytes.saturating_add(record.bytes);
        open.is_failure |= is_failure;
        is_last.then(|| place.remove().close(Some(record.boottime_ns)))
    }

    fn end(&mut self, record: &Record<Origin>) -> Option<Request<Origin>> {
        if let Some(open) = self.open.get_mut(&record.request) {
            open.done_bytes = open.done_bytes.max(open.bytes);
        }
        let nothing_more = Record {
            bytes: 0,
            origin: None,
            ..*record
        };
        self.complete(&nothing_more, false, true)
    }

    fn begin(&mut self, mut first: Record<Origin>, issued_ns: Option<u64>) {
        let Some(origin) = first.origin.take() else {
            return; // its end will be without a beginning
        };
        if self.open.len() >= MAX_OPEN {
            self.unmatched.beyond_limit += 1;
            return;
        }
        let open = Open {
            bytes: first.bytes,
            origin,
            issued_ns,
            done_bytes: 0,
            requeues: 0,
            is_failure: false,
            first,
        };
        self.open.insert(open.first.request, open);
    }

    fn replace(&mut self, first: Record<Origin>, issued_ns: Option<u64>) {
        self.open.remove(&first.request);
        self.unmatched.without_end += 1;
        self.begin(first, issued_ns);
    }
}

impl<Origin> Open<Origin> {
    fn is_about(&self, record: &Record<Origin>) -> bool {
        self.first.device == record.device && self.first.sector == record.sector && self.first.flags == record.flags
    }

    /// Merging adds bytes at either end, and changes hints among the flags, never the operation. What was done in part is
    /// issued again for the rest.
    fn may_have_grown_to(&self, record: &Record<Origin>) -> bool {
        let has_grown = record.sector <= self.first.sector && record.bytes >= self.bytes;
        self.first.device == record.device
            && operation(self.first.flags) == operation(record.flags)
            && (has_grown || self.done_bytes > 0)
    }

    /// `end_ns`: None for one that is still under way.
    fn close(self, end_ns: Option<u64>) -> Request<Origin> {
        let begin_boottime_ns = self.first.boottime_ns;
        let end_boottime_ns = end_ns.unwrap_or(begin_boottime_ns).max(begin_boottime_ns);
        let until_issue = |issued_ns: u64| issued_ns.clamp(begin_boottime_ns, end_boottime_ns) - begin_boottime_ns;
        Request {
            device: self.first.device,
            flags: self.first.flags,
            sector: self.first.sector,
            bytes: self.done_bytes,
            begin_boottime_ns,
            end_boottime_ns,
            queue_ns: self.issued_ns.map(until_issue),
            requeues: self.requeues,
            is_failure: self.is_failure,
            origin: self.origin,
        }
    }
}

/// What a request does, without how: the lower 8 bits of its flags (`enum req_op`, include/linux/blk_types.h).
pub fn operation(flags: u32) -> u8 {
    flags as u8
}

/// Somebody waits for it (`REQ_SYNC`, include/linux/blk_types.h, as those that follow).
pub const SYNC: u32 = 1 << 11;
/// It is of a file system's own data (`REQ_META`).
pub const META: u32 = 1 << 12;
/// The device writes its cache first (`REQ_PREFLUSH`).
const PREFLUSH: u32 = 1 << 18;
/// It was not asked for yet (`REQ_RAHEAD`).
const READ_AHEAD: u32 = 1 << 19;

/// The operation in words. A write of nothing but the device's cache is a flush.
///
/// Source: `enum req_op`, Linux 5.10 to 6.18; what moved meanwhile (zones) is called by one word.
pub fn operation_name(flags: u32, bytes: u64) -> &'static str {
    match operation(flags) {
        0 if flags & READ_AHEAD != 0 => "read ahead",
        0 => "read",
        1 if flags & PREFLUSH != 0 && bytes == 0 => "flush",
        1 => "write",
        2 => "flush",
        3 => "discard",
        5 => "secure erase",
        7 => "write same or zone append",
        9 => "write zeroes",
        6 | 8 | 10..=17 => "zone management",
        32 | 34 => "driver, in",
        33 | 35 => "driver, out",
        _ => "other",
    }
}

/// (major, minor) of a device as the kernel numbers it.
///
/// Source: `MINORBITS`, include/linux/kdev_t.h
pub fn device_numbers(device: u32) -> (u32, u32) {
    (device >> 20, device & ((1 << 20) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Step = Step::Complete {
        is_failure: false,
        is_last: true,
    };
    const PART: Step = Step::Complete {
        is_failure: false,
        is_last: false,
    };

    fn record(boottime_ns: u64, request: u64, step: Step, bytes: u64) -> Record<&'static str> {
        Record {
            boottime_ns,
            request,
            step,
            device: 8 << 20 | 1,
            flags: 1,
            sector: 100,
            bytes,
            origin: match step {
                Step::Insert => Some("submitter"),
                Step::Issue => Some("bystander"),
                _ => None,
            },
        }
    }

    fn take_all(records: &[Record<&'static str>]) -> (Vec<Request<&'static str>>, Requests<&'static str>) {
        let mut requests = Requests::default();
        let over = records.iter().filter_map(|record| requests.take(*record)).collect();
        (over, requests)
    }

    /// A request's time is split at its issue, and belongs to who submitted it.
    #[test]
    fn a_request_waits_in_its_queue_and_then_for_its_device() {
        let (over, requests) = take_all(&[
            record(100, 1, Step::Insert, 4096),
            record(130, 1, Step::Issue, 4096),
            record(200, 1, DONE, 4096),
        ]);
        assert_eq!(over.len(), 1);
        assert_eq!(
            (over[0].queue_ns, over[0].device_ns(), over[0].duration_ns()),
            (Some(30), Some(70), 100)
        );
        assert_eq!((over[0].bytes, over[0].origin), (4096, "submitter"));
        assert_eq!(requests.unmatched(), Unmatched::default());
        assert!(requests.finish().is_empty());
    }

    /// Without an I/O scheduler the issue is the beginning.
    #[test]
    fn a_request_that_is_never_queued_has_no_time_there() {
        let (over, _) = take_all(&[record(100, 1, Step::Issue, 512), record(150, 1, DONE, 512)]);
        assert_eq!((over[0].queue_ns, over[0].device_ns()), (Some(0), Some(50)));
    }

    /// A completion alone, as of a request from before the recording, is counted and makes no request.
    #[test]
    fn a_completion_without_a_beginning_is_counted() {
        let steps = [DONE, Step::Requeue, Step::Merge, Step::End];
        let (over, requests) = take_all(&steps.map(|step| record(100, 1, step, 512)));
        assert!(over.is_empty());
        assert_eq!(requests.unmatched().without_beginning, 3); // the one that is taken back ends some time
    }

    /// The same for one of which only the end of its way was told.
    #[test]
    fn a_request_whose_submission_was_lost_is_counted_once() {
        let issue = Record {
            origin: None,
            ..record(100, 1, Step::Issue, 512)
        };
        let (over, requests) = take_all(&[issue, record(150, 1, PART, 256), record(160, 1, DONE, 256)]);
        assert!(over.is_empty());
        assert_eq!(requests.unmatched().without_beginning, 1);
        assert!(requests.finish().is_empty());
    }

    /// A write that has the device's cache written with it is not over with its own bytes.
    #[test]
    fn a_request_lasts_until_the_devices_cache_is_written() {
        let (over, requests) = take_all(&[
            record(100, 1, Step::Insert, 4096),
            record(150, 1, Step::Issue, 4096),
            record(200, 1, PART, 4096),
            record(300, 1, DONE, 0),
        ]);
        assert_eq!((over[0].bytes, over[0].duration_ns()), (4096, 200));
        assert_eq!(requests.unmatched(), Unmatched::default());
    }

    /// The rest of a request that was done in part is issued from another sector on.
    #[test]
    fn the_rest_of_a_request_is_issued_again() {
        let rest = Record {
            sector: 104,
            ..record(220, 1, Step::Issue, 2048)
        };
        let (over, _) = take_all(&[
            record(100, 1, Step::Insert, 4096),
            record(150, 1, Step::Issue, 4096),
            record(200, 1, PART, 2048),
            record(210, 1, Step::Requeue, 2048),
            rest,
            record(300, 1, DONE, 2048),
        ]);
        assert_eq!((over[0].bytes, over[0].sector, over[0].requeues), (4096, 100, 1));
        assert_eq!((over[0].queue_ns, over[0].origin), (Some(120), "submitter"));
    }

    /// The address of a request is soon another one's: a lost completion costs one request, not two.
    #[test]
    fn a_request_whose_end_was_lost_gives_its_address_up() {
        let again = Record {
            sector: 500,
            ..record(300, 1, Step::Insert, 512)
        };
        let (over, requests) = take_all(&[
            record(100, 1, Step::Insert, 4096),
            record(120, 1, Step::Issue, 4096),
            again,
            Record {
                sector: 500,
                ..record(310, 1, Step::Issue, 512)
            },
            record(400, 1, DONE, 512),
        ]);
        assert_eq!(over.len(), 1);
        assert_eq!(
            (over[0].begin_boottime_ns, over[0].bytes, over[0].sector),
            (300, 512, 500)
        );
        assert_eq!(requests.unmatched().without_end, 1);
    }

    /// The same for an issue of other sectors, where there is no scheduler.
    #[test]
    fn an_issue_of_other_sectors_is_another_request() {
        let other = Record {
            sector: 900,
            ..record(300, 1, Step::Issue, 512)
        };
        let (over, requests) = take_all(&[record(100, 1, Step::Insert, 512), other, record(350, 1, DONE, 512)]);
        assert_eq!((over[0].begin_boottime_ns, over[0].queue_ns), (300, Some(0)));
        assert_eq!(requests.unmatched().without_end, 1);
    }

    /// Bytes that were merged in at either end before the issue belong to the request.
    #[test]
    fn a_request_grows_by_what_is_merged_into_it() {
        let grown = Record {
            sector: 92,
            ..record(120, 1, Step::Issue, 16_384)
        };
        let (over, _) = take_all(&[record(100, 1, Step::Insert, 4096), grown, record(200, 1, DONE, 16_384)]);
        assert_eq!(
            (over[0].bytes, over[0].sector, over[0].begin_boottime_ns),
            (16_384, 92, 100)
        );
    }

    /// A request that another one took over never completes, and is no loss.
    #[test]
    fn a_request_that_was_merged_into_another_is_part_of_it() {
        let (over, requests) = take_all(&[
            record(100, 1, Step::Insert, 4096),
            record(101, 2, Step::Insert, 4096),
            record(110, 2, Step::Merge, 4096),
            record(120, 1, Step::Issue, 8192),
            record(200, 1, DONE, 8192),
        ]);
        assert_eq!((over.len(), over[0].bytes, requests.merged()), (1, 8192, 1));
        assert_eq!(requests.unmatched(), Unmatched::default());
    }

    /// What the device took back waits again: the time in the queue ends with the last issue.
    #[test]
    fn a_request_that_was_taken_back_waits_again() {
        let (over, requests) = take_all(&[
            record(100, 1, Step::Insert, 512),
            record(110, 1, Step::Issue, 512),
            record(120, 1, Step::Requeue, 512),
            record(125, 1, Step::Insert, 512),
            record(180, 1, Step::Issue, 512),
            record(200, 1, DONE, 512),
        ]);
        assert_eq!(
            (over[0].queue_ns, over[0].device_ns(), over[0].requeues),
            (Some(80), Some(20), 1)
        );
        assert_eq!(requests.unmatched(), Unmatched::default());
    }

    /// A request that completes in parts is over with the last one, and failed if one of them did.
    #[test]
    fn a_request_may_complete_in_parts() {
        let failed = Step::Complete {
            is_failure: true,
            is_last: false,
        };
        let (over, _) = take_all(&[
            record(100, 1, Step::Issue, 4096),
            record(200, 1, PART, 2048),
            record(220, 1, failed, 1024),
            record(240, 1, DONE, 1024),
        ]);
        assert_eq!(over.len(), 1);
        assert_eq!(
            (over[0].end_boottime_ns, over[0].bytes, over[0].is_failure),
            (240, 4096, true)
        );
    }

    /// Where the end is told, completions before it are told only when there is something to say.
    #[test]
    fn a_request_ends_with_all_its_bytes() {
        let failed = Step::Complete {
            is_failure: true,
            is_last: false,
        };
        let (over, requests) = take_all(&[
            record(100, 1, Step::Issue, 4096),
            record(200, 1, Step::End, 0),
            record(300, 1, Step::Issue, 512),
            record(390, 1, failed, 512),
            record(400, 1, Step::End, 0),
        ]);
        let ends: Vec<_> = over
            .iter()
            .map(|one| (one.bytes, one.duration_ns(), one.is_failure))
            .collect();
        assert_eq!(ends, [(4096, 100, false), (512, 100, true)]);
        assert_eq!(requests.unmatched(), Unmatched::default());
    }

    /// A flush has no bytes, and is over at once.
    #[test]
    fn a_request_without_bytes_completes() {
        let (over, _) = take_all(&[record(100, 1, Step::Issue, 0), record(170, 1, DONE, 0)]);
        assert_eq!((over[0].duration_ns(), over[0].bytes), (70, 0));
    }

    /// Where the issue was lost the two times cannot be told apart, and are not made up.
    #[test]
    fn a_request_whose_issue_was_lost_has_only_its_whole_time() {
        let (over, _) = take_all(&[record(100, 1, Step::Insert, 512), record(170, 1, DONE, 512)]);
        assert_eq!(
            (over[0].duration_ns(), over[0].queue_ns, over[0].device_ns()),
            (70, None, None)
        );
    }

    /// Times that run backwards make no negative durations.
    #[test]
    fn times_out_of_order_make_no_negative_durations() {
        let (over, _) = take_all(&[
            record(100, 1, Step::Insert, 512),
            record(90, 1, Step::Issue, 512),
            record(80, 1, DONE, 512),
        ]);
        assert_eq!(
            (over[0].duration_ns(), over[0].queue_ns, over[0].device_ns()),
            (0, Some(0), Some(0))
        );
    }

    /// What another device says of an address is about another request.
    #[test]
    fn devices_are_told_apart() {
        let elsewhere = Record {
            device: 9,
            ..record(150, 1, DONE, 512)
        };
        let (over, requests) = take_all(&[record(100, 1, Step::Issue, 512), elsewhere]);
        assert!(over.is_empty());
        let expected = Unmatched {
            without_beginning: 1,
            without_end: 1,
            beyond_limit: 0,
        };
        assert_eq!(requests.unmatched(), expected);
    }

    /// Requests that never end take a bounded room, and the rest is counted.
    #[test]
    fn open_requests_are_bounded() {
        let mut requests = Requests::default();
        for request in 0..MAX_OPEN as u64 + 10 {
            requests.take(record(request, request, Step::Insert, 512));
        }
        assert_eq!(requests.unmatched().beyond_limit, 10);
        let left = requests.finish();
        assert_eq!((left.len(), left[0].begin_boottime_ns), (MAX_OPEN, 0));
    }

    /// Any order of any records: each request is counted once, as over, merged, lost or left.
    #[test]
    fn every_request_is_accounted_for_whatever_comes() {
        let steps = [Step::Insert, Step::Issue, Step::Requeue, Step::Merge, DONE];
        let mut state = 1u64;
        let mut next = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut requests = Requests::default();
        let (mut begun, mut over) = (0, 0);
        for time in 0..100_000 {
            let step = steps[next(5) as usize];
            let request = next(16);
            let (open, lost) = (requests.open.len(), requests.unmatched().without_end);
            let was_open = requests.open.contains_key(&request);
            over += u64::from(requests.take(record(time, request, step, 512 * next(3))).is_some());
            let replaced = was_open && requests.unmatched().without_end > lost;
            begun += u64::from(replaced || requests.open.len() > open);
        }
        let (merged, lost) = (requests.merged(), requests.unmatched().without_end);
        assert_eq!(begun, over + merged + lost + requests.finish().len() as u64);
    }

    #[test]
    fn operations_and_devices_have_their_names() {
        assert_eq!(operation_name(0, 512), "read");
        assert_eq!(operation_name(1 << 19, 512), "read ahead");
        assert_eq!(operation_name(1 | 1 << 11, 512), "write");
        assert_eq!(operation_name(1 | 1 << 18, 512), "write");
        assert_eq!(operation_name(1 | 1 << 18, 0), "flush");
        assert_eq!(operation_name(200, 0), "other");
        assert_eq!(device_numbers(8 << 20 | 17), (8, 17));
    }
}
