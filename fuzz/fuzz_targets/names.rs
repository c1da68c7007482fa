//! Linkage tables and Go's own table of files that nobody vouches for: any bytes give names for each address, or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stackhound_core::symbolize::names_in;

/// Where linkers put the code of small libraries, and ends of the address space.
const ADDRESSES: std::ops::Range<u64> = 0x1000..0x1400;

fuzz_target!(|file: &[u8]| {
    let addresses: Vec<u64> = ADDRESSES.step_by(4).chain([0, u64::MAX]).collect();
    let names = names_in(file, &addresses);
    assert_eq!(names.len(), addresses.len());
    assert!(names.iter().flatten().all(|name| !name.contains('\0')));
});
