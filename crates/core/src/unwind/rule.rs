//! How to get from a frame to its caller: what the walker in the kernel reads, byte for byte.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How the canonical frame address, the stack pointer before the call, is found.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Cfa(pub u8);

impl Cfa {
    /// Nothing is known about this code.
    pub const NONE: Self = Self(0);
    /// The stack pointer + `cfa_offset`.
    pub const SP: Self = Self(1);
    /// The frame pointer + `cfa_offset`.
    pub const FP: Self = Self(2);
    /// `cfa_register` + `cfa_offset`: known in the innermost frame and after a signal; the base pointer in others, too.
    pub const REGISTER: Self = Self(3);
    /// What is stored at the stack pointer + `cfa_indirect_offset`, + `cfa_offset`.
    pub const AT_SP: Self = Self(4);
    /// What is stored at the frame pointer + `cfa_indirect_offset`, + `cfa_offset`.
    pub const AT_FP: Self = Self(5);
    /// What is stored at `cfa_register` + `cfa_indirect_offset`, + `cfa_offset`.
    pub const AT_REGISTER: Self = Self(6);
    /// A jump through the procedure linkage table of x86-64, 16 bytes each: the stack pointer + `cfa_offset`, + 8 from
    /// byte `cfa_register` of the entry on, where it has pushed its index.
    pub const PLT: Self = Self(7);
    /// What the kernel pushes for a signal handler: all registers are there.
    pub const SIGNAL: Self = Self(8);
    /// Nobody called this code.
    pub const END: Self = Self(9);
    /// There is a rule, but this format cannot say it.
    pub const UNSUPPORTED: Self = Self(10);
    /// The frame pointer is known to point to the caller's, with the return address behind it; the CFA is the frame
    /// pointer + `cfa_offset`. When the frame pointer is 0, nobody called this code.
    pub const FRAME_POINTER: Self = Self(11);
}

/// Where the caller's frame pointer is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct FramePointer(pub u8);

impl FramePointer {
    /// Still in its register.
    pub const SAME: Self = Self(0);
    /// Stored at the CFA + `frame_pointer_offset`.
    pub const AT_CFA: Self = Self(1);
    /// Stored at the frame pointer + `frame_pointer_offset`: functions that align their stack.
    pub const AT_FP: Self = Self(2);
    /// Lost.
    pub const UNDEFINED: Self = Self(3);
}

/// Where the address to return to is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct ReturnAddress(pub u8);

impl ReturnAddress {
    /// Stored at the CFA + `return_address_offset`.
    pub const AT_CFA: Self = Self(0);
    /// In the register whose DWARF number is `return_address_offset`: the link register of arm64, or where glibc's
    /// `vfork` keeps it. Known in the innermost frame and after a signal only.
    pub const IN_REGISTER: Self = Self(1);
}

/// One rule: `struct unwind_rule` of `bpf/abi.h`. The frame pointer is rbp or x29, the stack pointer rsp or sp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    /// How the CFA is found.
    pub cfa: Cfa,
    /// DWARF's number of the register for [`Cfa::REGISTER`] and [`Cfa::AT_REGISTER`]; for [`Cfa::PLT`] see there.
    pub cfa_register: u8,
    /// Where the caller's frame pointer is.
    pub frame_pointer: FramePointer,
    /// Where the address to return to is.
    pub return_address: ReturnAddress,
    /// Bytes from the CFA, or from the frame pointer for [`FramePointer::AT_FP`].
    pub frame_pointer_offset: i16,
    /// Bytes from the CFA, or a register's number.
    pub return_address_offset: i16,
    /// Bytes, added last.
    pub cfa_offset: i32,
    /// Bytes, added before the CFA is read from memory.
    pub cfa_indirect_offset: i16,
    /// Bytes from the CFA to where the caller's base pointer is stored, rbx on x86-64; 0: it is still in its register.
    pub base_pointer_offset: i16,
}

const _: () = assert!(size_of::<Rule>() == 16 && align_of::<Rule>() == 4);

impl Rule {
    /// As [`Rule::base_pointer_offset`]: lost.
    pub const BASE_POINTER_LOST: i16 = 1;

    /// DWARF's number of x30.
    pub(super) const ARM64_LINK_REGISTER: i16 = 30;

    /// Where nothing is known. The first rule of every table.
    pub const NONE: Self = Self::bare(Cfa::NONE);
    /// At the root of a stack.
    pub const END: Self = Self::bare(Cfa::END);
    /// In what returns from a signal handler.
    pub const SIGNAL: Self = Self::bare(Cfa::SIGNAL);
    /// Where the rule cannot be said.
    pub const UNSUPPORTED: Self = Self::bare(Cfa::UNSUPPORTED);
    /// In a function that keeps a frame pointer, whatever it does to the stack pointer.
    pub const FRAME_POINTER: Self = Self {
        cfa_offset: 16,
        ..Self::bare(Cfa::FRAME_POINTER)
    };

    /// Right after a call on x86-64, `bytes` of the stack being the return address and what the function has put there.
    pub(super) const fn x86_64_frame(bytes: i32) -> Self {
        Self {
            cfa_offset: bytes,
            return_address_offset: -8,
            ..Self::bare(Cfa::SP)
        }
    }

    /// In a function of arm64 that has put `bytes` on the stack, but not the return address.
    pub(super) const fn arm64_leaf(bytes: i32) -> Self {
        Self {
            cfa_offset: bytes,
            return_address: ReturnAddress::IN_REGISTER,
            return_address_offset: Self::ARM64_LINK_REGISTER,
            ..Self::bare(Cfa::SP)
        }
    }

    /// Whether each field has a value that stands for something.
    pub(super) fn is_sound(&self) -> bool {
        self.cfa <= Cfa::FRAME_POINTER
            && self.cfa_register < 32
            && self.frame_pointer <= FramePointer::UNDEFINED
            && self.return_address <= ReturnAddress::IN_REGISTER
            && (self.return_address != ReturnAddress::IN_REGISTER || (0..32).contains(&self.return_address_offset))
    }

    const fn bare(cfa: Cfa) -> Self {
        Self {
            cfa,
            cfa_register: 0,
            frame_pointer: FramePointer::SAME,
            return_address: ReturnAddress::AT_CFA,
            frame_pointer_offset: 0,
            return_address_offset: 0,
            cfa_offset: 0,
            cfa_indirect_offset: 0,
            base_pointer_offset: 0,
        }
    }
}
