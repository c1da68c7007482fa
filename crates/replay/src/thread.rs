//! Stops a thread to look at it, by ptrace(2), and lets it go on.

use std::fs;
use std::io;
use std::sync::Arc;

use stackhound_capture::Result;

use crate::{Case, Code, Memory, Registers, Replay};

/// Ids of a process's threads.
pub fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A thread to look at, time and again.
pub struct Traced {
    pid: u32,
    tid: i32,
    code: Published,
}

/// What was published of its process last, and the maps that said so.
#[derive(Default)]
struct Published {
    maps: Vec<u8>,
    mappings: u32,
    code: Arc<Vec<Code>>,
}

impl Traced {
    /// A thread of a process.
    pub fn new(pid: u32, tid: u32) -> Self {
        Self {
            pid,
            tid: tid as i32,
            code: Published::default(),
        }
    }

    /// Stops it, wherever it is, until what this gives is dropped. None when it has ended.
    pub fn stop(&mut self) -> io::Result<Option<Stopped<'_>>> {
        request(libc::PTRACE_SEIZE, self.tid, 0)?;
        let mut stopped = Stopped {
            thread: self,
            signal: 0,
        };
        request(libc::PTRACE_INTERRUPT, stopped.thread.tid, 0)?;
        Ok(stopped.wait()?.then_some(stopped))
    }
}

/// Zero for the stops that tracing itself makes.
fn signal_to_deliver(status: i32) -> i32 {
    let is_event = status >> 16 != 0;
    match libc::WSTOPSIG(status) {
        _ if is_event => 0,
        libc::SIGTRAP => 0,
        signal => signal,
    }
}

/// A thread that stands still.
pub struct Stopped<'t> {
    thread: &'t mut Traced,
    /// To be delivered when it goes on.
    signal: i32,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = request(libc::PTRACE_DETACH, self.thread.tid, self.signal); // it may have been killed meanwhile
    }
}

impl Stopped<'_> {
    /// False when it has ended.
    fn wait(&mut self) -> io::Result<bool> {
        let mut status = 0;
        // SAFETY: writes one status.
        while unsafe { libc::waitpid(self.thread.tid, &raw mut status, libc::__WALL) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        self.signal = signal_to_deliver(status);
        Ok(libc::WIFSTOPPED(status))
    }

    /// Lets it execute one instruction, which must not be one that may wait: `is_at_system_call`. False when it has
    /// ended.
    pub fn step(&mut self) -> io::Result<bool> {
        request(libc::PTRACE_SINGLESTEP, self.thread.tid, self.signal)?;
        self.wait()
    }

    /// The thread as it is now, with its process's code published in `replay`.
    pub fn case(&mut self, replay: &mut Replay) -> Result<Case> {
        let pid = self.thread.pid;
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let published = &mut self.thread.code;
        if maps != published.maps {
            let (mappings, code) = replay.publish(pid)?;
            *published = Published {
                maps,
                mappings,
                code: Arc::new(code),
            };
        }
        self.same_code()
    }

    /// The thread as it is now, where no code was mapped since the last time.
    pub fn same_code(&self) -> Result<Case> {
        let registers = self.registers();
        let registers = registers.map_err(|error| stackhound_capture::Error::system("no registers", &error))?;
        Ok(Case {
            registers,
            memory: Memory::of(self.thread.pid),
            code: Arc::clone(&self.thread.code.code),
            mappings: self.thread.code.mappings,
        })
    }

    fn registers(&self) -> io::Result<Registers> {
        // SAFETY: all zeros are valid registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let mut vector = libc::iovec {
            iov_base: (&raw mut registers).cast(),
            iov_len: size_of_val(&registers),
        };
        // SAFETY: the kernel writes no more than the vector holds.
        let result = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGSET,
                self.thread.tid,
                libc::NT_PRSTATUS,
                &raw mut vector,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Registers::from(&registers))
    }

    /// Whether the next instruction is a system call, or the last one was: the kernel may begin that again.
    pub fn is_at_system_call(&self) -> bool {
        const SYSTEM_CALL: &[u8] = if cfg!(target_arch = "x86_64") {
            &[0x0f, 0x05] // syscall
        } else {
            &[0x01, 0x00, 0x00, 0xd4] // svc #0
        };
        let Ok(registers) = self.registers() else {
            return false;
        };
        let mut memory = Memory::of(self.thread.pid);
        let mut is_one = |address| {
            let mut instruction = vec![0; SYSTEM_CALL.len()];
            memory.read(address, &mut instruction) && instruction == SYSTEM_CALL
        };
        is_one(registers.ip) || is_one(registers.ip.wrapping_sub(SYSTEM_CALL.len() as u64))
    }
}

fn request(what: u32, tid: i32, data: i32) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: none of the requests made here touches memory of this process.
    match unsafe { libc::ptrace(what, tid, none, data as usize as *mut libc::c_void) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
