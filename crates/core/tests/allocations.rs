//! The allocator that counts. Without a harness, whose own allocations would be among those that are counted.

use std::hint::black_box;
use std::thread;

use stackhound_core::allocations::{Counting, Totals};
use stackhound_core::profile::Profile;
use stackhound_core::rows::ObjectKind;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIZES: [usize; 4] = [1, 100, 4096, 1 << 20];
const THREADS: u64 = 4;
const BLOCKS: u64 = 10_000;
const BLOCK_BYTES: usize = 24;

fn main() {
    known_sizes_are_counted_to_the_byte();
    a_block_that_grows_is_counted_anew();
    what_is_given_back_was_asked_for_all_the_same();
    every_thread_is_counted();
    what_does_the_same_gives_the_same_totals();
    one_more_allocation_is_one_more();
}

fn ask(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

fn known_sizes_are_counted_to_the_byte() {
    let mut kept = Vec::with_capacity(SIZES.len());
    let totals = Totals::of(|| kept.extend(SIZES.map(ask)));
    assert_eq!((totals.blocks, totals.bytes), (4, 1 + 100 + 4096 + (1 << 20)));
    let zeroed = Totals::of(|| drop(black_box(vec![0u8; 500])));
    assert_eq!((zeroed.blocks, zeroed.bytes), (1, 500));
}

fn a_block_that_grows_is_counted_anew() {
    let totals = Totals::of(|| {
        let mut block = ask(100);
        block.reserve_exact(300);
        black_box(&block);
    });
    assert_eq!((totals.blocks, totals.bytes), (2, 100 + 300));
}

fn what_is_given_back_was_asked_for_all_the_same() {
    let totals = Totals::of(|| (0..BLOCKS).for_each(|_| drop(ask(BLOCK_BYTES))));
    assert_eq!((totals.blocks, totals.bytes), (BLOCKS, BLOCKS * BLOCK_BYTES as u64));
}

/// Beyond what it takes to start threads.
fn every_thread_is_counted() {
    let of_each = |blocks: u64| {
        Totals::of(|| {
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(move || (0..blocks).for_each(|_| drop(ask(BLOCK_BYTES))));
                }
            });
        })
    };
    of_each(0); // what the first thread of a program takes
    let (idle, busy) = (of_each(0), of_each(BLOCKS));
    assert_eq!(busy.blocks - idle.blocks, THREADS * BLOCKS);
    assert_eq!(busy.bytes - idle.bytes, THREADS * BLOCKS * BLOCK_BYTES as u64);
}

/// Also where hash maps have other seeds.
fn what_does_the_same_gives_the_same_totals() {
    let first = remember(1_000);
    assert!(first.blocks > 0);
    for _ in 0..20 {
        assert_eq!(remember(1_000), first);
    }
}

fn remember(objects: u64) -> Totals {
    let mut profile = Profile::default();
    let paths: Vec<String> = (0..objects).map(|number| format!("/lib/{number}.so")).collect();
    Totals::of(|| {
        for path in &paths {
            profile.object(ObjectKind::Elf, path, &[1]);
        }
    })
}

fn one_more_allocation_is_one_more() {
    let of = |blocks: u64| Totals::of(|| (0..blocks).for_each(|_| drop(ask(1))));
    let (fewer, more) = (of(BLOCKS), of(BLOCKS + 1));
    assert_eq!((more.blocks - fewer.blocks, more.bytes - fewer.bytes), (1, 1));
}
