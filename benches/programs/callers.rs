// callers SECONDS: sorts and formats below closures and iterators.
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[inline(never)]
fn churn(seed: u64) -> usize {
    let mut words: Vec<String> = (0..300).map(|i| format!("{}", seed.wrapping_mul(i * i + 7))).collect();
    words.sort_by(|left, right| right.cmp(left));
    let counts = words.iter().fold(BTreeMap::new(), |mut counts: BTreeMap<String, usize>, word| {
        *counts.entry(word.chars().take(3).collect()).or_default() += 1;
        counts
    });
    counts.len()
}

#[inline(never)]
fn descend(frames: usize, seed: u64) -> usize {
    if frames == 0 { churn(seed) } else { black_box(descend(frames - 1, seed + 1)) + frames }
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut sum = 0;
    while Instant::now() < end {
        sum += std::thread::spawn(move || descend(20, sum as u64)).join().unwrap();
    }
    black_box(sum);
}
