//! Which files have tables, for stacks of processes whose mappings are not published: they may end before user space has
//! heard of them. The walker asks the kernel for their mappings then, and knows the files by their inodes
//! (`bpf/stack/unpublished.h`).

use std::collections::HashMap;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use stackhound_core::elf::Elf;

use crate::abi;
use crate::bpf_objects::bytes_of;
use crate::files::Inode;

/// By inode, in the programs' map.
#[derive(Default)]
pub struct KnownFiles {
    /// None: in tests of what has no programs.
    map: Option<MapHandle>,
    inodes: HashMap<u32, Inode>,
}

impl KnownFiles {
    /// In this map.
    pub fn new(map: MapHandle) -> Self {
        Self {
            map: Some(map),
            inodes: HashMap::new(),
        }
    }

    /// A file has a table.
    pub fn add(&mut self, file: u32, inode: Inode, elf: &Elf) {
        let known = known(file, elf);
        let is_stored = |map: &MapHandle| {
            map.update(bytes_of(&abi::InodeKey::from(inode)), bytes_of(&known), MapFlags::ANY)
                .is_ok()
        };
        if self.map.as_ref().is_some_and(is_stored) {
            self.inodes.insert(file, inode);
        } // else stacks in it are walked by frame pointers until its process is published
    }

    /// It has none any more.
    pub fn remove(&mut self, file: u32) {
        if let (Some(inode), Some(map)) = (self.inodes.remove(&file), &self.map) {
            let _ = map.delete(bytes_of(&abi::InodeKey::from(inode))); // it was there
        }
    }
}

fn known(file: u32, elf: &Elf) -> abi::KnownFile {
    let code = elf.segments.iter().filter(|segment| segment.executable);
    let first = code.min_by_key(|segment| segment.address);
    let build_id = elf.build_id.first_chunk().map(|first| u64::from_ne_bytes(*first));
    abi::KnownFile {
        code_offset: first.map_or(0, |code| code.file_offset.0),
        code_address: first.map_or(0, |code| code.address.0),
        code_bytes: first.map_or(0, |code| code.size),
        build_id_address: build_id
            .and_then(|_| elf.object_addr(elf.build_id_offset))
            .map_or(0, |address| address.0),
        build_id: build_id.unwrap_or(0),
        file: file.into(),
        interpreter: Inode::default().into(),
    }
}
