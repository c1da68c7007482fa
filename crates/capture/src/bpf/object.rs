//! An object file that somebody else wrote: opened, loaded with what the verifier says, run, attached.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, ObjectBuilder, ProgramMut, ProgramType};

use super::nothing;
use super::programs::info;
use super::trial::{self, Input, Ran};
use crate::bpf_objects::print_above;
use crate::cpus;
use crate::error::{Error, ErrorKind, Result};
use crate::perf_event;

/// Room for the verifier's words, of each program. It writes no more than that.
const LOG_BYTES: usize = 16 << 20;
/// Of the verifier's log (`BPF_LOG_STATS`, `BPF_LOG_LEVEL2`).
const LOG_FIGURES: u32 = 4;
const LOG_ALL: u32 = 2;

/// The kernel's own, which no C library names.
const ENOTSUPP: i32 = 524;

/// A program in an object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contained {
    /// Its function's.
    pub name: String,
    /// That it is in, which says what it is for.
    pub section: String,
    /// As libbpf calls it; empty: libbpf does not know.
    pub kind: String,
}

/// What the verifier said.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Its words, cut off where they are too many.
    pub log: String,
    /// Why it, or somebody before it, said no.
    pub refusal: Option<String>,
}

/// A loaded object.
pub struct Object {
    object: libbpf_rs::Object,
    links: HashMap<String, Vec<Link>>,
    empty: HashMap<String, OwnedFd>,
}

/// The programs that are in a file.
pub fn contents(path: &Path) -> Result<Vec<Contained>> {
    let object = open(path)?;
    let text = |name: &std::ffi::OsStr| name.to_string_lossy().into_owned();
    let programs = object.progs();
    Ok(programs
        .map(|program| Contained {
            name: text(program.name()),
            section: text(program.section()),
            kind: kind(program.prog_type() as u32),
        })
        .collect())
}

fn open(path: &Path) -> Result<libbpf_rs::OpenObject> {
    print_above(0); // what there is to say is in the logs
    ObjectBuilder::default().open_file(path).map_err(|error| {
        let message = format!("{}: not an object file with BPF programs: {error}", path.display());
        Error::new(
            ErrorKind::Usage,
            message,
            "give what 'clang -target bpf -c' or bpf-linker made",
        )
    })
}

fn kind(number: u32) -> String {
    // SAFETY: a constant text, or null.
    let name = unsafe { libbpf_sys::libbpf_bpf_prog_type_str(number) };
    if name.is_null() || number == 0 {
        return String::new();
    }
    // SAFETY: it ends in a zero.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

impl Object {
    /// Loads some of the programs of a file, and their maps. Says what the verifier said of each, also when it refuses;
    /// `in_words`: each step of it.
    pub fn load(path: &Path, wanted: &[String], in_words: bool) -> Result<(Option<Self>, HashMap<String, Verified>)> {
        let mut open = open(path)?;
        let mut logs: Vec<(String, Vec<u8>)> = Vec::new();
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let is_wanted = wanted.contains(&name);
            program.set_autoload(is_wanted);
            if is_wanted {
                program.set_log_level(if in_words { LOG_FIGURES | LOG_ALL } else { LOG_FIGURES });
                logs.push((name, vec![0; if in_words { LOG_BYTES } else { 4096 }]));
                let (_, log) = logs.last_mut().expect("just added");
                // SAFETY: the memory stays where it is, and outlives the load below.
                unsafe {
                    libbpf_sys::bpf_program__set_log_buf(
                        program.as_libbpf_object().as_ptr(),
                        log.as_mut_ptr().cast(),
                        log.len() as libbpf_sys::size_t,
                    );
                }
            }
        }
        let loaded = open.load();
        let refusal = loaded.as_ref().err().map(|error| format!("{error}"));
        let said = |(name, log): (String, Vec<u8>)| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            let verified = Verified {
                log: String::from_utf8_lossy(&log[..end]).into_owned(),
                refusal: refusal.clone(),
            };
            (name, verified)
        };
        let verified = logs.into_iter().map(said).collect();
        Ok((loaded.ok().map(Self::of), verified))
    }

    /// A program that does nothing, `NOTHING`, to be attached as those of a section are.
    pub fn nothing(section: &str, return_value: u32) -> Result<Self> {
        print_above(0);
        let file = nothing::object_file(section, return_value);
        let loaded = ObjectBuilder::default()
            .open_memory(&file)
            .and_then(libbpf_rs::OpenObject::load);
        let object = loaded.map_err(|error| {
            let message = format!("an empty program in section {section} cannot be loaded: {error}");
            Error::new(ErrorKind::Kernel, message, "measure it by test runs")
        })?;
        Ok(Self::of(object))
    }

    fn of(object: libbpf_rs::Object) -> Self {
        Self {
            object,
            links: HashMap::new(),
            empty: HashMap::new(),
        }
    }

    /// As the kernel numbers the program.
    pub fn id(&self, name: &str) -> Result<u32> {
        Ok(self.info(name)?.id)
    }

    /// Instructions after the verifier, and bytes of machine code.
    pub fn sizes(&self, name: &str) -> Result<(u32, u32)> {
        let info = self.info(name)?;
        let instruction = size_of::<libbpf_sys::bpf_insn>() as u32;
        Ok((info.xlated_prog_len / instruction, info.jited_prog_len))
    }

    fn info(&self, name: &str) -> Result<libbpf_sys::bpf_prog_info> {
        let fd = self.program(name)?.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::system("dup", &error))?;
        info(&fd).ok_or_else(|| no_program(name))
    }

    fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>> {
        let mut programs = self.object.progs_mut();
        let found = programs.find(|program| program.name() == name);
        found.ok_or_else(|| no_program(name))
    }

    /// Runs a program for its own sake.
    pub fn run(&self, name: &str, input: Input<'_>) -> Result<Ran> {
        trial::run(self.program(name)?.as_fd(), input).map_err(|error| run_error(name, &error))
    }

    /// Runs a program of the same kind that does nothing but return a value.
    pub fn run_empty(&mut self, name: &str, input: Input<'_>, return_value: u32) -> Result<Ran> {
        let empty = self.empty(name, return_value)?;
        trial::run(empty, input).map_err(|error| run_error(name, &error))
    }

    /// As the kernel numbers that one.
    pub fn empty_id(&mut self, name: &str, return_value: u32) -> Result<u32> {
        let fd = self.empty(name, return_value)?.try_clone_to_owned();
        let fd = fd.map_err(|error| Error::system("dup", &error))?;
        info(&fd).map(|info| info.id).ok_or_else(|| no_program(name))
    }

    fn empty(&mut self, name: &str, return_value: u32) -> Result<BorrowedFd<'_>> {
        if !self.empty.contains_key(name) {
            let program = self.program(name)?;
            let (kind, attach_type) = (program.prog_type() as u32, program.attach_type() as u32);
            let fd = trial::load_empty(kind, attach_type, return_value).map_err(|error| {
                Error::system(
                    &format!("an empty program of the kind of {name} cannot be loaded"),
                    &error,
                )
            })?;
            self.empty.insert(name.to_owned(), fd);
        }
        Ok(self.empty[name].as_fd())
    }

    /// Writes an element of a map.
    pub fn update(&mut self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(found) = self.object.maps_mut().find(|one| one.name() == map) else {
            let names = self.object.maps().map(|one| one.name().to_string_lossy().into_owned());
            let remedy = format!("use {}", names.collect::<Vec<_>>().join(", "));
            return Err(Error::new(ErrorKind::Usage, format!("there is no map {map:?}"), remedy));
        };
        found.update(key, value, MapFlags::ANY).map_err(|error| {
            let sizes = format!("keys have {} bytes, values {}", found.key_size(), found.value_size());
            Error::new(ErrorKind::Usage, format!("map {map}: {error}"), sizes)
        })
    }

    /// Attaches a program where its section says; for perf events to the clock of each CPU, for XDP to an interface.
    pub fn attach(&mut self, name: &str, interface: &str) -> Result<()> {
        let program = self.program(name)?;
        let links = match program.prog_type() {
            ProgramType::Xdp => vec![attach_to_interface(&program, interface)?],
            ProgramType::PerfEvent => attach_to_clocks(&program)?,
            _ => vec![program.attach().map_err(|error| attach_error(name, &error))?],
        };
        self.links.insert(name.to_owned(), links);
        Ok(())
    }

    /// Takes it away again.
    pub fn detach(&mut self, name: &str) {
        self.links.remove(name);
    }
}

