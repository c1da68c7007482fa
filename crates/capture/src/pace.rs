//! How fast the turns of a recording may follow each other.

use std::time::{Duration, Instant};

/// Between two turns this much passes on average, so that a storm of new processes does not keep us busy.
const MIN_TURN: Duration = Duration::from_millis(80);
/// So many turns may follow each other in short order: a few new programs are served at once.
const BURST_TURNS: f64 = 8.0;

/// Turns that were earned and not taken yet.
pub struct Pace {
    turns: f64,
    counted: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            turns: BURST_TURNS,
            counted: Instant::now(),
        }
    }
}

impl Pace {
    /// Counts a turn, and says how long the last one should be ago.
    pub fn pause(&mut self) -> Duration {
        let earned = self.counted.elapsed().as_secs_f64() / MIN_TURN.as_secs_f64();
        self.counted = Instant::now();
        self.turns = (self.turns + earned).min(BURST_TURNS);
        if self.turns < 1.0 {
            return MIN_TURN;
        }
        self.turns -= 1.0;
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_turns_are_free_and_then_each_must_be_earned() {
        let mut pace = Pace::default();
        let free = (0..100).take_while(|_| pace.pause().is_zero()).count();
        assert!(free >= BURST_TURNS as usize && free < 100);
        assert_eq!(pace.pause(), MIN_TURN);
    }
}
