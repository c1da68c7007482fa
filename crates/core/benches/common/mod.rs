//! What the benchmarks share.

use std::time::Instant;

/// Run `work` several times; print how long it took, and how many of the `items` that makes a second. CPU time is
/// what counts on a machine with other work. With `--json` as the program's argument each result is a JSON object on
/// a line of its own.
pub fn report(what: &str, items: usize, rounds: usize, mut work: impl FnMut()) {
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (start, start_cpu) = (Instant::now(), cpu_seconds());
        work();
        wall.push(start.elapsed().as_secs_f64());
        cpu.push(cpu_seconds() - start_cpu);
    }
    let (wall, cpu) = (median(wall), median(cpu));
    let rate = items as f64 / cpu;
    if std::env::args().any(|argument| argument == "--json") {
        println!(
            r#"{{"what": "{what}", "items": {items}, "wall_s": {wall:.6}, "cpu_s": {cpu:.6}, "per_cpu_second": {rate:.0}}}"#
        );
    } else {
        let (wall_ms, cpu_ms) = (wall * 1e3, cpu * 1e3);
        println!("{what:44} {items:>9}  {wall_ms:8.1} ms  CPU {cpu_ms:8.1} ms  {rate:>12.0} a CPU second");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of all threads of this process.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// xorshift64: the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }
}