fn attach_to_interface(program: &ProgramMut<'_>, interface: &str) -> Result<Link> {
    let index = CString::new(interface).map_or(0, |name| {
        // SAFETY: reads a text that ends in a zero.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    });
    if index == 0 {
        let message = format!("there is no network interface {interface:?}");
        return Err(Error::new(ErrorKind::Usage, message, "name one that 'ip link' shows"));
    }
    let name = program.name().to_string_lossy().into_owned();
    let link = program.attach_xdp(index as i32);
    link.map_err(|error| {
        let message = format!("{name} cannot be attached to {interface}: {error}");
        Error::new(ErrorKind::Kernel, message, "use an interface that has no XDP program")
    })
}

/// 4 kHz: some hundred runs in each batch.
const CLOCK_PERIOD_NS: u64 = 250_000;

fn attach_to_clocks(program: &ProgramMut<'_>) -> Result<Vec<Link>> {
    let name = program.name().to_string_lossy().into_owned();
    let attach = |cpu| {
        let clock = perf_event::cpu_clock(cpu, CLOCK_PERIOD_NS)
            .map_err(|error| Error::system(&format!("the clock of CPU {cpu} cannot be opened"), &error))?;
        let link = program.attach_perf_event(clock.as_raw_fd());
        let link = link.map_err(|error| attach_error(&name, &error))?;
        let _closed_with_the_link = clock.into_raw_fd();
        Ok(link)
    };
    cpus::online().into_iter().map(attach).collect()
}

fn attach_error(name: &str, error: &libbpf_rs::Error) -> Error {
    Error::new(
        ErrorKind::Kernel,
        format!("{name} cannot be attached: {error}"),
        "its section must say where to, for example tp_btf/sched_switch",
    )
}

fn no_program(name: &str) -> Error {
    Error::new(
        ErrorKind::Usage,
        format!("no program {name} was loaded"),
        "name one of the object's programs",
    )
}

fn run_error(name: &str, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | ENOTSUPP) => Error::new(
            ErrorKind::Event,
            format!("the kernel runs programs of the kind of {name} only where they are attached"),
            "measure it in place",
        ),
        Some(libc::EINVAL) => Error::new(
            ErrorKind::Usage,
            format!("{name} does not take this input"),
            "a packet has 14 bytes or more; a context as many as the program's type has",
        ),
        _ => Error::system(&format!("{name} cannot be run"), error),
    }
}
