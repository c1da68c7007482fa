//! The tables' hot paths on a million samples: `cargo bench -p stackhound-core --bench tables`.

use std::time::Instant;

use stackhound_core::calltree::{FrameTable, Weights, call_tree};
use stackhound_core::paths::{StackTree, intern_paths};

const SAMPLES: u32 = 1_000_000;
const STACKS: u32 = 200_000;
const LOCATIONS: u32 = 20_000;
const PROCESSES: u32 = 50;
const ROUNDS: usize = 7;

fn main() {
    let profile = Profile::new(&mut Random(88_172_645_463_325_252));
    let depth = profile.paths().1.len() / STACKS as usize;
    println!("{SAMPLES} samples, {STACKS} stacks, mean depth {depth}, {PROCESSES} processes");
    report("call tree", || profile.tree(None));
    report("call tree, by process", || profile.tree(Some(&profile.process)));
    let anything: Vec<u32> = (0..SAMPLES).map(|sample| sample % PROCESSES).collect();
    report("call tree, every stack in every process", || {
        profile.tree(Some(&anything))
    });
    report("paths of the stacks", || profile.paths().1.len());
    let (offsets, locations) = profile.paths();
    report("stacks of the paths", || {
        intern_paths(&offsets, &locations).unwrap().1.len()
    });
}

fn report(what: &str, mut run: impl FnMut() -> usize) {
    let mut rows = 0;
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            rows = std::hint::black_box(run());
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{what:42} {rows:>10} rows  median {:7.1} ms  best {:7.1} ms",
        times[ROUNDS / 2],
        times[0]
    );
}

/// Stacks that branch from older ones, a few of them hot, each seen in one process.
struct Profile {
    stack: Vec<u32>,
    process: Vec<u32>,
    value: Vec<u64>,
    parent: Vec<u32>,
    location: Vec<u32>,
    offsets: Vec<u32>,
    frames: Vec<u32>,
}

impl Profile {
    fn new(random: &mut Random) -> Self {
        let mut parent = vec![0];
        let mut process_of_stack = vec![0];
        for stack in 1..STACKS {
            let fresh = stack <= PROCESSES;
            let above = if random.below(5) == 0 {
                random.below(stack)
            } else {
                stack - 1 - random.below(30.min(stack))
            };
            parent.push(if fresh { 0 } else { above });
            process_of_stack.push(if fresh {
                stack - 1
            } else {
                process_of_stack[above as usize]
            });
        }
        let stack: Vec<u32> = (0..SAMPLES).map(|_| random.hot(STACKS)).collect();
        Self {
            process: stack.iter().map(|&stack| process_of_stack[stack as usize]).collect(),
            value: vec![10_101_010; stack.len()],
            location: (0..STACKS).map(|_| random.hot(LOCATIONS)).collect(),
            offsets: (0..=LOCATIONS).collect(),
            frames: (0..LOCATIONS).map(|_| random.below(LOCATIONS)).collect(),
            parent,
            stack,
        }
    }

    fn stacks(&self) -> StackTree<'_> {
        StackTree::new(&self.parent, &self.location).unwrap()
    }

    fn paths(&self) -> (Vec<u32>, Vec<u32>) {
        self.stacks().paths().unwrap()
    }

    fn tree(&self, root: Option<&[u32]>) -> usize {
        let weights = Weights {
            root,
            stack: &self.stack,
            value: &self.value,
        };
        call_tree(
            &weights,
            self.stacks(),
            FrameTable::new(&self.offsets, &self.frames).unwrap(),
        )
        .unwrap()
        .parent
        .len()
    }
}

/// xorshift64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }

    /// Half of the draws within a hundredth of the range, spread over all of it.
    fn hot(&mut self, bound: u32) -> u32 {
        let draw = if self.next() & 1 == 0 {
            self.below(bound / 100) * 97
        } else {
            self.below(bound)
        };
        draw % bound
    }
}
