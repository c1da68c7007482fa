//! Versions of CPython.

use std::fmt;

/// A version, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// `PY_VERSION_HEX`: a byte each for major, minor and micro, 4 bits for the stage, 4 for its number.
    hex: u32,
    /// Whether more than major and minor are known.
    is_exact: bool,
}

/// `PY_RELEASE_LEVEL_FINAL`, and that of release candidates, which have the final layouts.
const FINAL: u32 = 0xf;
const CANDIDATE: u32 = 0xc;

impl Version {
    /// What `PY_VERSION_HEX` says.
    pub const fn from_hex(hex: u32) -> Self {
        Self { hex, is_exact: true }
    }

    /// Any release of 3.`minor`.
    pub const fn of_minor(minor: u8) -> Self {
        Self::of(3, minor)
    }

    /// Any release of `major`.`minor`.
    pub const fn of(major: u8, minor: u8) -> Self {
        Self {
            hex: (major as u32) << 24 | (minor as u32) << 16 | FINAL << 4,
            is_exact: false,
        }
    }

    /// 13 for Python 3.13; None when it is not Python 3.
    pub const fn minor(self) -> Option<u8> {
        if self.hex >> 24 == 3 {
            Some((self.hex >> 16) as u8)
        } else {
            None
        }
    }

    /// Whether layouts may still have changed after it.
    pub(super) const fn is_preview(self) -> bool {
        self.stage() < CANDIDATE
    }

    const fn stage(self) -> u32 {
        self.hex >> 4 & 0xf
    }
}

impl fmt::Display for Version {
    /// Like `3.13.1`, `3.14.0rc2`, or `3.9` where no more is known.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, micro, last] = self.hex.to_be_bytes();
        write!(out, "{major}.{minor}")?;
        if !self.is_exact {
            return Ok(());
        }
        write!(out, ".{micro}")?;
        let name = match self.stage() {
            FINAL => return Ok(()),
            CANDIDATE => "rc",
            0xb => "b",
            _ => "a",
        };
        write!(out, "{name}{}", last & 0xf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions are shown as `python3 --version` does.
    #[test]
    fn versions_are_shown_as_python_shows_them() {
        let shown = |hex| Version::from_hex(hex).to_string();
        assert_eq!(shown(0x030d_00f0), "3.13.0");
        assert_eq!(shown(0x030e_00c2), "3.14.0rc2");
        assert_eq!(shown(0x030e_00a7), "3.14.0a7");
        assert_eq!(Version::of_minor(9).to_string(), "3.9");
    }

    /// Layouts of alphas and betas are nobody's.
    #[test]
    fn alphas_and_betas_are_previews() {
        assert!(Version::from_hex(0x030e_00b4).is_preview());
        assert!(!Version::from_hex(0x030e_00c1).is_preview());
        assert!(!Version::of_minor(10).is_preview());
    }
}
