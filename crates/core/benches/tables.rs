//! The tables' hot paths on a million samples: `cargo bench -p stackhound-core --bench tables`.

mod common;

use std::hint::black_box;

use common::{Random, report};
use stackhound_core::calltree::{FrameTable, Weights, call_tree};
use stackhound_core::paths::{StackTree, intern_paths};

const SAMPLES: u32 = 1_000_000;
const STACKS: u32 = 200_000;
const LOCATIONS: u32 = 20_000;
const PROCESSES: u32 = 50;
const ROUNDS: usize = 7;

fn main() {
    let profile = Profile::new(&mut Random(88_172_645_463_325_252));
    let samples = SAMPLES as usize;
    report("samples with 200,000 stacks to a call tree", samples, ROUNDS, || {
        profile.tree(None)
    });
    report("the same by process", samples, ROUNDS, || {
        profile.tree(Some(&profile.process))
    });
    let anything: Vec<u32> = (0..SAMPLES).map(|sample| sample % PROCESSES).collect();
    report("the same, every stack in every process", samples, ROUNDS, || {
        profile.tree(Some(&anything))
    });
    let (offsets, locations) = profile.paths();
    report("frames of the stacks' paths", locations.len(), ROUNDS, || {
        drop(profile.paths())
    });
    report("frames of paths to stacks", locations.len(), ROUNDS, || {
        drop(intern_paths(&offsets, &locations).unwrap())
    });
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
        let stack: Vec<u32> = (0..SAMPLES).map(|_| hot(random, STACKS)).collect();
        Self {
            process: stack.iter().map(|&stack| process_of_stack[stack as usize]).collect(),
            value: vec![10_101_010; stack.len()],
            location: (0..STACKS).map(|_| hot(random, LOCATIONS)).collect(),
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

    fn tree(&self, root: Option<&[u32]>) {
        let weights = Weights {
            root,
            stack: &self.stack,
            value: &self.value,
        };
        let frames = FrameTable::new(&self.offsets, &self.frames).unwrap();
        black_box(call_tree(&weights, self.stacks(), frames).unwrap());
    }
}

/// Half of the draws within a hundredth of the range, spread over all of it.
fn hot(random: &mut Random, bound: u32) -> u32 {
    let draw = if random.next() & 1 == 0 {
        random.below(bound / 100) * 97
    } else {
        random.below(bound)
    };
    draw % bound
}
