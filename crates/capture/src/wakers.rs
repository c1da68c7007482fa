//! Who woke the threads: kept from the record that tells it (`bpf/wakers.bpf.c`) to the sample that it ends.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use stackhound_core::rows::WakerRow;

/// After its waking a thread waits for a CPU not even half so long.
const KEPT: Duration = Duration::from_secs(60);

/// By the number of the record.
pub struct Wakers {
    lately: HashMap<u64, WakerRow>,
    before: HashMap<u64, WakerRow>,
    turned: Instant,
}

impl Default for Wakers {
    fn default() -> Self {
        Self {
            lately: HashMap::new(),
            before: HashMap::new(),
            turned: Instant::now(),
        }
    }
}

impl Wakers {
    /// Some are nobody's: a thread that would soon have made a sample came back a little too early.
    pub fn add(&mut self, number: u64, waker: WakerRow) {
        if self.turned.elapsed() > KEPT {
            self.before = std::mem::take(&mut self.lately);
            self.turned = Instant::now();
        }
        self.lately.insert(number, waker);
    }

    /// The one that a sample names.
    pub fn take(&mut self, number: u64) -> Option<WakerRow> {
        self.lately.remove(&number).or_else(|| self.before.remove(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackhound_core::profile::Profile;
    use stackhound_core::rows::{ProcessRow, StackId};

    #[test]
    fn a_waker_is_found_once_by_its_number() {
        let (mut wakers, mut profile) = (Wakers::default(), Profile::default());
        let process = profile.process(ProcessRow::default());
        let waker = WakerRow {
            thread: profile.thread(process, 1, 1, b"waker"),
            stack: StackId::EMPTY,
        };
        wakers.add(7, waker);
        assert_eq!(
            [wakers.take(8), wakers.take(7), wakers.take(7)],
            [None, Some(waker), None]
        );
    }
}
