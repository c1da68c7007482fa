//! Which process has which mappings, as the walker looks them up: an open-addressed table of slots of one word.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::MapHandle;

use crate::abi;
use crate::error::{Error, Result};
use crate::mapped::Mapped;

/// A slot that was in use, and others behind it may be.
const LEFT: u64 = 1;

/// The slots, shared with the programs. At an exec the kernel half clears the reference in a slot.
pub struct ProcessTable {
    slots: Slots<Mapped>,
    /// What was stored last for each process.
    stored: HashMap<u32, u64>,
    refused: u64,
}

impl ProcessTable {
    /// On the programs' map.
    pub fn new(map: &MapHandle) -> Result<Self> {
        let memory = Mapped::new(map, 0, abi::UNWIND_PROCESSES * size_of::<u64>())
            .map_err(|error| Error::system("the table of processes cannot be mapped", &error))?;
        Ok(Self {
            slots: Slots(memory),
            stored: HashMap::new(),
            refused: 0,
        })
    }

    /// Refers to the mappings of a process from now on. False when it has no room, or has become another program that
    /// is not known of yet: then nothing changes.
    pub fn set(&mut self, tgid: u32, reference: u32) -> bool {
        let value = u64::from(tgid) << 32 | u64::from(reference);
        let is_set = match self.stored.get(&tgid) {
            Some(&before) => self.slots.exchange(tgid, before, value),
            None => self.slots.insert(tgid, value) || self.refuse(),
        };
        if is_set {
            self.stored.insert(tgid, value);
        }
        is_set
    }

    fn refuse(&mut self) -> bool {
        self.refused += 1;
        false
    }

    /// How often a process found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// It has become another program: what the kernel half has cleared, or is about to.
    pub fn clear(&mut self, tgid: u32) {
        if let Some(stored) = self.stored.get_mut(&tgid) {
            let cleared = u64::from(tgid) << 32;
            self.slots.exchange(tgid, *stored, cleared);
            *stored = cleared;
        }
    }

    /// It has ended.
    pub fn remove(&mut self, tgid: u32) {
        if self.stored.remove(&tgid).is_some() {
            self.slots.remove(tgid);
        }
    }
}

/// Where the slots lie.
trait Words {
    fn word(&self, index: usize) -> &AtomicU64;
}

impl Words for Mapped {
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len());
        // SAFETY: within the mapping, aligned, and shared with the kernel as a word that changes.
        unsafe { AtomicU64::from_ptr(self.words().add(index).as_ptr()) }
    }
}

struct Slots<W>(W);

impl<W: Words> Slots<W> {
    /// The slots that may be a process's, in the order in which bpf/stack/tables.h looks at them.
    fn of(&self, tgid: u32) -> impl Iterator<Item = &AtomicU64> {
        let first = (tgid.wrapping_mul(0x9e37_79b1) >> 16) as usize;
        (0..abi::UNWIND_PROBES).map(move |probe| self.0.word((first + probe) % abi::UNWIND_PROCESSES))
    }

    fn find(&self, tgid: u32) -> Option<&AtomicU64> {
        self.of(tgid)
            .find(|slot| slot.load(Ordering::Relaxed) >> 32 == u64::from(tgid))
    }

    fn insert(&self, tgid: u32, value: u64) -> bool {
        let is_free = |slot: &&AtomicU64| matches!(slot.load(Ordering::Relaxed), 0 | LEFT);
        let free = self.of(tgid).find(is_free);
        free.map(|slot| slot.store(value, Ordering::Release)).is_some()
    }

    fn exchange(&self, tgid: u32, before: u64, after: u64) -> bool {
        let exchange = |slot: &AtomicU64| slot.compare_exchange(before, after, Ordering::Release, Ordering::Relaxed);
        self.find(tgid).is_some_and(|slot| exchange(slot).is_ok())
    }

    /// Slots before one that was never used need not stay marked.
    fn remove(&self, tgid: u32) {
        let Some(place) = self
            .of(tgid)
            .position(|slot| slot.load(Ordering::Relaxed) >> 32 == u64::from(tgid))
        else {
            return;
        };
        let slots: Vec<&AtomicU64> = self.of(tgid).collect();
        let is_last = slots
            .get(place + 1)
            .is_some_and(|next| next.load(Ordering::Relaxed) == 0);
        slots[place].store(if is_last { 0 } else { LEFT }, Ordering::Release);
        let left = slots[..place].iter().rev();
        for slot in left.take_while(|slot| is_last && slot.load(Ordering::Relaxed) == LEFT) {
            slot.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Words for Vec<AtomicU64> {
        fn word(&self, index: usize) -> &AtomicU64 {
            &self[index]
        }
    }

    fn slots() -> Slots<Vec<AtomicU64>> {
        Slots((0..abi::UNWIND_PROCESSES).map(|_| AtomicU64::new(0)).collect())
    }

    /// Ids that lead to the same first slot.
    fn colliding(count: usize) -> Vec<u32> {
        let slot = |tgid: u32| tgid.wrapping_mul(0x9e37_79b1) >> 16;
        (1..=u32::MAX)
            .filter(|tgid| slot(*tgid) == slot(1))
            .take(count)
            .collect()
    }

    fn value(tgid: u32) -> u64 {
        u64::from(tgid) << 32 | 7
    }

    #[test]
    fn processes_of_one_slot_are_found_when_others_leave() {
        let (slots, ids) = (slots(), colliding(3));
        for &tgid in &ids {
            assert!(slots.insert(tgid, value(tgid)));
        }
        slots.remove(ids[1]);
        assert!(slots.find(ids[0]).is_some() && slots.find(ids[1]).is_none());
        assert_eq!(slots.find(ids[2]).unwrap().load(Ordering::Relaxed), value(ids[2]));
        slots.remove(ids[2]);
        slots.remove(ids[0]);
        assert!(
            slots.0.iter().all(|slot| slot.load(Ordering::Relaxed) == 0),
            "no mark is left"
        );
    }

    #[test]
    fn a_slot_that_the_kernel_has_cleared_is_not_overwritten() {
        let slots = slots();
        slots.insert(5, value(5));
        slots.find(5).unwrap().store(5 << 32, Ordering::Relaxed);
        assert!(!slots.exchange(5, value(5), value(5) + 1));
        assert!(slots.exchange(5, 5 << 32, value(5) + 1));
    }

    #[test]
    fn a_full_neighbourhood_takes_no_more() {
        let (slots, ids) = (slots(), colliding(abi::UNWIND_PROBES + 1));
        let taken = ids.iter().filter(|tgid| slots.insert(**tgid, value(**tgid))).count();
        assert_eq!(taken, abi::UNWIND_PROBES);
    }
}
