//! Readable names, of bounded length: a mangled name can unfold to exponentially more than its own.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Bytes of a name to keep. Template instantiations reach a few thousand.
const MAX_NAME_BYTES: usize = 8 << 10;

/// What follows the name of a function in the name of the entry of a linkage table that jumps to it.
pub(super) const LINKAGE: &str = "@plt";

/// The name as its language writes it (C++, Rust); any other as it is.
pub(super) fn demangle(name: &str) -> Box<str> {
    let readable = match name.strip_suffix(LINKAGE) {
        Some(function) => readable(function).map(|function| function + LINKAGE),
        None => readable(name),
    };
    readable.map_or_else(|| shorten(name).into(), String::into_boxed_str)
}

/// At most [`MAX_NAME_BYTES`] of a name.
pub(super) fn shorten(name: &str) -> &str {
    let limit = name.len().min(MAX_NAME_BYTES);
    let end = (0..=limit).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or(0)]
}

/// Whether a compiler made the name from a longer one, of C++ or Rust.
pub(super) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

fn readable(name: &str) -> Option<String> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let mut text = Bounded::default();
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        write!(text, "{rust:#}").ok()?; // without the hash
    } else if name.starts_with("_Z") {
        let symbol = Symbol::new(name).ok()?;
        symbol
            .structured_demangle(&mut text, &DemangleOptions::default())
            .ok()?;
    } else {
        return None;
    }
    Some(text.0)
}

#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C++ and Rust names become readable, others stay.
    #[test]
    fn names_are_readable() {
        for (mangled, expected) in [
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            (
                "_ZN4core3ptr13drop_in_place17h0123456789abcdefE",
                "core::ptr::drop_in_place",
            ),
            ("_RNvC7mycrate4main", "mycrate::main"),
            ("_ZdlPv@plt", "operator delete(void*)@plt"),
            ("main", "main"),
            ("_Znonsense", "_Znonsense"),
            ("", ""),
        ] {
            assert_eq!(&*demangle(mangled), expected);
        }
    }

    /// A name that doubles with each of its substitutions stays mangled.
    #[test]
    fn names_that_explode_stay_mangled() {
        let mut name = String::from("_Z1fN1aIiEE");
        for level in 0..40 {
            let previous = if level == 0 {
                "S0_".to_owned()
            } else {
                format!("S{}_", base36(level))
            };
            name += &format!("N1bI{previous}{previous}EE");
        }
        assert!(demangle(&name).len() <= MAX_NAME_BYTES);
    }

    fn base36(number: u32) -> String {
        let digit = |value| char::from_digit(value, 36).unwrap().to_ascii_uppercase();
        if number < 36 {
            digit(number).to_string()
        } else {
            format!("{}{}", digit(number / 36), digit(number % 36))
        }
    }

    /// A name longer than any compiler's is cut between two characters.
    #[test]
    fn endless_names_are_cut() {
        assert_eq!(demangle(&"é".repeat(MAX_NAME_BYTES)).len(), MAX_NAME_BYTES);
    }
}
