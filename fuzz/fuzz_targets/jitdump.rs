//! Dumps of made code that a process may have written in any way: whatever is said of a piece of code, in the file as it
//! was read or cut short since, is text or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stackhound_core::jitdump::JitDump;

fuzz_target!(|file: &[u8]| {
    let mut dump = JitDump::default();
    let _ = dump.read(&file[..file.len() / 2]);
    if dump.read(file).is_err() {
        return;
    }
    for code in dump.codes() {
        for file in [file, &file[..file.len() / 2]] {
            assert!(!dump.name(file, code).contains(char::is_control));
            let _ = dump.line(file, code, code.end() - 1);
            let _ = dump.eh_frame(file, code);
        }
    }
    let mut addresses: Vec<u64> = dump.codes().iter().map(|code| code.start).collect();
    addresses.sort_unstable();
    for (address, codes) in addresses.iter().zip(dump.codes_at(&addresses)) {
        let spans =
            |index: &u32| (dump.codes()[*index as usize].start..dump.codes()[*index as usize].end()).contains(address);
        assert!(codes.iter().all(spans));
    }
});
