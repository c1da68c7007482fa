//! Unwinding without frame pointers: from what an ELF file says of its code to a table that the kernel can search.
//!
//! A [`Table`] is in the object's own addresses:
//!
//! ```text
//! pages   one for each 4 KiB of code: first row, number of rows
//! rows    u32: offset in the page (12 bits), index of a rule (20 bits); sorted, each holds up to the next
//! rules   16 bytes, each once a file
//! ```
//!
//! x86-64 and arm64, whatever this machine is.

mod rule;
mod statistics;
mod table;

pub use rule::{Cfa, FramePointer, ReturnAddress, Rule};
pub use statistics::{Reason, Statistics};
pub use table::{MAX_PAGES, MAX_RULES, PAGE_BITS, Page, RULE_BITS, Table, TableView, offset_of, rule_of};
