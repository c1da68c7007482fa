//! Interning, symbols and columns: bytes in, columns out.
//!
//! No kernel, no Python, no global state. Everything that is read here comes from a profiled process or from a
//! file of unknown origin, so each input is bounded and checked, and what is wrong with it is an [`Error`].

pub mod address;
#[cfg(feature = "count-allocations")]
pub mod allocations;
pub mod allocators;
pub mod block_io;
pub mod calltree;
pub mod code;
pub mod columns;
pub mod elf;
#[cfg(test)]
mod elf_writer;
mod error;
pub mod guard;
pub mod hashes;
pub mod heap;
mod image;
pub mod inspection;
mod intern;
pub mod jitdump;
pub mod maps;
mod off_cpu;
pub mod parquet;
pub mod paths;
mod pclntab;
pub mod perfmap;
pub mod pprof;
pub mod profile;
pub mod python;
#[cfg(test)]
mod random;
pub mod reuse;
pub mod rows;
mod samples;
mod stacks;
pub mod symbolize;
mod tables;
pub mod unwind;

pub use error::Error;
