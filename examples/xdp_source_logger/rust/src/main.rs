//! The kernel half in Rust: the source of each IPv4 packet goes into a ring buffer, and the packet goes on its way. What
//! cannot be reported is dropped as an error.
#![no_std]
#![no_main]

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_PASS};
use aya_ebpf::btf_maps::RingBuf;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;

/// As in source.h.
#[repr(C)]
pub struct Source {
    address: [u8; 4],
    bytes: u32,
}

const ETHERNET_BYTES: usize = 14;
const TYPE_OFFSET: usize = 12;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV4_BYTES: usize = 20;
const SOURCE_OFFSET: usize = ETHERNET_BYTES + 12;

const BPF_RB_NO_WAKEUP: u64 = 1; // the reader looks in on its own

/// Without a type of its records, since libbpf wants either that or the size of 0 that Aya gives them.
#[allow(non_upper_case_globals)] // as the loader calls it
#[btf_map]
static sources: RingBuf<(), { 1 << 20 }> = RingBuf::new();

#[xdp]
pub fn log_source(context: XdpContext) -> u32 {
    report(&context).unwrap_or(XDP_ABORTED)
}

fn report(context: &XdpContext) -> Option<u32> {
    let kind: [u8; 2] = read(context, TYPE_OFFSET)?;
    if kind != IPV4 {
        return Some(XDP_PASS);
    }
    let _whole: [u8; IPV4_BYTES] = read(context, ETHERNET_BYTES)?;
    let address = read(context, SOURCE_OFFSET)?;
    let bytes = (context.data_end() - context.data()) as u32;
    let mut source = sources.reserve_untyped::<Source>(0)?;
    source.write(Source { address, bytes });
    source.submit(BPF_RB_NO_WAKEUP);
    Some(XDP_PASS)
}

/// A part of the packet, if it reaches so far.
#[inline(always)]
fn read<T: Copy>(context: &XdpContext, offset: usize) -> Option<T> {
    let begin = context.data() + offset;
    if begin + size_of::<T>() > context.data_end() {
        return None;
    }
    // SAFETY: within the packet, and T is made of bytes, which any address will do for.
    Some(unsafe { core::ptr::read_unaligned(begin as *const T) })
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// libbpf's programs say under which licence they are; helpers ask for GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual BSD/GPL\0";
