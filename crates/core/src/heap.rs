//! Sampled allocations: what each stands for, and what became of it.
//!
//! ```text
//! allocated ──→ freed          its bytes were in use for a while
//! allocated ──→ …              in use until its program or the recording ended
//! allocated, not followed      nobody knows: it is never said to be in use
//! ```

use hashbrown::HashMap;

/// What an allocation that was chosen stands for: itself, and those like it that were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Allocations.
    pub objects: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Estimate {
    /// Of an allocation of `size` bytes, which is chosen with probability 1 − exp(−(size + 1) / `interval_bytes`).
    ///
    /// `luck`: random, from 0 up to 1. With it fractions are rounded up as often as is fair: 1.4 would else always be 1.
    ///
    /// Source: pprof and tcmalloc scale likewise; the byte more gives those of no bytes their chance (preload/heap.c).
    pub fn of(size: u64, interval_bytes: u64, luck: f64) -> Self {
        let chance = -(-(size as f64 + 1.0) / interval_bytes.max(1) as f64).exp_m1();
        Self {
            objects: (1.0 / chance + luck) as u64,
            bytes: (size as f64 / chance + luck) as u64,
        }
    }
}

/// What became of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It was given back.
    Freed,
    /// It was not, until its program or the recording ended.
    InUse,
    /// Nobody could follow it.
    Unknown,
}

impl Fate {
    /// As in the column `heap.fate`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freed => "freed",
            Self::InUse => "in use",
            Self::Unknown => "unknown",
        }
    }
}

/// Names an allocation for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocationKey {
    /// Its process.
    pub pid: u32,
    /// Tells programs of one process apart.
    pub program: u64,
    /// In that program; 0: its end will not be told.
    pub id: u64,
}

/// What was told of an allocation.
#[derive(Debug)]
pub enum Step<Sample> {
    /// With whatever the caller knows of it.
    Allocated(Sample),
    /// It was given back.
    Freed,
    /// Its end will not be told.
    Unfollowed,
}

/// An allocation of which all is known that there will be.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended<Sample> {
    /// As it was given.
    pub sample: Sample,
    /// What became of it.
    pub fate: Fate,
    /// From its beginning to its end, if it was freed.
    pub lifetime_ns: Option<u64>,
}

/// Those that are in use.
pub struct Allocations<Sample> {
    open: HashMap<AllocationKey, (u64, Sample)>,
    unmatched: u64,
}

impl<Sample> Default for Allocations<Sample> {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            unmatched: 0,
        }
    }
}

impl<Sample> Allocations<Sample> {
    /// Takes what is told next in the order of time, and gives back the allocation that is over with it.
    pub fn take(&mut self, boottime_ns: u64, key: AllocationKey, step: Step<Sample>) -> Option<Ended<Sample>> {
        match step {
            Step::Allocated(sample) if key.id == 0 => Some(unknown(sample)),
            Step::Allocated(sample) => {
                let before = self.open.insert(key, (boottime_ns, sample))?;
                Some(in_use(before)) // a program that tells the same twice
            }
            Step::Unfollowed => self.open.remove(&key).map(|(_, sample)| unknown(sample)),
            Step::Freed => match self.open.remove(&key) {
                Some((since_ns, sample)) => Some(Ended {
                    sample,
                    fate: Fate::Freed,
                    lifetime_ns: Some(boottime_ns.saturating_sub(since_ns)),
                }),
                None => {
                    self.unmatched += 1;
                    None
                }
            },
        }
    }

    /// Nothing more will be told of a program's allocations: what becomes of those that are in use is not known.
    pub fn give_up(&mut self, program: u64) -> Vec<Ended<Sample>> {
        let left = self.open.extract_if(|key, _| key.program == program);
        let mut left: Vec<_> = left.map(|(_, open)| open).collect();
        left.sort_by_key(|(since_ns, _)| *since_ns);
        left.into_iter().map(|(_, sample)| unknown(sample)).collect()
    }

    /// Ends of allocations that nobody had told of.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }

    /// Those that are still in use, the oldest first.
    pub fn finish(self) -> Vec<Ended<Sample>> {
        let mut left: Vec<_> = self.open.into_iter().collect();
        left.sort_by_key(|(key, (since_ns, _))| (*since_ns, key.pid, key.id));
        left.into_iter().map(|(_, open)| in_use(open)).collect()
    }
}

fn in_use<Sample>((_, sample): (u64, Sample)) -> Ended<Sample> {
    Ended {
        sample,
        fate: Fate::InUse,
        lifetime_ns: None,
    }
}

