//! The machine code of programs: where their functions are, what they are called, and of which source lines they are.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use super::programs::{fill, info, open_all, room, text};

/// One function of a program, as it is in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Of its first instruction.
    pub start: u64,
    /// Of its code.
    pub bytes: u32,
    /// As the kernel's own list of symbols has it: `bpf_prog_TAG_NAME`.
    pub name: String,
    /// Ordered; none where the program came without them.
    pub lines: Vec<Line>,
}

/// Where the code of a source line begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// From the start of the function.
    pub offset: u64,
    /// As the compiler was told it.
    pub file: String,
    /// In that file.
    pub line: u32,
}

/// Of all programs but those that are known.
pub fn functions(is_known: impl Fn(u32) -> bool) -> Vec<(u32, Vec<Function>)> {
    let new = open_all().filter(|(id, _)| !is_known(*id));
    new.map(|(id, fd)| (id, functions_of(&fd).unwrap_or_default()))
        .collect()
}

fn functions_of(fd: &OwnedFd) -> Option<Vec<Function>> {
    let counts = info(fd)?;
    let mut starts = vec![0u64; counts.nr_jited_ksyms as usize];
    let mut lengths = vec![0u32; counts.nr_jited_func_lens as usize];
    let mut tags = vec![[0u8; libbpf_sys::BPF_TAG_SIZE as usize]; counts.nr_prog_tags as usize];
    let mut types = vec![libbpf_sys::bpf_func_info::default(); counts.nr_func_info as usize];
    let mut lines = vec![libbpf_sys::bpf_line_info::default(); counts.nr_line_info as usize];
    let mut places = vec![0u64; counts.nr_jited_line_info as usize];
    let said = fill(fd, |info| {
        (info.nr_jited_ksyms, info.jited_ksyms) = room(&mut starts);
        (info.nr_jited_func_lens, info.jited_func_lens) = room(&mut lengths);
        (info.nr_prog_tags, info.prog_tags) = room(&mut tags);
        (info.nr_func_info, info.func_info) = room(&mut types);
        (info.nr_line_info, info.line_info) = room(&mut lines);
        (info.nr_jited_line_info, info.jited_line_info) = room(&mut places);
        info.func_info_rec_size = size_of::<libbpf_sys::bpf_func_info>() as u32;
        info.line_info_rec_size = size_of::<libbpf_sys::bpf_line_info>() as u32;
        info.jited_line_info_rec_size = size_of::<u64>() as u32;
    })?;
    let btf = TypeInformation::of(said.btf_id);
    let function = |(at, (start, bytes)): (usize, (&u64, &u32))| {
        let own = types
            .get(at)
            .and_then(|function| btf.as_ref()?.function_name(function.type_id));
        let tag = tags.get(at).unwrap_or(&said.tag);
        let tag: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
        Function {
            start: *start,
            bytes: *bytes,
            name: format!("bpf_prog_{tag}_{}", own.unwrap_or_else(|| text(&said.name))),
            lines: lines_within(*start, *bytes, &places, &lines, btf.as_ref()),
        }
    };
    let functions = starts.iter().zip(&lengths).enumerate().map(function);
    Some(functions.filter(|function| function.start != 0).collect())
}

fn lines_within(
    start: u64,
    bytes: u32,
    places: &[u64],
    lines: &[libbpf_sys::bpf_line_info],
    btf: Option<&TypeInformation>,
) -> Vec<Line> {
    let within = start..start + u64::from(bytes);
    let each = places.iter().zip(lines).filter(|(place, _)| within.contains(*place));
    let line = |(place, info): (&u64, &libbpf_sys::bpf_line_info)| {
        Some(Line {
            offset: place - start,
            file: btf?.text(info.file_name_off)?,
            line: info.line_col >> LINE_SHIFT,
        })
    };
    let mut found: Vec<Line> = each.filter_map(line).collect();
    found.sort_by_key(|line| line.offset);
    found
}

/// `BPF_LINE_INFO_LINE_NUM` of include/uapi/linux/bpf.h.
const LINE_SHIFT: u32 = 10;

/// The names that a program came with.
struct TypeInformation(NonNull<libbpf_sys::btf>);

impl TypeInformation {
    fn of(id: u32) -> Option<Self> {
        if id == 0 {
            return None;
        }
        // SAFETY: takes a number, and gives what is to be freed, or null.
        NonNull::new(unsafe { libbpf_sys::btf__load_from_kernel_by_id(id) }).map(Self)
    }

    fn text(&self, offset: u32) -> Option<String> {
        // SAFETY: null for what is out of range, else a text that ends in a zero and lives as long as this.
        let text = unsafe { libbpf_sys::btf__str_by_offset(self.0.as_ptr(), offset) };
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(NonNull::new(text.cast_mut())?.as_ptr()) };
        Some(text.to_string_lossy().into_owned())
    }

    fn function_name(&self, type_id: u32) -> Option<String> {
        // SAFETY: null for what is out of range, else what lives as long as this.
        let found = unsafe { libbpf_sys::btf__type_by_id(self.0.as_ptr(), type_id).as_ref() };
        self.text(found?.name_off)
    }
}

impl Drop for TypeInformation {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) };
    }
}
