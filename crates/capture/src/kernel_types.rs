//! The kernel's own description of its types (BTF), as far as names go.

use std::fs::File;
use std::io;
use std::sync::OnceLock;

use memmap2::Mmap;

const PATH: &str = "/sys/kernel/btf/vmlinux";

type Bytes = Box<dyn AsRef<[u8]> + Send + Sync>;

/// Whether the kernel describes a type, or a tracepoint (`btf_trace_…`), of this name.
pub fn kernel_has_type(name: &[u8]) -> bool {
    static TYPES: OnceLock<Bytes> = OnceLock::new();
    let types = TYPES.get_or_init(|| map().unwrap_or_else(|_| read()));
    let name = [b"\0", name, b"\0"].concat();
    memchr::memmem::find((**types).as_ref(), &name).is_some()
}

/// Since Linux 6.16: to read so many megabytes takes as long as to verify a program.
fn map() -> io::Result<Bytes> {
    let file = File::open(PATH)?;
    // SAFETY: it is the kernel's memory, which nobody writes or takes away.
    Ok(Box::new(unsafe { Mmap::map(&file) }?))
}

fn read() -> Bytes {
    Box::new(std::fs::read(PATH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are known as a whole, however the kernel hands its description out.
    #[test]
    fn types_are_known_by_their_whole_names() {
        if !std::path::Path::new(PATH).exists() {
            return;
        }
        assert!(kernel_has_type(b"task_struct"));
        assert!(!kernel_has_type(b"task_struc"));
        assert!(memchr::memmem::find((*read()).as_ref(), b"\0task_struct\0").is_some());
    }
}
