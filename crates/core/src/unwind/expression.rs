//! DWARF expressions of the shapes that compilers and linkers write.

use gimli::{Encoding, Expression, Format, Operation, Register};

use crate::image::Slice;

/// Of any unwind section: expressions in it depend on nothing else.
const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: Format::Dwarf32,
    version: 4,
};

/// Operations to read: what is understood here has up to ten.
const MAX_OPERATIONS: usize = 10;

/// What an expression comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A register + an offset.
    Register { register: Register, offset: i64 },
    /// What is stored at a register + an offset, + another offset.
    Stored {
        register: Register,
        indirect_offset: i64,
        offset: i64,
    },
    /// x86-64's stack pointer + an offset, + 8 where the instruction pointer's lowest 4 bits have reached a threshold.
    Plt { offset: i64, threshold: u8 },
}

/// None for another shape.
pub(super) fn evaluate(expression: Slice) -> Option<Value> {
    let mut operations = Expression(expression).operations(ENCODING);
    let mut found = Vec::with_capacity(MAX_OPERATIONS);
    while let Some(operation) = operations.next().ok()? {
        if found.len() == MAX_OPERATIONS {
            return None;
        }
        found.push(operation);
    }
    plt(&found).or_else(|| match found.as_slice() {
        [Operation::RegisterOffset { register, offset, .. }, rest @ ..] => Value::of(*register, *offset).follow(rest),
        _ => None,
    })
}

/// As GNU's linker writes it for the procedure linkage table of x86-64.
fn plt(operations: &[Operation<Slice>]) -> Option<Value> {
    use Operation::{And, Ge, Plus, RegisterOffset, Shl, UnsignedConstant};
    match *operations {
        [
            RegisterOffset {
                register: gimli::X86_64::RSP,
                offset,
                ..
            },
            RegisterOffset {
                register: gimli::X86_64::RA,
                offset: 0,
                ..
            },
            UnsignedConstant { value: 15 },
            And,
            UnsignedConstant {
                value: threshold @ ..16,
            },
            Ge,
            UnsignedConstant { value: 3 },
            Shl,
            Plus,
        ] => Some(Value::Plt {
            offset,
            threshold: threshold as u8,
        }),
        _ => None,
    }
}

impl Value {
    fn of(register: Register, offset: i64) -> Self {
        Self::Register { register, offset }
    }

    /// After additions of constants, and one read from memory.
    fn follow(self, operations: &[Operation<Slice>]) -> Option<Self> {
        use Operation::{Deref, Plus, PlusConstant, SignedConstant, UnsignedConstant};
        match operations {
            [] => Some(self),
            [Deref { size: 8, .. }, rest @ ..] => self.stored()?.follow(rest),
            [PlusConstant { value: added }, rest @ ..] | [UnsignedConstant { value: added }, Plus, rest @ ..] => {
                self.plus(*added as i64).follow(rest)
            }
            [SignedConstant { value: added }, Plus, rest @ ..] => self.plus(*added).follow(rest),
            _ => None,
        }
    }

    fn plus(mut self, added: i64) -> Self {
        let (Self::Register { offset, .. } | Self::Stored { offset, .. } | Self::Plt { offset, .. }) = &mut self;
        *offset = offset.wrapping_add(added);
        self
    }

    fn stored(self) -> Option<Self> {
        match self {
            Self::Register { register, offset } => Some(Self::Stored {
                register,
                indirect_offset: offset,
                offset: 0,
            }),
            _ => None,
        }
    }
}
