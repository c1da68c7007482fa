//! Names of kernel addresses, asked of the kernel itself (`bpf/names.bpf.c`): 2 µs each, where /proc/kallsyms takes a
//! tenth of a second to be printed, read and sorted.

use std::cell::OnceCell;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use stackhound_core::perfmap::Entry;

use crate::abi;

static NAMES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/names.bpf.o"));

const PLACE_BYTES: usize = size_of::<abi::NamedAddress>();
const NAME_AT: usize = PLACE_BYTES - abi::NAME_BYTES;

/// What asks the kernel, loaded when it is first needed; None within where it cannot be: before Linux 5.14.
#[derive(Default)]
pub struct KernelNames(OnceCell<Option<Object>>);

impl KernelNames {
    /// The function at each of these addresses of an object that begins at `base`, with its start in that object.
    /// None where the kernel cannot be asked.
    pub fn look_up(&self, base: u64, addresses: &[u64]) -> Option<Vec<Option<Entry>>> {
        let object = self.0.get_or_init(load).as_ref()?;
        let mut found = Vec::with_capacity(addresses.len());
        for batch in addresses.chunks(abi::NAME_BATCH) {
            let named = name(object, batch.iter().map(|address| address.wrapping_add(base)))?;
            let texts = named.chunks_exact(PLACE_BYTES).map(|place| &place[NAME_AT..]);
            found.extend(texts.zip(batch).map(|(text, address)| parse_name(text, *address)));
        }
        Some(found)
    }
}

fn load() -> Option<Object> {
    ObjectBuilder::default().open_memory(NAMES).ok()?.load().ok()
}

/// The bytes of `abi::NAME_BATCH` times a `abi::NamedAddress`, these addresses first.
fn name(object: &Object, addresses: impl Iterator<Item = u64>) -> Option<Vec<u8>> {
    let places = object
        .maps()
        .find(|map| map.name().as_encoded_bytes().ends_with(b".bss"))?;
    let program = object.progs_mut().next()?;
    let mut batch = vec![0; PLACE_BYTES * abi::NAME_BATCH];
    for (place, address) in batch.chunks_exact_mut(PLACE_BYTES).zip(addresses) {
        place[..NAME_AT].copy_from_slice(&address.to_ne_bytes());
    }
    places.update(&0u32.to_ne_bytes(), &batch, MapFlags::ANY).ok()?;
    program.test_run(ProgramInput::default()).ok()?;
    places.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?
}

/// `name+0xOFFSET/0xSIZE`, perhaps ` [MODULE]`, and a 0. The kernel prints just a number where it has no name.
fn parse_name(text: &[u8], address: u64) -> Option<Entry> {
    let text = String::from_utf8_lossy(text.split(|byte| *byte == 0).next()?);
    let (name, place) = text.rsplit_once("+0x")?;
    let (offset, size) = place.split_once("/0x")?;
    let size = size.split(' ').next()?;
    Some(Entry {
        start: address.wrapping_sub(u64::from_str_radix(offset, 16).ok()?),
        size: u64::from_str_radix(size, 16).ok()?,
        name: name.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_prints_gives_name_start_and_size() {
        let entry = |start, size, name: &str| {
            let name = name.into();
            Some(Entry { start, size, name })
        };
        for (text, expected) in [
            ("vfs_read+0x1c/0x2f0", entry(0xfe4, 0x2f0, "vfs_read")),
            ("nf_hook+0x0/0x10 [nf_nat]", entry(0x1000, 0x10, "nf_hook")),
            ("0xffffffffc0a00000", None),
            ("vfs_read+0x1c", None),
            ("vfs_read+0x/0x", None),
            ("", None),
        ] {
            assert_eq!(
                parse_name(format!("{text}\0rest").as_bytes(), 0x1000),
                expected,
                "{text}"
            );
        }
    }
}
