//! Interning stacks, known ones and others: `cargo bench -p stackhound-core --bench intern`.

mod common;

use common::{Random, report};
use stackhound_core::address::ObjectAddr;
use stackhound_core::profile::Profile;
use stackhound_core::rows::{LocationId, ObjectId, ObjectKind, SampleRow, StackId, ThreadId};

const STACKS: usize = 2_000;
const DEPTH: usize = 40;
const SAMPLES: usize = 1_000_000;
const ROUNDS: usize = 5;
/// Calls to the left or to the right, so that nearly each path is another one.
const TURNS: usize = 24;
const NEW_STACKS: usize = 600_000;

fn main() {
    let mut profile = Profile::default();
    let object = profile.object(ObjectKind::Elf, "/app", &[1]);
    let paths = paths(&mut Random(88_172_645_463_325_252));
    report("stacks of 40 known frames, hot", SAMPLES, ROUNDS, || {
        for sample in 0..SAMPLES {
            intern(&mut profile, object, &paths[sample % 16]);
        }
    });
    report("stacks of 40 known frames, 2,000 different", SAMPLES, ROUNDS, || {
        for sample in 0..SAMPLES {
            intern(&mut profile, object, &paths[sample * 7919 % STACKS]);
        }
    });
    let mut random = Random(362_436_069);
    let mut grown = Profile::default();
    report(
        "stacks of 40 known frames, each another one",
        NEW_STACKS,
        ROUNDS,
        || {
            grown = grow(&mut random);
        },
    );
    report("their rows", NEW_STACKS, ROUNDS, || drop(grown.tables()));
    drop(grown);
    report("samples kept", SAMPLES, ROUNDS, || keep(&mut profile));
    report("samples to tables", SAMPLES * ROUNDS, ROUNDS, || drop(profile.tables()));
}

/// Paths of addresses that share their first half with others.
fn paths(random: &mut Random) -> Vec<Vec<u64>> {
    let roots: Vec<Vec<u64>> = (0..20).map(|_| addresses(random)).collect();
    let mut path = |_| {
        let mut path = roots[random.below(20) as usize].clone();
        path.extend(addresses(random));
        path
    };
    (0..STACKS).map(&mut path).collect()
}

fn addresses(random: &mut Random) -> Vec<u64> {
    (0..DEPTH / 2).map(|_| random.below(50_000).into()).collect()
}

/// Stacks that differ in the middle: the same callers above a path of [`TURNS`], and the same kernel frames below.
fn grow(random: &mut Random) -> Profile {
    let mut profile = Profile::default();
    let object = profile.object(ObjectKind::Elf, "/app", &[1]);
    let mut path: Vec<u64> = (0..DEPTH as u64).map(|frame| 100 + frame).collect();
    for _ in 0..NEW_STACKS {
        let turns = random.next() >> 8;
        for (turn, frame) in path[4..4 + TURNS].iter_mut().enumerate() {
            *frame = turns >> turn & 1;
        }
        intern(&mut profile, object, &path);
    }
    profile
}

fn intern(profile: &mut Profile, object: ObjectId, path: &[u64]) -> StackId {
    let location = |&address: &u64| profile.location(object, ObjectAddr(address));
    let path: Vec<LocationId> = path.iter().map(location).collect();
    profile.stack(&path)
}

fn keep(profile: &mut Profile) {
    for sample in 0..SAMPLES as u64 {
        profile.sample(SampleRow {
            boottime_ns: sample * 1_000,
            last_ns: sample * 1_000,
            thread: ThreadId::default(),
            value: 10_101_010,
            count: 1,
            ..SampleRow::default()
        });
    }
}
