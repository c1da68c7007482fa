//! A process's memory, read by whoever can.

use crate::address::ProcessAddr;

/// The memory of a process that runs on meanwhile: what was there a moment ago may be gone, or be something else.
pub trait Memory {
    /// Fill `into` with what is at `address`: all of it, or it is an error.
    fn read(&self, address: ProcessAddr, into: &mut [u8]) -> Result<(), Unreadable>;
}

/// There is no such memory in the process, or no process any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory of the process can be read at {:#x}", .0.0)]
pub struct Unreadable(pub ProcessAddr);

/// `offset` bytes further on. Hostile addresses wrap around, and are unreadable then.
pub(super) fn further(address: ProcessAddr, offset: impl Into<u64>) -> ProcessAddr {
    ProcessAddr(address.0.wrapping_add(offset.into()))
}

/// The smallest page there is: where its first byte can be read, all of it can.
const PAGE_BYTES: u64 = 4096;

/// How many of so many bytes are in the same page as the first.
pub(super) fn within_page(address: ProcessAddr, bytes: usize) -> usize {
    bytes.min((PAGE_BYTES - address.0 % PAGE_BYTES) as usize)
}

pub(super) fn read_array<const N: usize>(memory: &dyn Memory, address: ProcessAddr) -> Result<[u8; N], Unreadable> {
    let mut bytes = [0; N];
    memory.read(address, &mut bytes)?;
    Ok(bytes)
}

pub(super) fn read_u64(memory: &dyn Memory, address: ProcessAddr) -> Result<u64, Unreadable> {
    Ok(u64::from_le_bytes(read_array(memory, address)?))
}

pub(super) fn read_i32(memory: &dyn Memory, address: ProcessAddr) -> Result<i32, Unreadable> {
    Ok(i32::from_le_bytes(read_array(memory, address)?))
}

/// A pointer; None when it is null.
pub(super) fn read_pointer(memory: &dyn Memory, address: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
    let value = read_u64(memory, address)?;
    Ok((value != 0).then_some(ProcessAddr(value)))
}
