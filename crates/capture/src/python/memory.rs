//! Another process's memory, by process_vm_readv(2).

use stackhound_core::address::ProcessAddr;
use stackhound_core::python::{Memory, Unreadable};

/// The memory of a process that goes on running meanwhile.
pub struct ProcessMemory {
    /// As this process sees it.
    pub pid: u32,
}

impl Memory for ProcessMemory {
    fn read(&self, address: ProcessAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let remote = libc::iovec {
            iov_base: address.0 as *mut libc::c_void,
            iov_len: into.len(),
        };
        // SAFETY: the kernel writes into a slice of our own; what it reads is not our memory.
        let read = unsafe { libc::process_vm_readv(self.pid as libc::pid_t, &local, 1, &remote, 1, 0) };
        match usize::try_from(read) == Ok(into.len()) {
            true => Ok(()),
            false => Err(Unreadable(address)),
        }
    }
}
