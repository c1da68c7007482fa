//! Go's functions, from Go's own table. It says how many bytes each has on the stack; the rest follows from how Go lays
//! out frames (`cmd/internal/obj/x86/obj6.go`, `cmd/internal/obj/arm64/obj7.go`).
//!
//! x86-64: the return address is above those bytes, and the caller's frame pointer is the topmost of them. arm64: the
//! return address is the lowest of them, and the caller's frame pointer below that.

use std::ops::Range;

use super::layers::Layer;
use super::rule::{FramePointer, ReturnAddress, Rule};
use super::statistics::Reason;
use super::writer::Writer;
use crate::image::{Image, Machine};
use crate::pclntab::{Function, Pclntab};

/// What handles signals for Go is called by the kernel: the stack goes on with what was interrupted.
const SIGNAL_HANDLERS: [&str; 2] = ["runtime.sigtramp", "runtime.cgoSigtramp"];

/// `push %rbp`, with which Go 1.21 and later begin a frame.
const PUSH_FRAME_POINTER: u8 = 0x55;

/// `str x30, [sp, #-n]!`, but for n; and `mov sp, x20`: with these arm64's frames begin.
const PUSH_LINK: u32 = 0xf800_0ffe;
const PUSH_LINK_MASK: u32 = 0xffe0_0fff;
const MOVE_STACK_POINTER: u32 = 0x9100_029f;

/// Bytes of an instruction of arm64.
const INSTRUCTION_BYTES: u64 = 4;

/// A Go program's functions.
pub(super) struct Go<'i, 'f> {
    image: &'i Image<'f>,
    table: Pclntab<'f>,
    /// The first that was not given yet.
    next: usize,
    /// Up to where functions were given.
    given: u64,
    current: Option<Function>,
}

/// What holds in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One rule everywhere.
    Everywhere(Rule),
    /// Go's own frame, which the compiler writes, or something like it.
    Frame { is_assembly: bool },
    /// The stack pointer goes to another stack, and the frame pointer stays, if it was set up at all.
    Switching { first_bytes: i32 },
}

impl<'i, 'f> Go<'i, 'f> {
    pub(super) fn find(image: &'i Image<'f>) -> Option<Self> {
        Some(Self {
            image,
            table: Pclntab::find(image).filter(Pclntab::has_flags)?,
            next: 0,
            given: 0,
            current: None,
        })
    }

    fn kind(&self, function: &Function, addresses: &Range<u64>) -> Kind {
        let is_handler = || {
            let name = self.table.name(function).unwrap_or_default();
            SIGNAL_HANDLERS
                .iter()
                .any(|handler| name.starts_with(handler.as_bytes()))
        };
        if self.is_signal_return(function) {
            Kind::Everywhere(Rule::SIGNAL)
        } else if function.is_top() && !is_handler() {
            Kind::Everywhere(Rule::END)
        } else if function.switches_stacks() {
            let first = self.frames(function, addresses).find(|(_, bytes)| *bytes > 0);
            Kind::Switching {
                first_bytes: first.map_or(0, |(_, bytes)| bytes),
            }
        } else {
            let is_assembly = function.is_assembly();
            Kind::Frame { is_assembly }
        }
    }

    /// From where on the function has how many bytes on the stack.
    fn frames(&self, function: &Function, addresses: &Range<u64>) -> impl Iterator<Item = (u64, i32)> {
        let Range { start, end } = *addresses;
        let frames = self
            .table
            .stack_bytes(function)
            .take_while(move |(address, _)| *address < end);
        frames.map(move |(address, bytes)| (address.max(start), bytes))
    }

    /// Write how the frame grows and shrinks.
    fn write_frame(&self, function: &Function, is_assembly: bool, addresses: &Range<u64>, writer: &mut Writer) {
        let mut first = None;
        for (address, bytes) in self.frames(function, addresses) {
            let is_first = bytes > 0 && first.is_none();
            if is_first {
                let is_saved = !is_assembly || self.is_saved(address, bytes);
                first = Some(is_saved.then_some(bytes));
            }
            let rule = frame(self.image.machine, bytes, first.flatten()).unwrap_or_else(|reason| {
                writer.note(reason);
                Rule::UNSUPPORTED
            });
            if is_first && self.image.machine == Machine::Arm64 {
                writer.set(address, without_frame_pointer(rule));
                writer.set(address + INSTRUCTION_BYTES, rule); // which has saved it
            } else {
                writer.set(address, rule);
            }
        }
    }

    /// While the stack pointer is on another stack, the frame pointer stays where the frame began.
    fn write_switching(&self, function: &Function, first_bytes: i32, addresses: &Range<u64>, writer: &mut Writer) {
        for (address, bytes) in self.frames(function, addresses) {
            let rule = match self.image.machine {
                Machine::X86_64 if bytes == 0 && first_bytes > 0 => Rule::x86_64_frame(8),
                Machine::X86_64 => Rule::FRAME_POINTER,
                Machine::Arm64 if bytes == 0 && first_bytes > 0 => Rule::arm64_leaf(0),
                Machine::Arm64 => Rule {
                    cfa_offset: first_bytes.saturating_add(8),
                    ..Rule::FRAME_POINTER
                },
            };
            writer.set(address, rule);
        }
    }

