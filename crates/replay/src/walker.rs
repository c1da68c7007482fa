//! The other side of `bpf/stack/host.c`.

use std::ffi::c_void;
use std::ptr::NonNull;

use stackhound_capture::abi::{self, MAX_STACK_FRAMES};
use stackhound_capture::unwind::replay::Replay;

use crate::{Case, End, Memory, REGISTERS, Stack};

#[repr(C)]
struct Host {
    segments: *const *const u64,
    segment_count: u64,
    files: *mut u64,
    rules: *const u64,
    code_mask: u64,
    memory: *mut c_void,
    read: extern "C" fn(*mut c_void, *mut u8, u32, u64) -> bool,
}

#[repr(C)]
struct HostFrames {
    count: u32,
    end: u32,
    lack: u32,
    reserved: u32,
    addresses: [u64; MAX_STACK_FRAMES + 1],
}

unsafe extern "C" {
    fn stackhound_new_walk() -> *mut c_void;
    fn stackhound_free_walk(walk: *mut c_void);
    fn stackhound_walk(
        host: *const Host,
        walk: *mut c_void,
        mappings: u32,
        ip: u64,
        registers: *const [u64; REGISTERS],
        frames: *mut HostFrames,
    );
}

/// The walker. What it remembers of rules belongs to one [`Replay`].
pub struct Walker {
    walk: NonNull<c_void>,
}

impl Default for Walker {
    fn default() -> Self {
        // SAFETY: takes no pointers; what it gives is ours.
        let walk = unsafe { stackhound_new_walk() };
        Self {
            walk: NonNull::new(walk).expect("100 KB of memory"),
        }
    }
}

impl Walker {
    /// Walks a case that was published by `replay`.
    pub fn walk(&mut self, replay: &Replay, case: &mut Case) -> Stack {
        let segments: Vec<*const u64> = replay.segments().iter().map(|it| it.as_ptr().cast_const()).collect();
        let host = Host {
            segments: segments.as_ptr(),
            segment_count: segments.len() as u64,
            files: replay.file_words().as_ptr(),
            rules: replay.rule_words().as_ptr(),
            code_mask: u64::MAX,
            memory: (&raw mut case.memory).cast(),
            read,
        };
        let mut frames = HostFrames {
            count: 0,
            end: 0,
            lack: 0,
            reserved: 0,
            addresses: [0; MAX_STACK_FRAMES + 1],
        };
        let registers = &case.registers;
        // SAFETY: all of it outlives the call; the segments, files and rules are as large as the walker takes them to
        // be, and nobody writes them meanwhile.
        unsafe {
            let walk = self.walk.as_ptr();
            let general = &raw const registers.general;
            stackhound_walk(
                &raw const host,
                walk,
                case.mappings,
                registers.ip,
                general,
                &raw mut frames,
            );
        }
        Stack {
            addresses: frames.addresses[..frames.count as usize].to_vec(),
            end: End::from_kernel(frames.end),
            lack: (frames.lack > 0).then(|| End::from_kernel(frames.lack)),
        }
    }
}

impl Drop for Walker {
    fn drop(&mut self) {
        // SAFETY: made by the other function, and freed once.
        unsafe { stackhound_free_walk(self.walk.as_ptr()) };
    }
}

extern "C" fn read(memory: *mut c_void, to: *mut u8, bytes: u32, address: u64) -> bool {
    // SAFETY: the case's memory, as handed over above, and the walker's buffer of so many bytes.
    let (memory, to) = unsafe {
        (
            &mut *memory.cast::<Memory>(),
            std::slice::from_raw_parts_mut(to, bytes as usize),
        )
    };
    memory.read(address, to)
}

impl End {
    fn from_kernel(end: u32) -> Self {
        match end {
            abi::END_ROOT => Self::Root,
            abi::END_TRUNCATED => Self::Truncated,
            abi::END_NO_MAPPINGS => Self::NoMappings,
            abi::END_OUTSIDE_CODE => Self::OutsideCode,
            abi::END_NO_TABLE => Self::NoTable,
            abi::END_NO_RULE => Self::NoRule,
            abi::END_UNSUPPORTED => Self::Unsupported,
            abi::END_UNREADABLE => Self::Unreadable,
            abi::END_NO_PROGRESS => Self::NoProgress,
            _ => panic!("the walker knows no end {end}"),
        }
    }
}
