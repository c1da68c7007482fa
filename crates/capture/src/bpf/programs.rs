//! Programs: what the kernel says of each.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::btf::types::Func;
use libbpf_rs::btf::{Btf, TypeId};

use super::attachments::{self, Attachment};
use super::owners::{self, Owner};
use super::{each, memory_bytes};
use crate::error::{Error, Result};

/// One program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// As the kernel numbers it.
    pub id: u32,
    /// Its function's, whole where it has type information, else at most 15 bytes.
    pub name: String,
    /// As libbpf calls it: `tracing`, `xdp`, …
    pub kind: String,
    /// Of its instructions.
    pub tag: String,
    /// When it was loaded, on the boot clock.
    pub loaded_boottime_ns: u64,
    /// Who loaded it.
    pub uid: u32,
    /// Instructions that the verifier went through; 0 before Linux 5.16.
    pub verified_instructions: u32,
    /// Instructions after the verifier.
    pub instructions: u32,
    /// Machine code in bytes; 0: it is interpreted.
    pub jited_bytes: u32,
    /// Charged for it.
    pub memory_bytes: u64,
    /// Maps that it uses.
    pub map_ids: Vec<u32>,
    /// Its functions: where their machine code is, and how long it is.
    pub functions: Vec<(u64, u32)>,
    /// Runs and time as far as statistics were on, and runs that the kernel skipped.
    pub runs: u64,
    /// See `runs`.
    pub run_ns: u64,
    /// See `runs`.
    pub recursion_misses: u64,
    /// Where it is attached.
    pub attachments: Vec<Attachment>,
    /// Processes that hold it.
    pub owners: Vec<Owner>,
}

/// All of them, by their numbers.
pub fn programs() -> Result<Vec<Program>> {
    check_permission()?;
    let mut attachments = attachments::by_program();
    let mut owners = owners::by_program();
    Ok(open_all()
        .filter_map(|(id, fd)| {
            let mut program = describe(id, &fd)?;
            program.attachments = take(&mut attachments, id);
            program.owners = take(&mut owners, id);
            Some(program)
        })
        .collect())
}

/// Those with these numbers as far as they are there, without where they are attached and who holds them: to find that
/// out takes a look at all links, and at all descriptors of all processes.
pub fn programs_alone(ids: &[u32]) -> Vec<Program> {
    let one = |&id: &u32| describe(id, &open_one(id)?);
    ids.iter().filter_map(one).collect()
}

fn take<T>(of_programs: &mut HashMap<u32, Vec<T>>, id: u32) -> Vec<T> {
    of_programs.remove(&id).unwrap_or_default()
}

/// Their descriptors.
pub(super) fn open_all() -> impl Iterator<Item = (u32, OwnedFd)> {
    each(libbpf_sys::bpf_prog_get_next_id, libbpf_sys::bpf_prog_get_fd_by_id)
}

fn open_one(id: u32) -> Option<OwnedFd> {
    // SAFETY: takes a number.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether this process may look.
pub(super) fn check_permission() -> Result<()> {
    let mut first = 0;
    // SAFETY: writes a number to where it is told.
    if unsafe { libbpf_sys::bpf_prog_get_next_id(0, &raw mut first) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT) => Ok(()),
        _ => Err(Error::system("the machine's BPF programs cannot be listed", &error)),
    }
}

/// What the kernel says of a program, but for what has to be asked for with room for it.
pub(super) fn info(fd: &OwnedFd) -> Option<libbpf_sys::bpf_prog_info> {
    fill(fd, |_| {})
}

pub(super) fn fill(
    fd: &OwnedFd,
    ask: impl FnOnce(&mut libbpf_sys::bpf_prog_info),
) -> Option<libbpf_sys::bpf_prog_info> {
    // SAFETY: plain integers, of which an older kernel wants those that it does not know to be zero.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    ask(&mut info);
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: `ask` gave lengths of memory that it owns, and the kernel fills no more than that.
    let status = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut bytes) };
    (status == 0).then_some(info)
}

fn describe(id: u32, fd: &OwnedFd) -> Option<Program> {
    let counts = info(fd)?;
    let mut map_ids = vec![0u32; counts.nr_map_ids as usize];
    let mut starts = vec![0u64; counts.nr_jited_ksyms as usize];
    let mut lengths = vec![0u32; counts.nr_jited_func_lens as usize];
    let mut functions = vec![libbpf_sys::bpf_func_info::default(); counts.nr_func_info as usize];
    let info = fill(fd, |info| {
        (info.nr_map_ids, info.map_ids) = room(&mut map_ids);
        (info.nr_jited_ksyms, info.jited_ksyms) = room(&mut starts);
        (info.nr_jited_func_lens, info.jited_func_lens) = room(&mut lengths);
        (info.nr_func_info, info.func_info) = room(&mut functions);
        info.func_info_rec_size = size_of::<libbpf_sys::bpf_func_info>() as u32;
    })?;
    let main = functions.first().map(|function| function.type_id);
    Some(Program {
        id,
        name: function_name(id, main).unwrap_or_else(|| text(&info.name)),
        kind: kind(info.type_),
        tag: info.tag.iter().map(|byte| format!("{byte:02x}")).collect(),
        loaded_boottime_ns: info.load_time,
        uid: info.created_by_uid,
        verified_instructions: info.verified_insns,
        instructions: info.xlated_prog_len / size_of::<libbpf_sys::bpf_insn>() as u32,
        jited_bytes: info.jited_prog_len,
        memory_bytes: memory_bytes(fd),
        map_ids,
        functions: starts.into_iter().zip(lengths).collect(),
        runs: info.run_cnt,
        run_ns: info.run_time_ns,
        recursion_misses: info.recursion_misses,
        ..Program::default()
    })
}

/// How many there is room for, and where.
pub(super) fn room<T>(values: &mut [T]) -> (u32, u64) {
    (values.len() as u32, values.as_mut_ptr() as u64)
}

fn function_name(id: u32, type_id: Option<u32>) -> Option<String> {
    let btf = Btf::from_prog_id(id).ok()?;
    let function: Func<'_> = btf.type_by_id(TypeId::from(type_id?))?;
    Some(function.name()?.to_string_lossy().into_owned())
}

/// As bpftool calls it, but for programs of kinds that libbpf does not know.
fn kind(number: u32) -> String {
    // SAFETY: a constant text, or null.
    let name = unsafe { libbpf_sys::libbpf_bpf_prog_type_str(number) };
    if name.is_null() {
        return format!("type {number}");
    }
    // SAFETY: it ends in a zero.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Of a name in a struct of the kernel's, which may fill its room.
pub(super) fn text(bytes: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .map(|byte| *byte as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
