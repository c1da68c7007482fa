//! Symbols are read through mappings of files that their owners may truncate meanwhile; touching what is gone raises
//! SIGBUS. While a guard lives, such a page becomes zeros instead, which no symbol table survives quietly: the parser
//! sees a damaged file, and the recorder goes on.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);
static ZEROED_PAGES: AtomicU64 = AtomicU64::new(0);
/// How many guards there are.
static GUARDS: Mutex<usize> = Mutex::new(0);
static mut PREVIOUS_ACTION: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// Keeps truncated files from ending the process, in all its threads.
pub struct Guard {
    zeroed_before: u64,
}

impl Guard {
    /// Takes SIGBUS over until the last guard is dropped.
    pub fn new() -> io::Result<Self> {
        let mut guards = guards();
        if *guards == 0 {
            take_over()?;
        }
        *guards += 1;
        Ok(Self {
            zeroed_before: ZEROED_PAGES.load(Ordering::Relaxed),
        })
    }

    /// Pages that were gone from under a mapping, of this thread or of another, since the guard was made.
    pub fn zeroed_pages(&self) -> u64 {
        ZEROED_PAGES.load(Ordering::Relaxed) - self.zeroed_before
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut guards = guards();
        *guards -= 1;
        if *guards == 0 {
            restore();
        }
    }
}

fn guards() -> MutexGuard<'static, usize> {
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_over() -> io::Result<()> {
    // SAFETY: the handler does what signal handlers may (a system call, atomics); PREVIOUS_ACTION is written here only,
    // before the handler that reads it is in place, while the lock on GUARDS is held.
    unsafe {
        PAGE_BYTES.store(libc::sysconf(libc::_SC_PAGESIZE) as usize, Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = zero_page as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        match libc::sigaction(libc::SIGBUS, &action, (&raw mut PREVIOUS_ACTION).cast()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn restore() {
    // SAFETY: `take_over` has filled it, and nobody writes it while a guard or its handler lives.
    unsafe { libc::sigaction(libc::SIGBUS, (&raw const PREVIOUS_ACTION).cast(), std::ptr::null_mut()) };
}

/// Puts a page of zeros where the file has none. For any other SIGBUS the previous handler gets its turn: the
/// instruction runs again when this returns.
extern "C" fn zero_page(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid siginfo; the page lies in a mapping that raised SIGBUS because its file
    // ends before it, so nothing readable is replaced.
    unsafe {
        let page_bytes = PAGE_BYTES.load(Ordering::Relaxed);
        let page = (*info).si_addr() as usize & !(page_bytes - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let is_beyond_file = (*info).si_code == libc::BUS_ADRERR;
        if !is_beyond_file
            || libc::mmap(page as *mut libc::c_void, page_bytes, libc::PROT_READ, flags, -1, 0) == libc::MAP_FAILED
        {
            restore();
            return;
        }
        ZEROED_PAGES.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_file_truncated_under_its_mapping_reads_as_zeros() {
        let path = std::env::temp_dir().join(format!("stackhound-sigbus-{}", std::process::id()));
        std::fs::write(&path, vec![7u8; 3 * 4096]).unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let guard = Guard::new().unwrap();
        // SAFETY: a mapping of the whole file, read within its length.
        let bytes = unsafe {
            let address = libc::mmap(
                std::ptr::null_mut(),
                3 * 4096,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(address, libc::MAP_FAILED);
            std::slice::from_raw_parts(address.cast::<u8>(), 3 * 4096)
        };
        file.set_len(4096).unwrap();
        assert_eq!((bytes[0], bytes[2 * 4096]), (7, 0));
        assert_eq!(guard.zeroed_pages(), 1);
        std::fs::remove_file(&path).unwrap();
    }
}
