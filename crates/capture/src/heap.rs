//! Allocations: what programs tell of them, put in order, put together, and added up.

use std::collections::BTreeMap;

use stackhound_core::heap::{AllocationKey, Allocations, Ended, Estimate, Step};
use stackhound_core::profile::Profile;
use stackhound_core::rows::{EventTotalRow, HeapRow, HeapTotalRow};

use crate::abi;
use crate::block_io::HeldSample;
use crate::cost;
use crate::options::Options;
use crate::raw_sample::RawSample;

/// From the time of a record to its being there: a walk of a stack, a virtual machine's pause.
const LATE_NS: u64 = 10_000_000;

/// What a program has allocated, as far as it has told.
#[derive(Clone, Copy, Default)]
struct Told {
    allocations: u64,
    bytes: u64,
    /// It has told all: it has ended by itself.
    is_whole: bool,
}

/// (process, when it started, program)
type ProgramKey = (u32, u64, u64);

struct Record {
    boottime_ns: u64,
    what: What,
}

enum What {
    Told(AllocationKey, Step<Allocation>),
    /// Of this window nothing more will be told.
    Closed(u64),
}

struct Allocation {
    size: u64,
    sample: Box<HeldSample>,
}

/// The allocations of a recording.
#[derive(Default)]
pub struct Heap {
    event: Option<usize>,
    interval_bytes: u64,
    records: Vec<Record>,
    allocations: Allocations<Allocation>,
    told: BTreeMap<ProgramKey, Told>,
    luck: Luck,
}

/// Random numbers from 0 up to 1, the same in each recording.
///
/// Source: splitmix64, Steele et al. 2014
#[derive(Clone, Copy, Default)]
struct Luck(u64);

impl Luck {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Heap {
    /// Nothing yet.
    pub fn new(options: &Options) -> Self {
        Self {
            event: options.heap_event(),
            interval_bytes: options.heap_interval_bytes(),
            ..Self::default()
        }
    }

    /// Takes note of what a program told, with the sample of an allocation.
    pub fn note(&mut self, record: &RawSample<'_>, step: &abi::HeapStep, sample: Option<HeldSample>) {
        self.add_up(&record.header, step);
        let told = match (u32::from(step.step), sample) {
            (abi::HEAP_COUNTED, _) => return,
            (abi::HEAP_UNFOLLOWED, _) => Step::Unfollowed,
            (_, Some(sample)) => Step::Allocated(Allocation {
                size: step.size,
                sample: Box::new(sample),
            }),
            (_, None) => Step::Freed,
        };
        let key = AllocationKey {
            pid: record.header.tgid,
            program: step.program,
            id: step.id,
        };
        self.records.push(Record {
            boottime_ns: record.header.boottime_ns,
            what: What::Told(key, told),
        });
    }

    /// Of this window nothing more is told from now on.
    pub fn close_window(&mut self, window: u64) {
        self.records.push(Record {
            boottime_ns: cost::boottime_ns(),
            what: What::Closed(window),
        });
    }

    fn add_up(&mut self, header: &abi::SampleHeader, step: &abi::HeapStep) {
        let key = (header.tgid, header.start_boottime_ns, step.program);
        let told = self.told.entry(key).or_default();
        told.allocations = told.allocations.saturating_add(step.calls);
        told.bytes = told.bytes.saturating_add(step.bytes);
        told.is_whole |= u32::from(step.step) == abi::HEAP_COUNTED;
    }

    /// The samples whose allocations were freed, by what had been told when the rings were looked at: records of another
    /// CPU that are a little older may come with the next look.
    pub fn settle(&mut self, looked_ns: u64) -> Vec<HeldSample> {
        let before_ns = looked_ns.saturating_sub(LATE_NS);
        self.records.sort_by_key(|record| record.boottime_ns);
        let due = self.records.partition_point(|record| record.boottime_ns < before_ns);
        let allocations = &mut self.allocations;
        let ended: Vec<_> = (self.records.drain(..due))
            .flat_map(|record| match record.what {
                What::Told(key, step) => allocations.take(record.boottime_ns, key, step).into_iter().collect(),
                What::Closed(window) => allocations.give_up(window),
            })
            .collect();
        self.finish_all(ended)
    }

    /// Once the last record has been told: the samples of what is in use, the totals and the losses.
    pub fn finish(mut self, profile: &mut Profile) -> Vec<HeldSample> {
        self.note_totals(profile);
        if self.event.is_some() {
            let meaning = "ends of sampled allocations whose beginning was lost";
            profile.loss("free without allocation", self.allocations.unmatched(), false, meaning);
        }
        let in_use = std::mem::take(&mut self.allocations).finish();
        self.finish_all(in_use)
    }

    fn finish_all(&mut self, ended: Vec<Ended<Allocation>>) -> Vec<HeldSample> {
        let mut finish = |one: Ended<Allocation>| {
            let estimate = Estimate::of(one.sample.size, self.interval_bytes, self.luck.next());
            finished(one, estimate)
        };
        ended.into_iter().map(&mut finish).collect()
    }

    /// Of processes whose programs have told all; of the whole only when all have.
    fn note_totals(&self, profile: &mut Profile) {
        let Some(event) = self.event else { return };
        let mut by_process: BTreeMap<(u32, u64), Told> = BTreeMap::new();
        for (&(pid, start_boottime_ns, _), told) in &self.told {
            let sum = by_process.entry((pid, start_boottime_ns)).or_insert(Told {
                is_whole: true,
                ..Told::default()
            });
            sum.allocations += told.allocations;
            sum.bytes += told.bytes;
            sum.is_whole &= told.is_whole;
        }
        let mut total = |pid, start_boottime_ns, count| {
            profile.event_total(EventTotalRow {
                event: event as u16,
                pid,
                start_boottime_ns,
                count,
            });
        };
        let whole: Vec<_> = by_process.iter().filter(|(_, told)| told.is_whole).collect();
        for ((pid, start_boottime_ns), told) in &whole {
            total(*pid, *start_boottime_ns, told.bytes);
        }
        if !whole.is_empty() && whole.len() == by_process.len() {
            total(0, 0, whole.iter().map(|(_, told)| told.bytes).sum());
        }
        for (&(pid, start_boottime_ns), told) in whole {
            profile.heap_total(HeapTotalRow {
                pid,
                start_boottime_ns,
                allocations: told.allocations,
                bytes: told.bytes,
            });
        }
    }
}

fn finished(ended: Ended<Allocation>, estimate: Estimate) -> HeldSample {
    let Allocation { size, sample } = ended.sample;
    let mut sample = *sample;
    sample.row.value = estimate.bytes;
    sample.row.count = estimate.objects;
    sample.row.heap = Some(HeapRow {
        size,
        estimate,
        fate: ended.fate,
        lifetime_ns: ended.lifetime_ns,
    });
    sample
}