fn unknown<Sample>(sample: Sample) -> Ended<Sample> {
    Ended {
        sample,
        fate: Fate::Unknown,
        lifetime_ns: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 512 << 10;

    fn key(id: u64) -> AllocationKey {
        AllocationKey { pid: 7, program: 9, id }
    }

    /// A small allocation stands for as many as there are in an interval, a large one for itself.
    #[test]
    fn an_allocation_stands_for_those_that_were_not_chosen() {
        let small = Estimate::of(15, INTERVAL, 0.5);
        assert_eq!((small.objects, small.bytes), (32_769, 491_528));
        let large = Estimate::of(64 << 20, INTERVAL, 0.5);
        assert_eq!((large.objects, large.bytes), (1, 64 << 20));
        let empty = Estimate::of(0, INTERVAL, 0.25);
        assert_eq!((empty.objects, empty.bytes), (524_288, 0));
    }

    /// What is estimated of a size that is chosen as often as it should be adds up to what there was.
    #[test]
    fn estimates_are_unbiased() {
        for size in [1u64, 100, 4096, 300_000, 2 << 20] {
            let chance = 1.0 - (-((size + 1) as f64) / INTERVAL as f64).exp();
            let lucks = (0..1000).map(|luck| f64::from(luck) / 1000.0);
            let estimates: Vec<_> = lucks.map(|luck| Estimate::of(size, INTERVAL, luck)).collect();
            let mean = |of: fn(&Estimate) -> u64| estimates.iter().map(of).sum::<u64>() as f64 / 1000.0;
            let (objects, bytes) = (mean(|one| one.objects) * chance, mean(|one| one.bytes) * chance);
            assert!((bytes / size as f64 - 1.0).abs() < 1e-3, "{size}: {bytes}");
            assert!((objects - 1.0).abs() < 1e-3, "{size}: {objects}");
        }
    }

    /// What is freed was in use until then; what is not still is.
    #[test]
    fn allocations_are_in_use_until_they_are_freed() {
        let mut allocations = Allocations::default();
        assert_eq!(allocations.take(100, key(1), Step::Allocated("one")), None);
        assert_eq!(allocations.take(110, key(2), Step::Allocated("two")), None);
        let freed = allocations.take(130, key(1), Step::Freed).unwrap();
        assert_eq!(
            (freed.sample, freed.fate, freed.lifetime_ns),
            ("one", Fate::Freed, Some(30))
        );
        let left = allocations.finish();
        assert_eq!((left.len(), left[0].sample, left[0].fate), (1, "two", Fate::InUse));
    }

    /// One whose end will not be told is never said to be in use.
    #[test]
    fn an_allocation_that_is_not_followed_has_no_known_end() {
        let mut allocations = Allocations::default();
        let ended = allocations.take(100, key(0), Step::Allocated("lost")).unwrap();
        assert_eq!((ended.fate, ended.lifetime_ns), (Fate::Unknown, None));
        assert!(allocations.finish().is_empty());
    }

    /// What nobody watches any more is in use for all that is known, and is not said to be.
    #[test]
    fn allocations_that_are_given_up_have_no_known_end() {
        let mut allocations = Allocations::default();
        allocations.take(100, key(1), Step::Allocated("one"));
        allocations.take(110, AllocationKey { program: 1, ..key(2) }, Step::Allocated("two"));
        let given_up = allocations.give_up(9);
        assert_eq!((given_up.len(), given_up[0].sample), (1, "one"));
        assert_eq!(given_up[0].fate, Fate::Unknown);
        assert_eq!(allocations.finish().len(), 1);
    }

    /// Processes and programs are told apart, and ends of nothing are counted.
    #[test]
    fn an_end_without_a_beginning_is_counted() {
        let mut allocations = Allocations::default();
        allocations.take(100, key(1), Step::Allocated("one"));
        for other in [
            AllocationKey { pid: 8, ..key(1) },
            AllocationKey { program: 1, ..key(1) },
            key(2),
        ] {
            assert_eq!(allocations.take(110, other, Step::Freed), None);
        }
        assert_eq!((allocations.unmatched(), allocations.finish().len()), (3, 1));
    }

    /// A program that tells of an allocation twice loses none.
    #[test]
    fn an_allocation_that_is_told_twice_is_two() {
        let mut allocations = Allocations::default();
        allocations.take(100, key(1), Step::Allocated("one"));
        assert_eq!(
            allocations.take(110, key(1), Step::Allocated("two")).unwrap().sample,
            "one"
        );
    }
}
