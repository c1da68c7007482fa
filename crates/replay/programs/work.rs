// Rust that sorts by closures, recurses, formats and panics through destructors: again and again.
use std::collections::BTreeMap;
use std::hint::black_box;

struct Guard(String);

impl Drop for Guard {
    fn drop(&mut self) {
        black_box(self.0.len());
    }
}

fn descend(depth: u32, text: &str) -> usize {
    let guard = Guard(format!("{text} {depth}"));
    assert!(depth > 0, "the bottom");
    descend(depth - 1, &guard.0) + guard.0.len()
}

fn main() {
    std::panic::set_hook(Box::new(|_| ()));
    for round in 0_u64.. {
        let mut numbers: Vec<u64> = (0..200).map(|n| n * 7919 % (round + 101)).collect();
        numbers.sort_by(|a, b| b.cmp(a).then(a.cmp(b)));
        let named: BTreeMap<String, u64> = numbers.iter().map(|n| (n.to_string(), *n)).collect();
        black_box(named);
        let _ = std::panic::catch_unwind(|| descend(12, "round"));
    }
}
