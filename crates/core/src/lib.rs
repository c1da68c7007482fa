//! Interning, symbols and columns: bytes in, columns out.
//!
//! No kernel, no Python, no global state. Everything that is read here comes from a profiled process or from a
//! file of unknown origin, so each input is bounded and checked, and what is wrong with it is an [`Error`].

pub mod calltree;
mod error;
pub mod parquet;
pub mod paths;
#[cfg(test)]
mod random;

pub use error::Error;
