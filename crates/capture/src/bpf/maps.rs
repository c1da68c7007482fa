//! Maps: what the kernel says of each, and how full it is.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

use super::programs::text;
use super::{each, memory_bytes};

/// Elements of a map to count: 10 ms.
const MOST_COUNTED: u64 = 20_000;

/// One map.
#[derive(Clone, Debug)]
pub struct Map {
    /// As the kernel numbers it.
    pub id: u32,
    /// At most 15 bytes.
    pub name: String,
    /// As libbpf calls it: `hash`, `percpu_array`, …
    pub kind: String,
    /// Of an element.
    pub key_bytes: u32,
    /// Of an element.
    pub value_bytes: u32,
    /// Room for so many.
    pub max_entries: u32,
    /// Charged for it.
    pub memory_bytes: u64,
    /// So many there are; None where that means nothing, or where there are too many to count.
    pub entries: Option<u64>,
}

/// Those with these numbers, as far as they are there.
pub fn maps(ids: &[u32]) -> Vec<Map> {
    let all = each(libbpf_sys::bpf_map_get_next_id, libbpf_sys::bpf_map_get_fd_by_id);
    all.filter(|(id, _)| ids.contains(id))
        .filter_map(|(id, fd)| describe(id, &fd))
        .collect()
}

fn describe(id: u32, fd: &OwnedFd) -> Option<Map> {
    // SAFETY: plain integers, of which an older kernel wants those that it does not know to be zero.
    let mut info: libbpf_sys::bpf_map_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: the kernel fills as much of the struct as it knows.
    let status = unsafe { libbpf_sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut bytes) };
    (status == 0).then(|| Map {
        id,
        name: text(&info.name),
        kind: kind(info.type_),
        key_bytes: info.key_size,
        value_bytes: info.value_size,
        max_entries: info.max_entries,
        memory_bytes: memory_bytes(fd),
        entries: count(fd, &info),
    })
}

/// Only hash tables have places that are free.
fn count(fd: &OwnedFd, info: &libbpf_sys::bpf_map_info) -> Option<u64> {
    let has_places = [
        libbpf_sys::BPF_MAP_TYPE_HASH,
        libbpf_sys::BPF_MAP_TYPE_PERCPU_HASH,
        libbpf_sys::BPF_MAP_TYPE_LRU_HASH,
        libbpf_sys::BPF_MAP_TYPE_LRU_PERCPU_HASH,
        libbpf_sys::BPF_MAP_TYPE_HASH_OF_MAPS,
        libbpf_sys::BPF_MAP_TYPE_LPM_TRIE,
    ];
    if !has_places.contains(&info.type_) {
        return None;
    }
    let mut key = vec![0u8; info.key_size as usize];
    let mut next = key.clone();
    let mut begun = std::ptr::null();
    for found in 0..=MOST_COUNTED.min(info.max_entries.into()) {
        // SAFETY: both have room for a key; null asks for the first one.
        let status = unsafe { libbpf_sys::bpf_map_get_next_key(fd.as_raw_fd(), begun, next.as_mut_ptr().cast()) };
        if status != 0 {
            return Some(found);
        }
        std::mem::swap(&mut key, &mut next);
        begun = key.as_ptr().cast();
    }
    None
}

fn kind(number: u32) -> String {
    // SAFETY: a constant text, or null.
    let name = unsafe { libbpf_sys::libbpf_bpf_map_type_str(number) };
    if name.is_null() {
        return format!("type {number}");
    }
    // SAFETY: it ends in a zero.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
