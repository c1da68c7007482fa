//! Time off the CPU that is seen where threads leave (`bpf/departures.bpf.c`): the stack comes first, how long the thread
//! was away when it leaves again.

use std::collections::HashMap;

use crate::abi;

/// The halves of one thread that wait for each other, at most. They lie in different CPUs' rings, and the one that was
/// written first may be read last.
const HALVES: usize = 16;
/// A thread that ends leaves a CPU for the last time so long after it was said to end, at most.
const AFTERMATH_NS: u64 = 1_000_000_000;

/// Which of its departures a thread's record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Of the thread's departures with a stack.
    pub number: u32,
    /// Of the thread's sites.
    pub site: u32,
}

/// How long a thread was away, and how.
#[derive(Clone, Copy, Debug)]
pub struct Absence {
    /// When it was over.
    pub end_boottime_ns: u64,
    /// What its sample stands for.
    pub weight_ns: u64,
    /// How it was.
    pub away: abi::OffCpu,
}

impl Absence {
    fn has_usual_stack(&self) -> bool {
        self.away.flags & abi::OFF_CPU_AS_USUAL != 0
    }
}

/// Stacks whose threads have not been away yet for a known time, and the reverse.
pub struct Departures<S> {
    threads: HashMap<u32, Thread<S>>,
    ended: Vec<(u32, u64)>,
}

struct Thread<S> {
    /// By number, the oldest first: what never found its other half makes room for others.
    waiting: Vec<(u32, Half<S>)>,
    /// The last stack of each site.
    usual: Vec<(u32, S)>,
    seen_ns: u64,
}

enum Half<S> {
    Stack(S),
    Absence(Absence),
}

impl<S> Default for Departures<S> {
    fn default() -> Self {
        Self {
            threads: HashMap::new(),
            ended: Vec::new(),
        }
    }
}

impl<S> Default for Thread<S> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            usual: Vec::new(),
            seen_ns: 0,
        }
    }
}

impl<S: Clone> Departures<S> {
    /// The stack of a thread's departure; given back with its absence once that is known.
    pub fn leave(&mut self, tid: u32, departure: Departure, stack: S, now_ns: u64) -> Option<(S, Absence)> {
        let thread = self.thread(tid, now_ns);
        thread.know(departure.site, &stack);
        match thread.other_half(departure.number) {
            Some(Half::Absence(absence)) => Some((stack, absence)),
            _ => thread.wait(departure.number, Half::Stack(stack)),
        }
    }

    /// The absence after a departure, likewise.
    pub fn come_back(&mut self, tid: u32, departure: Departure, absence: Absence) -> Option<(S, Absence)> {
        let thread = self.thread(tid, absence.end_boottime_ns);
        if absence.has_usual_stack()
            && let Some(stack) = thread.usual(departure.site)
        {
            return Some((stack, absence));
        }
        match thread.other_half(departure.number) {
            Some(Half::Stack(stack)) => Some((stack, absence)),
            _ => thread.wait(departure.number, Half::Absence(absence)),
        }
    }

    /// The stack of a departure, if it is there.
    pub fn stack(&mut self, tid: u32, departure: Departure) -> Option<S> {
        match self.threads.get_mut(&tid)?.other_half(departure.number)? {
            Half::Stack(stack) => Some(stack),
            Half::Absence(_) => None,
        }
    }

    /// The thread ends.
    pub fn end(&mut self, tid: u32, time_ns: u64) {
        if self.threads.contains_key(&tid) {
            self.ended.push((tid, time_ns));
        }
    }

    /// Gives back what is kept of threads that have ended for good, unless another one has their number.
    pub fn forget_ended(&mut self, now_ns: u64) {
        let threads = &mut self.threads;
        self.ended.retain(|&(tid, time_ns)| {
            let until_ns = time_ns + AFTERMATH_NS;
            if now_ns <= 2 * AFTERMATH_NS + time_ns {
                return true;
            }
            if threads.get(&tid).is_some_and(|thread| thread.seen_ns <= until_ns) {
                threads.remove(&tid);
            }
            false
        });
    }