    /// Whether assembly puts the caller's frame pointer (on arm64 also the return address) where Go's compiler does.
    /// `address` is where the first bytes are on the stack.
    fn is_saved(&self, address: u64, bytes: i32) -> bool {
        let before = |length| self.image.loaded(address.checked_sub(length)?);
        match self.image.machine {
            Machine::X86_64 => {
                let is_pushed = before(1).is_some_and(|code| code[0] == PUSH_FRAME_POINTER);
                let code = self.image.loaded(address).unwrap_or_default();
                let topmost = i64::from(bytes) - 8;
                is_pushed && bytes == 8 || stored_at(code) == Some(topmost)
            }
            Machine::Arm64 => {
                let instruction = before(INSTRUCTION_BYTES).and_then(|code| code.first_chunk());
                instruction.is_some_and(|bytes| {
                    let instruction = u32::from_le_bytes(*bytes);
                    instruction & PUSH_LINK_MASK == PUSH_LINK || instruction == MOVE_STACK_POINTER
                })
            }
        }
    }

    fn is_signal_return(&self, function: &Function) -> bool {
        let code = || self.image.loaded(function.addresses.start);
        function.is_assembly() && code().is_some_and(|code| code.starts_with(self.image.machine.signal_return()))
    }
}

/// Bytes from the stack pointer where this code stores the frame pointer: `mov %rbp, …(%rsp)`, as others save it.
fn stored_at(code: &[u8]) -> Option<i64> {
    match code {
        [0x48, 0x89, 0x2c, 0x24, ..] => Some(0),
        [0x48, 0x89, 0x6c, 0x24, offset, ..] => Some((*offset as i8).into()),
        [0x48, 0x89, 0xac, 0x24, a, b, c, d, ..] => Some(i32::from_le_bytes([*a, *b, *c, *d]).into()),
        _ => None,
    }
}

/// The rule where so many bytes are on the stack. `saved`: how many were there when the caller's frame pointer, and on
/// arm64 the return address, had just been put there; None when they are not.
fn frame(machine: Machine, bytes: i32, saved: Option<i32>) -> Result<Rule, Reason> {
    match (machine, saved) {
        _ if bytes < 0 => Err(Reason::ReturnAddress), // taken from the stack
        (Machine::Arm64, _) if bytes == 0 => Ok(Rule::arm64_leaf(0)),
        (Machine::Arm64, None) => Err(Reason::ReturnAddress),
        (Machine::Arm64, Some(first)) => {
            let lowest = i16::try_from(-first).map_err(|_| Reason::Offset)?;
            Ok(Rule {
                return_address: ReturnAddress::AT_CFA,
                return_address_offset: lowest,
                frame_pointer: FramePointer::AT_CFA,
                frame_pointer_offset: lowest.checked_sub(8).ok_or(Reason::Offset)?,
                ..Rule::arm64_leaf(bytes)
            })
        }
        (Machine::X86_64, saved) => {
            let rule = Rule::x86_64_frame(bytes.checked_add(8).ok_or(Reason::Offset)?);
            Ok(match saved {
                Some(_) if bytes > 0 => Rule {
                    frame_pointer: FramePointer::AT_CFA,
                    frame_pointer_offset: -16,
                    ..rule
                },
                _ => rule,
            })
        }
    }
}

fn without_frame_pointer(rule: Rule) -> Rule {
    Rule {
        frame_pointer: FramePointer::SAME,
        frame_pointer_offset: 0,
        ..rule
    }
}

impl Layer for Go<'_, '_> {
    fn next(&mut self, gap: &Range<u64>, _writer: &mut Writer) -> Option<Range<u64>> {
        while let Some(function) = self.table.function(self.next) {
            if function.addresses.start >= gap.end {
                return None;
            }
            self.next += 1;
            let is_new = function.addresses.start >= self.given;
            let addresses = function.addresses.start.max(gap.start)..function.addresses.end.min(gap.end);
            if is_new && !addresses.is_empty() {
                self.given = addresses.end;
                self.current = Some(function);
                return Some(addresses);
            }
        }
        None
    }

    fn write(&mut self, addresses: &Range<u64>, writer: &mut Writer) {
        let Some(function) = self.current.take() else {
            return;
        };
        match self.kind(&function, addresses) {
            Kind::Everywhere(rule) => writer.set(addresses.start, rule),
            Kind::Frame { is_assembly } => self.write_frame(&function, is_assembly, addresses, writer),
            Kind::Switching { first_bytes } => self.write_switching(&function, first_bytes, addresses, writer),
        }
        let next = self.table.function(self.next);
        if next.is_some_and(|next| next.addresses.start == addresses.end && self.is_signal_return(&next)) {
            writer.set(addresses.end - 1, Rule::SIGNAL); // a walk looks at the byte before what is returned to
        }
    }
}
