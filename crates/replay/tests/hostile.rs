//! Stacks that lead nowhere: each walk ends, with the reason, after bounded work.

use std::sync::Arc;

use stackhound_core::unwind::{Cfa, FramePointer, ReturnAddress, Rule};
use stackhound_replay::{Case, End, FP, Memory, REGISTERS, Registers, Replay, SP, Stack, Walker};

const STACK: u64 = 0x7000_0000;
/// A walk reads each frame's return address and frame pointer, where it cannot read as much as it would like to also a
/// second time, and signal frames.
const MAX_READS: usize = 127 * 6;

/// Walks from an instruction of this test's own code.
struct Scene {
    replay: Replay,
    case: Case,
}

impl Scene {
    fn new(change: fn(&mut Rule)) -> Self {
        let mut replay = Replay::new(change).unwrap();
        let (mappings, code) = replay.publish(std::process::id()).unwrap();
        let mut general = [0; REGISTERS];
        general[SP] = STACK;
        let case = Case {
            registers: Registers { ip: here(), general },
            memory: Memory::with_words(STACK, &[0; 512]),
            code: Arc::new(code),
            mappings,
        };
        Self { replay, case }
    }

    fn walk(&mut self) -> Stack {
        let reads_before = self.case.memory.reads();
        let stack = Walker::default().walk(&self.replay, &mut self.case);
        assert!(stack.addresses.len() <= 127);
        assert!(self.case.memory.reads() - reads_before <= MAX_READS);
        stack
    }
}

/// An address in a function of this program.
fn here() -> u64 {
    let function: fn() -> u64 = here;
    function as usize as u64
}

fn by_frame_pointers(rule: &mut Rule) {
    *rule = Rule {
        cfa: Cfa::FRAME_POINTER,
        cfa_offset: 16,
        ..Rule::NONE
    };
}

/// A function that has pushed nothing but the return address.
fn bare(rule: &mut Rule) {
    *rule = Rule {
        cfa: Cfa::SP,
        cfa_offset: 8,
        return_address: ReturnAddress::AT_CFA,
        return_address_offset: -8,
        frame_pointer: FramePointer::SAME,
        ..Rule::NONE
    };
}

#[test]
fn a_return_address_of_zero_is_the_root() {
    assert_eq!(Scene::new(bare).walk().end, End::Root);
}

#[test]
fn a_process_without_mappings_is_in_no_code() {
    let mut scene = Scene::new(bare);
    scene.case.mappings = 0;
    assert_eq!(scene.walk().end, End::OutsideCode);
}

#[test]
fn an_instruction_in_no_code_is_shown_alone() {
    let mut scene = Scene::new(bare);
    for ip in [0, 0x10, STACK, 1 << 63, u64::MAX, 0xffff_ffff_ff60_0000] {
        scene.case.registers.ip = ip;
        let stack = scene.walk();
        assert_eq!(
            (stack.addresses, stack.end, stack.lack),
            (vec![ip], End::OutsideCode, None)
        );
    }
}

#[test]
fn a_return_address_in_no_code_ends_the_walk() {
    let mut scene = Scene::new(bare);
    for address in [1, 0x10, STACK, 1 << 63, u64::MAX] {
        scene.case.memory = Memory::with_words(STACK, &[here() + 1, address]);
        let stack = scene.walk();
        assert_eq!(
            (stack.addresses, stack.end),
            (vec![here(), here() + 1], End::OutsideCode)
        );
    }
}

#[test]
fn a_table_that_is_not_there_yet_is_said_to_be_missed() {
    let mut scene = Scene::new(bare);
    let file = scene.case.code_at(here()).unwrap().file.unwrap();
    scene.replay.forget(file);
    assert_eq!(scene.walk().end, End::NoTable);
}

#[test]
fn code_without_a_rule_ends_the_walk() {
    assert_eq!(Scene::new(|rule| *rule = Rule::NONE).walk().end, End::NoRule);
}

#[test]
fn a_rule_that_cannot_be_said_ends_the_walk() {
    assert_eq!(
        Scene::new(|rule| *rule = Rule::UNSUPPORTED).walk().end,
        End::Unsupported
    );
}

#[test]
fn a_frame_pointer_helps_once_where_there_is_no_rule() {
    let mut scene = Scene::new(|rule| *rule = Rule::UNSUPPORTED);
    scene.case.registers.general[FP] = STACK + 16;
    scene.case.memory = Memory::with_words(STACK, &[0, 0, 0, here() + 1, 0, 0]);
    let stack = scene.walk();
    assert_eq!(stack.addresses, [here(), here() + 1]);
    assert_eq!((stack.end, stack.lack), (End::Unsupported, Some(End::Unsupported)));
}

#[test]
fn a_guess_that_leads_to_no_code_leaves_no_trace() {
    let mut scene = Scene::new(|rule| *rule = Rule::UNSUPPORTED);
    scene.case.registers.general[FP] = STACK + 16;
    scene.case.memory = Memory::with_words(STACK, &[0, 0, 0, 77, 0, 0]);
    let stack = scene.walk();
    assert_eq!(
        (stack.addresses, stack.end, stack.lack),
        (vec![here()], End::Unsupported, None)
    );
}