    fn thread(&mut self, tid: u32, now_ns: u64) -> &mut Thread<S> {
        let thread = self.threads.entry(tid).or_default();
        thread.seen_ns = thread.seen_ns.max(now_ns);
        thread
    }
}

impl<S: Clone> Thread<S> {
    fn know(&mut self, site: u32, stack: &S) {
        match self.usual.iter_mut().find(|(known, _)| *known == site) {
            Some((_, usual)) => usual.clone_from(stack),
            None => self.usual.push((site, stack.clone())),
        }
    }

    fn usual(&self, site: u32) -> Option<S> {
        let found = self.usual.iter().find(|(known, _)| *known == site);
        found.map(|(_, stack)| stack.clone())
    }

    fn other_half(&mut self, number: u32) -> Option<Half<S>> {
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == number)?;
        Some(self.waiting.remove(at).1)
    }

    fn wait(&mut self, number: u32, half: Half<S>) -> Option<(S, Absence)> {
        if self.waiting.len() == HALVES {
            self.waiting.remove(0);
        }
        self.waiting.push((number, half));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absence(flags: u32) -> Absence {
        let away = abi::OffCpu {
            duration_ns: 5,
            queued_ns: 1,
            waking: 0,
            flags,
            departure: 1,
            site: 3,
            absences: 1,
            since_ns: 0,
        };
        Absence {
            end_boottime_ns: 9,
            weight_ns: 7,
            away,
        }
    }

    fn departure(number: u32) -> Departure {
        Departure { number, site: 3 }
    }

    #[test]
    fn a_stack_and_its_absence_find_each_other_in_either_order() {
        let mut departures = Departures::default();
        assert!(departures.leave(1, departure(1), "first", 0).is_none());
        assert!(departures.come_back(1, departure(2), absence(0)).is_none());
        assert!(departures.come_back(2, departure(1), absence(0)).is_none());
        let (stack, found) = departures.come_back(1, departure(1), absence(0)).unwrap();
        assert_eq!((stack, found.weight_ns), ("first", 7));
        assert_eq!(departures.leave(1, departure(2), "second", 0).unwrap().0, "second");
    }

    #[test]
    fn an_absence_whose_stack_was_not_taken_has_the_last_one_of_its_site() {
        let mut departures = Departures::default();
        let as_usual = absence(abi::OFF_CPU_AS_USUAL);
        departures.leave(1, departure(1), "first", 0);
        departures.come_back(1, departure(1), absence(0)).unwrap();
        for _ in 0..2 {
            assert_eq!(departures.come_back(1, departure(1), as_usual).unwrap().0, "first");
        }
        let elsewhere = Departure { number: 1, site: 4 };
        assert!(departures.come_back(1, elsewhere, as_usual).is_none());
    }

    #[test]
    fn what_never_finds_its_other_half_makes_room_for_others() {
        let mut departures = Departures::default();
        for number in 0..=HALVES as u32 {
            assert!(departures.leave(1, departure(number), number, 0).is_none());
        }
        assert_eq!(departures.stack(1, departure(0)), None);
        assert_eq!(departures.stack(1, departure(1)), Some(1));
    }

    #[test]
    fn threads_that_have_ended_are_forgotten_unless_their_number_is_used_again() {
        let mut departures = Departures::default();
        for tid in [1, 2] {
            departures.leave(tid, departure(1), "first", 10);
            departures.end(tid, 20);
        }
        departures.leave(2, departure(1), "again", 2 * AFTERMATH_NS);
        departures.forget_ended(30);
        assert_eq!(departures.threads.len(), 2);
        departures.forget_ended(3 * AFTERMATH_NS);
        assert_eq!(departures.threads.keys().collect::<Vec<_>>(), [&2]);
        assert!(departures.ended.is_empty());
    }
}
