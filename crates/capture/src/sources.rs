//! Where the symbols of each object are to be had.

use std::path::PathBuf;
use std::sync::Arc;

use stackhound_core::rows::ObjectId;
use stackhound_core::symbolize::{Source, Sources};

use crate::files::FileStore;
use crate::kernel::KernelSpace;
use crate::processes::Processes;
use crate::python::{Pythons, TaskObject};

/// Everything that knows objects, for the symbolizer.
pub struct SymbolSources<'a> {
    /// ELF files and the vDSO.
    pub files: &'a mut FileStore,
    /// Code without a file, and what could not be found.
    pub processes: &'a mut Processes,
    /// Kernel text, modules, BPF programs.
    pub kernel: &'a mut KernelSpace,
    /// Python's code objects.
    pub pythons: &'a Pythons,
}

impl Sources for SymbolSources<'_> {
    fn source(&mut self, object: ObjectId, addresses: &[u64]) -> Source {
        if let Some(source) = self.files.source(object) {
            return source;
        }
        if let Some(reason) = self.processes.reason(object) {
            return Source::Missing(reason.into());
        }
        if let Some(code) = self.pythons.code(object) {
            return code.map_or_else(
                |reason| Source::Missing(reason.into()),
                |code| Source::Python(Arc::clone(code)),
            );
        }
        if let Some(task) = self.pythons.task(object) {
            return match task {
                TaskObject::Named(name) => Source::Named(name.into()),
                TaskObject::Awaiting(code) => Source::Awaiting(Arc::clone(code)),
            };
        }
        if let Some(code) = self.processes.made_code(object) {
            return code.source(addresses);
        }
        if let Some(source) = self.kernel.program(object, addresses) {
            return source;
        }
        match self.kernel.object_base(object) {
            Some(base) => self.kernel_source(base, addresses),
            None => Source::Missing("kernel addresses are hidden (kernel.kptr_restrict)".into()),
        }
    }
}

impl SymbolSources<'_> {
    /// Only the kernel's debug file knows lines. Without it the kernel itself is the quickest to say names.
    fn kernel_source(&mut self, base: u64, addresses: &[u64]) -> Source {
        let vmlinux = debug_vmlinux();
        let found = match vmlinux {
            None => self.kernel.names.look_up(base, addresses),
            Some(_) => None,
        };
        found.map_or_else(
            || Source::Kernel {
                kallsyms: "/proc/kallsyms".into(),
                vmlinux,
                base,
            },
            Source::Found,
        )
    }
}

/// The running kernel's debug file, where its package is installed.
fn debug_vmlinux() -> Option<PathBuf> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let release = release.trim();
    [
        "/usr/lib/debug/boot/vmlinux-",
        "/usr/lib/debug/lib/modules/",
        "/boot/vmlinux-",
    ]
    .iter()
    .map(|prefix| match prefix.ends_with('/') {
        true => PathBuf::from(format!("{prefix}{release}/vmlinux")),
        false => PathBuf::from(format!("{prefix}{release}")),
    })
    .find(|path| path.is_file())
}
