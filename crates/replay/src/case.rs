//! What a walk depends on: registers, memory, and which code is where.

use std::collections::BTreeMap;

use crate::{Code, Registers};

const PAGE_BYTES: u64 = 4096;

type Page = [u8; PAGE_BYTES as usize];

/// Memory of a process, kept as it was when it was first read: so all who read it see the same.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// None where nothing can be read.
    pages: BTreeMap<u64, Option<Box<Page>>>,
    /// The process to read from what was not read yet.
    pid: Option<u32>,
    reads: usize,
}

impl Memory {
    /// Of a process that stands still for as long as this is read.
    pub fn of(pid: u32) -> Self {
        Self {
            pages: BTreeMap::new(),
            pid: Some(pid),
            reads: 0,
        }
    }

    /// Nothing but these words at an address; what else lies in their pages is 0.
    pub fn with_words(address: u64, words: &[u64]) -> Self {
        let mut memory = Self::default();
        for (index, word) in words.iter().enumerate() {
            memory.write(address + 8 * index as u64, &word.to_ne_bytes());
        }
        memory
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            let page = self.pages.entry(at / PAGE_BYTES).or_default();
            page.get_or_insert_with(|| Box::new([0; PAGE_BYTES as usize]))[(at % PAGE_BYTES) as usize] = *byte;
        }
    }

    /// Fills `to` from an address on. False when any of it cannot be read.
    pub fn read(&mut self, address: u64, to: &mut [u8]) -> bool {
        self.reads += 1;
        let mut done = 0;
        while done < to.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return false;
            };
            let offset = (at % PAGE_BYTES) as usize;
            let bytes = (to.len() - done).min(PAGE_BYTES as usize - offset);
            let Some(page) = self.page(at / PAGE_BYTES) else {
                return false;
            };
            to[done..done + bytes].copy_from_slice(&page[offset..offset + bytes]);
            done += bytes;
        }
        true
    }

    /// How often it was read.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// A word; None when it cannot be read.
    pub fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }

    fn page(&mut self, number: u64) -> Option<&Page> {
        let pid = self.pid;
        let page = self.pages.entry(number).or_insert_with(|| read_page(pid?, number));
        page.as_deref()
    }
}

fn read_page(pid: u32, number: u64) -> Option<Box<Page>> {
    let mut page = Box::new([0; PAGE_BYTES as usize]);
    let to = libc::iovec {
        iov_base: page.as_mut_ptr().cast(),
        iov_len: page.len(),
    };
    let from = libc::iovec {
        iov_base: (number * PAGE_BYTES) as *mut libc::c_void,
        iov_len: page.len(),
    };
    // SAFETY: writes into the page alone; the other address is the other process's.
    let bytes = unsafe { libc::process_vm_readv(pid as i32, &raw const to, 1, &raw const from, 1, 0) };
    (bytes == page.len() as isize).then_some(page)
}

/// A thread at one moment.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its registers.
    pub registers: Registers,
    /// Its memory.
    pub memory: Memory,
    /// Its process's code, ordered.
    pub code: std::sync::Arc<Vec<Code>>,
    /// The walker's reference to the same.
    pub mappings: u32,
}

impl Case {
    /// The code that an address is in.
    pub fn code_at(&self, address: u64) -> Option<&Code> {
        let after = self.code.partition_point(|code| code.start <= address);
        self.code[..after].last().filter(|code| address < code.end)
    }
}