#[test]
fn a_guess_that_leads_to_zero_is_no_root() {
    let mut scene = Scene::new(|rule| *rule = Rule::NONE);
    scene.case.registers.general[FP] = STACK + 64; // nothing but zeros
    assert_eq!(scene.walk().end, End::NoRule);
}

#[test]
fn a_frame_pointer_below_the_stack_or_askew_helps_nowhere() {
    for fp in [STACK - 8, STACK + 4, u64::MAX - 7, u64::MAX] {
        let mut scene = Scene::new(|rule| *rule = Rule::NONE);
        scene.case.registers.general[FP] = fp;
        assert_eq!(scene.walk().end, End::NoRule, "{fp:#x}");
    }
}

#[test]
fn a_stack_that_cannot_be_read_ends_the_walk() {
    for sp in [0, 8, 0x1000, STACK - 0x10_0000, 1 << 63, u64::MAX - 4096, u64::MAX - 15] {
        let mut scene = Scene::new(bare);
        scene.case.registers.general[SP] = sp;
        assert_eq!(scene.walk().end, End::Unreadable, "{sp:#x}");
    }
}

#[test]
fn a_stack_pointer_at_the_end_of_memory_goes_no_further() {
    for sp in u64::MAX - 7..=u64::MAX {
        let mut scene = Scene::new(bare);
        scene.case.registers.general[SP] = sp;
        assert!(matches!(scene.walk().end, End::NoProgress | End::Unreadable), "{sp:#x}");
    }
}

#[test]
fn the_last_words_before_an_unreadable_page_are_read() {
    let mut scene = Scene::new(bare);
    let page_end = STACK + 4096;
    scene.case.memory = Memory::with_words(page_end - 24, &[here() + 1, here() + 1, here() + 1]);
    scene.case.registers.general[SP] = page_end - 24;
    let stack = scene.walk();
    assert_eq!((stack.addresses.len(), stack.end), (4, End::Unreadable));
}

#[test]
fn an_unaligned_stack_is_walked_all_the_same() {
    let mut scene = Scene::new(bare);
    let word = (here() + 1).rotate_left(24); // so that it is read right from 3 bytes further on
    scene.case.memory = Memory::with_words(STACK, &[word, word, word]);
    scene.case.registers.general[SP] = STACK + 3;
    let stack = scene.walk();
    assert_eq!(stack.addresses[..3], [here(), here() + 1, here() + 1]);
}

#[test]
fn a_frame_that_does_not_lie_above_its_callees_ends_the_walk() {
    for below_bytes in [0, 8, 64] {
        let mut scene = Scene::new(|rule| {
            bare(rule);
            (rule.cfa, rule.cfa_offset) = (Cfa::FP, 0);
        });
        scene.case.memory = Memory::with_words(STACK - 80, &[here() + 1; 80]);
        scene.case.registers.general[FP] = STACK - below_bytes;
        let stack = scene.walk();
        assert_eq!((stack.addresses.len(), stack.end), (1, End::NoProgress));
    }
}

#[test]
fn a_chain_of_frame_pointers_that_bites_its_tail_is_cut() {
    let mut scene = Scene::new(by_frame_pointers);
    scene.case.registers.general[FP] = STACK;
    scene.case.memory = Memory::with_words(STACK, &[STACK, here() + 1]);
    let stack = scene.walk();
    assert_eq!((stack.addresses.len(), stack.end), (127, End::Truncated));
}

#[test]
fn a_signal_frame_that_returns_to_itself_is_cut() {
    let mut scene = Scene::new(|rule| *rule = Rule::SIGNAL);
    let mut words = [here(); 128];
    words[5 + 15] = STACK; // on x86-64 the stack pointer; the last but one on arm64 is the one below
    words[(128 + 176 + 8) / 8 + 31] = STACK;
    words[5 + 16] = here();
    scene.case.memory = Memory::with_words(STACK, &words);
    let stack = scene.walk();
    assert_eq!((stack.addresses.len(), stack.end), (127, End::Truncated));
}

#[test]
fn what_a_signal_interrupted_is_shown_one_byte_further_on() {
    let mut scene = Scene::new(|rule| *rule = Rule::SIGNAL);
    scene.case.memory = Memory::with_words(STACK, &[here(); 128]);
    assert_eq!(scene.walk().addresses[..2], [here(), here() + 1]);
}

/// Xorshift: the same numbers each time.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn garbage_ends_soon() {
    let changes: [fn(&mut Rule); 4] = [|_| (), by_frame_pointers, bare, |rule| *rule = Rule::SIGNAL];
    for change in changes {
        let mut scene = Scene::new(change);
        let code = Arc::clone(&scene.case.code);
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..300 {
            let words: Vec<u64> = (0..512).map(|_| garbage(next(&mut state), &code)).collect();
            scene.case.memory = Memory::with_words(STACK, &words);
            scene
                .case
                .registers
                .general
                .fill_with(|| garbage(next(&mut state), &code));
            scene.case.registers.ip = garbage(next(&mut state), &code);
            scene.walk();
        }
    }
}

/// Anything, code, or somewhere in the stack.
fn garbage(random: u64, code: &[stackhound_replay::Code]) -> u64 {
    let part = &code[(random >> 8) as usize % code.len()];
    match random % 4 {
        0 => random,
        1 => part.start + (random >> 16) % (part.end - part.start),
        _ => STACK + (random >> 16) % 4096,
    }
}
