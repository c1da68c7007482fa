//! Where the kernel's own unwind tables lie (`bpf/stack/orc.h`), as the kernel says itself (`bpf/orc.bpf.c`).

use libbpf_rs::{MapCore, MapFlags, MapMut, ObjectBuilder, ProgramInput};

use crate::error::Result;
use crate::programs::bpf_error;

static ORC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/orc.bpf.o"));

/// Tells the programs. Where there are no tables, or the kernel keeps to itself where, the map stays empty: the kernel
/// walks its stacks then.
pub fn tell_tables(map: &mut MapMut<'_>) -> Result<()> {
    let Some(tables) = find() else {
        return Ok(());
    };
    map.update(&0u32.to_ne_bytes(), &tables, MapFlags::ANY)
        .map_err(|error| bpf_error("the sampling program cannot be told of the kernel's tables", &error))
}

/// The bytes of an `abi::OrcTables`. None before Linux 5.16, where no program may ask.
fn find() -> Option<Vec<u8>> {
    let object = ObjectBuilder::default().open_memory(ORC).ok()?.load().ok()?;
    let program = object.progs_mut().next()?;
    program.test_run(ProgramInput::default()).ok()?;
    let found = object
        .maps()
        .find(|map| map.name().as_encoded_bytes().ends_with(b".bss"))?;
    found.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?
}
