//! What became of the functions of a file.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Why code has no rule that can be followed, or no whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The CFA is an expression of another shape than compilers and linkers write.
    CfaExpression,
    /// The return address is in a register that is not kept, or an expression.
    ReturnAddress,
    /// The frame pointer is: the rule loses it, and is good otherwise.
    FramePointer,
    /// An offset that a rule has no room for.
    Offset,
    /// An entry or an instruction that says nothing sensible.
    Malformed,
    /// More states remembered at once, more rules or more rows than any compiler makes.
    TooMany,
    /// Functions that lie outside of what the file loads as code.
    OutsideCode,
}

impl Reason {
    /// Every one, in the order of [`Statistics::unsupported`].
    pub const ALL: [Self; 7] = [
        Self::CfaExpression,
        Self::ReturnAddress,
        Self::FramePointer,
        Self::Offset,
        Self::Malformed,
        Self::TooMany,
        Self::OutsideCode,
    ];

    /// What a user reads.
    pub fn text(self) -> &'static str {
        match self {
            Self::CfaExpression => "unusual CFA expression",
            Self::ReturnAddress => "return address in a register",
            Self::FramePointer => "frame pointer in a register",
            Self::Offset => "offset too large",
            Self::Malformed => "damaged",
            Self::TooMany => "too much of it",
            Self::OutsideCode => "outside of the file's code",
        }
    }
}

impl From<gimli::Error> for Reason {
    fn from(_: gimli::Error) -> Self {
        Self::Malformed
    }
}

/// How a table came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Statistics {
    /// Functions, or parts of functions, that have rules.
    pub functions: u32,
    /// Rows or functions by [`Reason`].
    pub unsupported: [u32; Reason::ALL.len()],
}

impl Statistics {
    /// How often this was the reason.
    pub fn count_of(&self, reason: Reason) -> u32 {
        self.unsupported[reason as usize]
    }

    pub(super) fn note(&mut self, reason: Reason) {
        let count = &mut self.unsupported[reason as usize];
        *count = count.saturating_add(1);
    }
}
