//! The kinds of address, each a type of its own, so that one is never taken for another.

/// Virtual, in one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessAddr(pub u64);

/// Bytes from the start of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOffset(pub u64);

/// In an object's own space, as its symbol table says. For the kernel and its modules: from their base, so that
/// it is the same after each boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectAddr(pub u64);

/// Virtual, in the running kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelAddr(pub u64);
