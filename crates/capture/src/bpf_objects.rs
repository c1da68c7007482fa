//! BPF objects as libbpf has them: opened and configured, their maps and programs by name, its errors as ours.

use std::ffi::OsStr;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{
    MapCore, MapHandle, MapMut, MapType, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel, ProgramMut,
};

use crate::abi;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel_features::kernel_grows_hashes;

/// An object file, configured.
pub fn open(file: &[u8], config: &abi::Config) -> Result<OpenObject> {
    *LACK.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let mut object = ObjectBuilder::default()
        .open_memory(file)
        .map_err(|error| bpf_error("the BPF programs cannot be read", &error))?;
    open_map(&mut object, ".rodata")
        .set_initial_value(bytes_of(config))
        .map_err(|error| bpf_error("the BPF programs cannot be configured", &error))?;
    if !kernel_grows_hashes() {
        let grows = |map: &OpenMapMut<'_>| map.name() == "targets" || map.name() == "unwind_inodes";
        let mut hashes = object.maps_mut().filter(grows);
        let made = hashes.try_for_each(|mut map| map.set_map_flags(0)); // 6 MB at once, instead of as they come
        made.map_err(|error| bpf_error("a table of what programs look for cannot be made", &error))?;
    }
    Ok(object)
}

/// Of a struct of `bpf/abi.h`.
pub fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: these structs have no padding (asserted where they are made), so all their bytes are set.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A map of it.
pub fn open_map<'a>(object: &'a mut OpenObject, name: &str) -> OpenMapMut<'a> {
    let is_named = |map: &OpenMapMut<'_>| {
        map.name()
            .to_str()
            .is_some_and(|found| found == name || (name.starts_with('.') && found.ends_with(name)))
    };
    object.maps_mut().find(is_named).expect("bpf/ declares the map")
}

pub fn find_map<'a>(object: &'a mut Object, name: &str) -> MapMut<'a> {
    object
        .maps_mut()
        .find(|map| map.name() == OsStr::new(name))
        .expect("bpf/ declares the map")
}

/// Another descriptor of a map.
pub fn map_handle(object: &mut Object, name: &str) -> MapHandle {
    MapHandle::try_from(&find_map(object, name)).expect("an open map can be duplicated")
}

pub fn program<'a>(object: &'a mut Object, name: &str) -> ProgramMut<'a> {
    object
        .progs_mut()
        .find(|program| program.name() == OsStr::new(name))
        .expect("bpf/ declares the program")
}

/// Options for a map of our own.
pub fn map_options(flags: u32) -> libbpf_sys::bpf_map_create_opts {
    let sz = size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t;
    libbpf_sys::bpf_map_create_opts {
        sz,
        map_flags: flags,
        ..Default::default()
    }
}

/// At least 1.
pub fn possible_cpus() -> Result<usize> {
    libbpf_rs::num_possible_cpus().map_err(|error| bpf_error("the CPUs cannot be counted", &error))
}

/// libbpf's own messages go to stderr from `-vvv` (3) on; without that its errors come back as ours.
pub fn print_above(log_level: u8) {
    fn print(_: PrintLevel, text: String) {
        eprint!("libbpf: {text}");
        keep_lack(PrintLevel::Info, text);
    }
    libbpf_rs::set_print(Some(match log_level {
        0..=2 => (PrintLevel::Warn, keep_lack),
        3 => (PrintLevel::Info, print),
        _ => (PrintLevel::Debug, print),
    }));
}

/// The last thing that libbpf missed in this kernel; its error is but a number.
static LACK: Mutex<Option<String>> = Mutex::new(None);

fn keep_lack(_: PrintLevel, text: String) {
    if let Some(lack) = lack_in(&text) {
        *LACK.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("this kernel has no {lack}"));
    }
}

/// The function or tracepoint, or the member of a struct, that libbpf did not find.
fn lack_in(text: &str) -> Option<&str> {
    if let Some((_, found)) = text.split_once("failed to find kernel BTF type ID of '") {
        return Some(found.split_once('\'')?.0);
    }
    let (_, relocation) = text.split_once("failed to resolve CO-RE relocation <")?;
    let (_, member) = relocation.split_once("] ")?;
    Some(member.split_once(" (")?.0)
}

/// Of libbpf: a permission error names the capabilities, a missing BTF names itself.
pub fn bpf_error(what: &str, error: &libbpf_rs::Error) -> Error {
    use libbpf_rs::ErrorKind as Kind;
    match error.kind() {
        // EACCES is the verifier's "no" too, to those who may load programs
        Kind::PermissionDenied if !may_load_programs() => {
            Error::system(what, &std::io::Error::from_raw_os_error(libc::EPERM))
        }
        Kind::OutOfMemory => Error::system(what, &std::io::Error::from_raw_os_error(libc::ENOMEM)),
        _ if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() => Error::new(
            ErrorKind::Kernel,
            "this kernel has no BTF (/sys/kernel/btf/vmlinux)",
            "boot one with CONFIG_DEBUG_INFO_BTF=y, as distributions ship since 2020",
        ),
        _ => {
            let lack = LACK.lock().unwrap_or_else(PoisonError::into_inner).take();
            let why = lack.unwrap_or_else(|| error.to_string());
            Error::new(
                ErrorKind::Kernel,
                format!("{what}: {why}"),
                "'stackhound doctor' shows what this kernel has",
            )
        }
    }
}

/// Whether the kernel lets this process make even the simplest map, as each program needs some.
fn may_load_programs() -> bool {
    let options = map_options(0);
    MapHandle::create(MapType::Array, Some("stackhound_try"), 4, 4, 1, &options).is_ok()
}

#[cfg(test)]
mod tests {
    use super::lack_in;

    #[test]
    fn what_the_kernel_lacks_is_in_libbpfs_messages() {
        let tracepoint = "prog 'complete_request': failed to find kernel BTF type ID of 'block_rq_complete': -ESRCH\n";
        let member = "29: <invalid CO-RE relocation>\nfailed to resolve CO-RE relocation <byte_off> [28] \
                      struct task_struct.in_iowait (0:72 @ offset 1180)\nprocessed 29 insns";
        assert_eq!(lack_in(tracepoint), Some("block_rq_complete"));
        assert_eq!(lack_in(member), Some("struct task_struct.in_iowait"));
        assert_eq!(lack_in("prog 'arrive': BPF program load failed: -EINVAL"), None);
        assert_eq!(lack_in("failed to resolve CO-RE relocation <byte_off> [28"), None);
    }
}
