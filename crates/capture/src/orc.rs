//! Where the kernel's own unwind tables lie (`bpf/stack/orc.h`), as the kernel says itself (`bpf/orc.bpf.c`).

use libbpf_rs::{MapCore, MapFlags, MapMut, ObjectBuilder, ProgramInput};

use crate::bpf_objects::bpf_error;
use crate::error::Result;
use crate::kernel_types::kernel_has_type;
use crate::options::{KernelWalk, Options};

static ORC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/orc.bpf.o"));

/// The bytes of an `abi::OrcTables`. None where they are not wanted, where there are none (other processors than x86,
/// kernels that were built with frame pointers), or where no program may ask (before Linux 5.16).
pub fn find_tables(options: &Options) -> Option<Vec<u8>> {
    let is_wanted = options.unwind && options.kernel_walk != KernelWalk::Kernel;
    if !cfg!(target_arch = "x86_64") || !is_wanted || !kernel_has_type(b"orc_entry") {
        return None;
    }
    let object = ObjectBuilder::default().open_memory(ORC).ok()?.load().ok()?;
    let program = object.progs_mut().next()?;
    let answer = program.test_run(ProgramInput::default()).ok()?;
    let found = object
        .maps()
        .find(|map| map.name().as_encoded_bytes().ends_with(b".bss"))?;
    let tables = found.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    (answer.return_value != 0).then_some(tables)
}

/// Tells the programs.
pub fn tell_tables(map: &mut MapMut<'_>, tables: &[u8]) -> Result<()> {
    map.update(&0u32.to_ne_bytes(), tables, MapFlags::ANY)
        .map_err(|error| bpf_error("the sampling program cannot be told of the kernel's tables", &error))
}
