//! Requests to block devices: the steps that the kernel half tells, put in order, put together, and named.

use std::collections::BTreeMap;

use stackhound_core::block_io::{self, Record, Request, Requests, Step};
use stackhound_core::profile::Profile;
use stackhound_core::rows::{BlockIoRow, BlockIoTotalRow, DeviceId, SampleRow};

use crate::abi;
use crate::block_devices::BlockDevices;
use crate::cgroups::Cgroups;
use crate::error::Result;
use crate::options::Options;
use crate::programs::Programs;
use crate::raw_sample::RawSample;
use crate::throttle::Throttle;

/// From the time of a record to its being there: a walk of a stack, an interrupt, a virtual machine's pause.
const LATE_NS: u64 = 10_000_000;

/// A sample until its end is known: of a request, or of time off the CPU.
#[derive(Clone)]
pub struct HeldSample {
    /// Without its time, value and `block_io`.
    pub row: SampleRow<'static>,
    /// Behind its stack, where they are asked for.
    pub addresses: Option<Vec<u64>>,
}

/// What is known of a request's submission.
struct Origin {
    is_wanted: bool,
    /// The number of the one that it is charged to; 0: not told.
    cgroup: u64,
    sample: Option<Box<HeldSample>>,
}

/// What all requests to a device with one operation come to.
#[derive(Clone, Copy, Default)]
struct Total {
    requests: u64,
    bytes: u64,
    latency_ns: u64,
}

/// The requests of a recording.
#[derive(Default)]
pub struct BlockIo {
    steps: Vec<Record<Origin>>,
    requests: Requests<Origin>,
    devices: BlockDevices,
    cgroups: Cgroups,
    totals: BTreeMap<(DeviceId, &'static str), Total>,
    /// Samples whose request has not ended.
    held: u64,
}

impl BlockIo {
    /// Takes note of a step, with the submitter's sample if there is one.
    pub fn note(&mut self, record: &RawSample<'_>, step: &abi::BlockStep, sample: Option<HeldSample>) {
        let has = |what: u32| u32::from(step.traits) & what != 0;
        self.held += u64::from(sample.is_some());
        let origin = has(abi::BLOCK_FIRST).then(|| Origin {
            is_wanted: !has(abi::BLOCK_UNWANTED),
            cgroup: step.cgroup,
            sample: sample.map(Box::new),
        });
        self.steps.push(Record {
            boottime_ns: record.header.boottime_ns,
            request: step.request,
            step: match step.step.into() {
                abi::BLOCK_SUBMIT => Step::Insert,
                abi::BLOCK_ISSUE => Step::Issue,
                abi::BLOCK_REQUEUE => Step::Requeue,
                abi::BLOCK_MERGE => Step::Merge,
                abi::BLOCK_END => Step::End,
                _ => Step::Complete {
                    is_failure: has(abi::BLOCK_FAILED),
                    is_last: has(abi::BLOCK_LAST),
                },
            },
            device: step.device,
            flags: step.flags,
            sector: step.sector,
            bytes: step.bytes.into(),
            origin,
        });
    }

    /// The samples whose requests have ended, by what had been told when the rings were looked at: records of another CPU
    /// that are a little older may come with the next look.
    pub fn settle(&mut self, looked_ns: u64, profile: &mut Profile) -> Vec<HeldSample> {
        let before_ns = looked_ns.saturating_sub(LATE_NS);
        self.steps.sort_by_key(|record| record.boottime_ns);
        let due = self.steps.partition_point(|record| record.boottime_ns < before_ns);
        let steps: Vec<_> = self.steps.drain(..due).collect();
        let ends = steps.into_iter().filter_map(|record| self.requests.take(record));
        let wanted: Vec<_> = ends.filter(|request| request.origin.is_wanted).collect();
        let samples = wanted.into_iter().filter_map(|request| self.end(request, profile));
        samples.collect()
    }

    /// Puts a request that is over into the totals, and what there was of it into its sample.
    fn end(&mut self, request: Request<Origin>, profile: &mut Profile) -> Option<HeldSample> {
        let device = profile.device(self.devices.name(request.device));
        let operation = block_io::operation_name(request.flags, request.bytes);
        let total = self.totals.entry((device, operation)).or_default();
        total.requests += 1;
        total.bytes += request.bytes;
        total.latency_ns += request.duration_ns();
        let details = BlockIoRow {
            device,
            operation,
            is_sync: request.flags & block_io::SYNC != 0,
            is_meta: request.flags & block_io::META != 0,
            sector: request.sector,
            bytes: request.bytes,
            queue_ns: request.queue_ns,
            device_ns: request.device_ns(),
            requeues: request.requeues,
            is_failure: request.is_failure,
            cgroup: profile.cgroup(self.cgroups.path(request.origin.cgroup)),
        };
        let (end_ns, duration_ns) = (request.end_boottime_ns, request.duration_ns());
        let mut sample = *request.origin.sample?;
        self.held -= 1;
        let row = &mut sample.row;
        row.boottime_ns = end_ns;
        row.last_ns = end_ns;
        row.duration_ns = duration_ns;
        row.value = duration_ns.saturating_mul(row.count);
        row.block_io = Some(details);
        Some(sample)
    }

    /// Once the last step has been told: the totals and the losses. Returns the requests that had not ended.
    pub fn finish(&mut self, profile: &mut Profile) -> usize {
        for (&(device, operation), total) in &self.totals {
            profile.block_io_total(BlockIoTotalRow {
                device,
                operation,
                requests: total.requests,
                bytes: total.bytes,
                latency_ns: total.latency_ns,
            });
        }
        let requests = std::mem::take(&mut self.requests);
        let unmatched = requests.unmatched();
        let meaning = "ends of requests to block devices that began before the recording, or whose beginning was lost";
        profile.loss("request without beginning", unmatched.without_beginning, false, meaning);
        let meaning = "requests to block devices whose end was lost";
        profile.loss("request without end", unmatched.without_end, false, meaning);
        let meaning = "requests to block devices beyond those that may be open at once";
        profile.loss("too many requests", unmatched.beyond_limit, false, meaning);
        let is_wanted = |request: &&Request<Origin>| request.origin.is_wanted;
        requests.finish().iter().filter(is_wanted).count()
    }

    /// Samples that were taken and have become none: their requests have not ended, were taken over, or are lost.
    pub fn held(&self) -> u64 {
        self.held
    }
}

/// A sample takes some 5 µs: 2.5 percent of a CPU.
const MOST_SAMPLES_PER_S_AND_CPU: u64 = 5_000;
const LONGEST_PERIOD: u64 = 1 << 20;

/// One in how many requests is a sample now.
pub struct BlockIoPace(Throttle);

impl BlockIoPace {
    /// Begins with what was asked for. None when requests are not recorded.
    pub fn begin(options: &Options, cpus: usize, programs: &mut Programs) -> Result<Option<Self>> {
        if options.block_io_event().is_none() {
            return Ok(None);
        }
        programs.change_settings(|settings| settings.block_io_period = 1)?;
        let most_per_s = MOST_SAMPLES_PER_S_AND_CPU * cpus as u64;
        Ok(Some(Self(Throttle::new(1, LONGEST_PERIOD, most_per_s))))
    }

    /// So many samples came since the last look.
    pub fn adapt(&mut self, samples: u64, programs: &mut Programs) -> Result<()> {
        let period = self.0.adapt(samples);
        period.map_or(Ok(()), |period| {
            programs.change_settings(|settings| settings.block_io_period = period)
        })
    }
}
