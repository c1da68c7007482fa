//! A BPF array in this process's memory.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use libbpf_rs::{MapHandle, MapType};

use crate::error::{Error, Result};
use crate::programs::{bpf_error, map_options};

/// An array of our own, mapped for as long as this lives.
pub struct MappedArray {
    map: MapHandle,
    words: NonNull<u64>,
    len: usize,
}

impl MappedArray {
    /// With `entries` values of `value_bytes` each, a multiple of 8. `flags`: more than `BPF_F_MMAPABLE`.
    pub fn new(name: &str, value_bytes: usize, entries: usize, flags: u32) -> Result<Self> {
        let options = map_options(libbpf_sys::BPF_F_MMAPABLE | flags);
        let map = MapHandle::create(
            MapType::Array,
            Some(name),
            size_of::<u32>() as u32,
            value_bytes as u32,
            entries as u32,
            &options,
        )
        .map_err(|error| bpf_error("a table for samples cannot be made", &error))?;
        let words = map_memory(&map, value_bytes * entries)
            .map_err(|error| Error::system("a table for samples cannot be mapped", &error))?;
        Ok(Self {
            map,
            words,
            len: value_bytes * entries / 8,
        })
    }

    /// The map itself.
    pub fn map(&self) -> &MapHandle {
        &self.map
    }

    /// Its first word.
    pub fn words(&self) -> NonNull<u64> {
        self.words
    }

    /// Words in it.
    pub fn len(&self) -> usize {
        self.len
    }
}

fn map_memory(map: &MapHandle, bytes: usize) -> std::io::Result<NonNull<u64>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let fd = map.as_fd().as_raw_fd();
    // SAFETY: a fresh shared mapping of a whole map; the kernel chooses where.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
    if address == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    Ok(NonNull::new(address.cast()).expect("mmap gives no null"))
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: our own mapping of this very length, which nothing borrows any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.len * 8) };
    }
}
