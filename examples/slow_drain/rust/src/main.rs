//! The kernel half in Rust: who runs, each time a perf event fires.
#![no_std]
#![no_main]

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::RingBuf;
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_smp_processor_id, generated::bpf_ktime_get_boot_ns};
use aya_ebpf::macros::{btf_map, perf_event};
use aya_ebpf::programs::PerfEventContext;

/// As in sample.h.
#[repr(C)]
pub struct Sample {
    boottime_ns: u64,
    pid: u32,
    cpu: u32,
    comm: [u8; 16],
}

const BPF_RB_NO_WAKEUP: u64 = 1; // the reader looks in on its own

/// Without a type of its records, since libbpf wants either that or the size of 0 that Aya gives them.
#[allow(non_upper_case_globals)] // as the loader calls it
#[btf_map]
static samples: RingBuf<(), { 1 << 20 }> = RingBuf::new();

#[perf_event]
pub fn take_sample(context: PerfEventContext) -> u32 {
    if context.pid() != 0 {
        report(context.tgid());
    }
    0
}

/// What finds no room is lost.
fn report(pid: u32) -> Option<()> {
    let comm = bpf_get_current_comm().ok()?;
    let mut sample = samples.reserve_untyped::<Sample>(0)?;
    sample.write(Sample {
        // SAFETY: helpers without arguments.
        boottime_ns: unsafe { bpf_ktime_get_boot_ns() },
        pid,
        cpu: unsafe { bpf_get_smp_processor_id() },
        comm,
    });
    sample.submit(BPF_RB_NO_WAKEUP);
    Some(())
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// libbpf's programs say under which licence they are; helpers ask for GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual BSD/GPL\0";
