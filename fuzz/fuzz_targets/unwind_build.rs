//! Tables of unwind rules of files that nobody vouches for: any bytes give a table that can be searched and stored, or
//! an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stackhound_core::address::ObjectAddr;
use stackhound_core::unwind::{PAGE_BITS, TableView, build};

fuzz_target!(|file: &[u8]| {
    let Ok(table) = build(file) else { return };
    for page in 0..table.pages.len() as u64 {
        let _ = table.rule_at(ObjectAddr(
            (table.first_page + page + 1).wrapping_shl(PAGE_BITS).wrapping_sub(1),
        ));
    }
    let bytes = table.to_bytes();
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    // SAFETY: as many bytes as the words have, or fewer; any bytes are a word.
    let aligned = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), bytes.len()) };
    aligned.copy_from_slice(&bytes);
    assert_eq!(
        TableView::from_bytes(aligned).expect("what was written is read"),
        table.view()
    );
});
