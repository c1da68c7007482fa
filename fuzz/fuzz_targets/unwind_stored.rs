//! Stored tables of unwind rules that somebody changed: none leads a search out of it. The checksum is made right, because
//! whoever can change a file can do that too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stackhound_core::address::ObjectAddr;
use stackhound_core::unwind::{PAGE_BITS, TableView};
use xxhash_rust::xxh3::xxh3_64;

/// Where the checksum is, and what it is of.
const CHECKSUM: std::ops::Range<usize> = 8..16;

fuzz_target!(|bytes: &[u8]| {
    let mut words: Vec<u64> = bytes
        .chunks(8)
        .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
        .collect();
    // SAFETY: as many bytes as the words have, or fewer.
    let aligned = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), bytes.len()) };
    if aligned.len() >= CHECKSUM.end {
        let checksum = xxh3_64(&aligned[CHECKSUM.end..]);
        aligned[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
    let Ok(table) = TableView::from_bytes(aligned) else {
        return;
    };
    for (page, rows) in table.pages.iter().enumerate() {
        let address = ObjectAddr((table.first_page + page as u64) << PAGE_BITS);
        assert!(rows.count > 0 || table.rule_at(address).is_none());
        assert!(table.rows_of(rows).len() == rows.count as usize);
    }
});
