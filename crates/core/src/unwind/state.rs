//! Call frame instructions, executed as far as a walk needs them: for the CFA, the frame pointer, the return address, and
//! the base pointer, from which few functions count.

use gimli::constants::{self as dwarf, DwCfa};
use gimli::{Reader, ReaderOffset, Register};

use super::entries::{Cie, read_uleb};
use super::statistics::Reason;
use crate::image::{Machine, Slice};

/// States that a function may remember at once. Compilers nest two.
const MAX_REMEMBERED: usize = 16;

/// Where the CFA is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CfaAt<'f> {
    Register { register: Register, offset: i64 },
    Expression(Slice<'f>),
}

/// Where a register's value before the call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saved<'f> {
    Same,
    Undefined,
    AtCfa(i64),
    AtExpression(Slice<'f>),
    InRegister(Register),
    /// Computed.
    Otherwise,
}

/// What holds for a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State<'f> {
    pub(super) cfa: CfaAt<'f>,
    pub(super) frame_pointer: Saved<'f>,
    pub(super) return_address: Saved<'f>,
    pub(super) base_pointer: Saved<'f>,
}

impl State<'_> {
    /// Before the first instruction of a CIE: registers are kept, and there is no CFA.
    const START: Self = Self {
        cfa: CfaAt::Register {
            register: Register(u16::MAX),
            offset: 0,
        },
        frame_pointer: Saved::Same,
        return_address: Saved::Same,
        base_pointer: Saved::Same,
    };
}

/// What an instruction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More instructions for the same address may follow.
    Done,
    /// What follows is the state from so many bytes further on.
    Advance(u64),
    /// What follows is the state from this address on.
    Locate(u64),
}

/// Executes the instructions of one function after the other.
#[derive(Debug)]
pub(super) struct Executor<'f> {
    state: State<'f>,
    /// Whether the state was changed since the last time that somebody asked.
    is_changed: bool,
    initial: State<'f>,
    remembered: Vec<State<'f>>,
    frame_pointer: Register,
    base_pointer: Option<Register>,
}

impl<'f> Executor<'f> {
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            state: State::START,
            is_changed: true,
            initial: State::START,
            remembered: Vec::with_capacity(MAX_REMEMBERED),
            frame_pointer: machine.frame_pointer(),
            base_pointer: machine.base_pointer(),
        }
    }

    /// What a CIE's own instructions come to.
    pub(super) fn initial_state(&mut self, cie: &Cie<'f>) -> Result<State<'f>, Reason> {
        self.begin(State::START);
        let mut instructions = cie.instructions;
        while !instructions.is_empty() {
            self.step(&mut instructions, cie)?;
        }
        Ok(self.state)
    }

    /// Begin a function, with the state that its CIE gives.
    pub(super) fn begin(&mut self, initial: State<'f>) {
        self.state = initial;
        self.is_changed = true;
        self.initial = initial;
        self.remembered.clear();
    }

    /// The state, if it is another one than the last time.
    pub(super) fn take_change(&mut self) -> Option<&State<'f>> {
        std::mem::take(&mut self.is_changed).then_some(&self.state)
    }

    /// Execute the next instruction.
    #[inline]
    pub(super) fn step(&mut self, input: &mut Slice<'f>, cie: &Cie<'f>) -> Result<Step, Reason> {
        let opcode = input.read_u8()?;
        let operand = opcode & 0x3f;
        match DwCfa(opcode & 0xc0) {
            dwarf::DW_CFA_advance_loc => return Ok(advance(operand.into(), cie)),
            dwarf::DW_CFA_offset => {
                let offset = factored(read_uleb(input)? as i64, cie);
                self.save(Register(operand.into()), Saved::AtCfa(offset), cie);
            }
            dwarf::DW_CFA_restore => self.restore(Register(operand.into()), cie),
            _ => return self.extended(DwCfa(opcode), input, cie),
        }
        Ok(Step::Done)
    }

    /// Instructions that take a byte without their operands: those that move on, and those of the CFA.
    fn extended(&mut self, opcode: DwCfa, input: &mut Slice<'f>, cie: &Cie<'f>) -> Result<Step, Reason> {
        match opcode {
            dwarf::DW_CFA_advance_loc1 => return Ok(advance(input.read_u8()?.into(), cie)),
            dwarf::DW_CFA_advance_loc2 => return Ok(advance(input.read_u16()?.into(), cie)),
            dwarf::DW_CFA_advance_loc4 => return Ok(advance(input.read_u32()?.into(), cie)),
            dwarf::DW_CFA_set_loc => return Ok(Step::Locate(cie.read_address(input)?)),
            dwarf::DW_CFA_remember_state => self.remember()?,
            dwarf::DW_CFA_restore_state => {
                self.state = self.remembered.pop().ok_or(Reason::Malformed)?;
                self.is_changed = true;
            }
            dwarf::DW_CFA_GNU_args_size => input.skip_leb128()?,
            dwarf::DW_CFA_nop | dwarf::DW_CFA_AARCH64_negate_ra_state => {}
            dwarf::DW_CFA_def_cfa
            | dwarf::DW_CFA_def_cfa_sf
            | dwarf::DW_CFA_def_cfa_register
            | dwarf::DW_CFA_def_cfa_offset
            | dwarf::DW_CFA_def_cfa_offset_sf
            | dwarf::DW_CFA_def_cfa_expression => {
                self.state.cfa = self.define_cfa(opcode, input, cie)?;
                self.is_changed = true;
            }
            _ => self.extended_save(opcode, input, cie)?,
        }
        Ok(Step::Done)
    }

    /// What the CFA is after one of its instructions. Some change only its register or offset.
    fn define_cfa(&self, opcode: DwCfa, input: &mut Slice<'f>, cie: &Cie) -> Result<CfaAt<'f>, Reason> {
        if opcode == dwarf::DW_CFA_def_cfa_expression {
            return Ok(CfaAt::Expression(read_expression(input)?));
        }
        let (register, offset) = match (opcode, self.state.cfa) {
            (dwarf::DW_CFA_def_cfa, _) => (read_register(input)?, read_uleb(input)? as i64),
            (dwarf::DW_CFA_def_cfa_sf, _) => (read_register(input)?, factored(input.read_sleb128()?, cie)),
            (_, CfaAt::Expression(_)) => return Err(Reason::Malformed),
            (dwarf::DW_CFA_def_cfa_register, CfaAt::Register { offset, .. }) => (read_register(input)?, offset),
            (dwarf::DW_CFA_def_cfa_offset, CfaAt::Register { register, .. }) => (register, read_uleb(input)? as i64),
            (_, CfaAt::Register { register, .. }) => (register, factored(input.read_sleb128()?, cie)),
        };
        Ok(CfaAt::Register { register, offset })
    }

    /// Instructions of one register.
    fn extended_save(&mut self, opcode: DwCfa, input: &mut Slice<'f>, cie: &Cie<'f>) -> Result<(), Reason> {
        let register = read_register(input)?;
        let saved = match opcode {
            dwarf::DW_CFA_offset_extended => Saved::AtCfa(factored(read_uleb(input)? as i64, cie)),
            dwarf::DW_CFA_offset_extended_sf => Saved::AtCfa(factored(input.read_sleb128()?, cie)),
            dwarf::DW_CFA_undefined => Saved::Undefined,
            dwarf::DW_CFA_same_value => Saved::Same,
            dwarf::DW_CFA_expression => Saved::AtExpression(read_expression(input)?),
            dwarf::DW_CFA_restore_extended => {
                self.restore(register, cie);
                return Ok(());
            }
            dwarf::DW_CFA_register => Saved::InRegister(read_register(input)?),
            dwarf::DW_CFA_val_offset | dwarf::DW_CFA_val_offset_sf => {
                input.skip_leb128()?;
                Saved::Otherwise
            }
            dwarf::DW_CFA_val_expression => {
                read_expression(input)?;
                Saved::Otherwise
            }
            _ => return Err(Reason::Malformed),
        };
        self.save(register, saved, cie);
        Ok(())
    }

    fn save(&mut self, register: Register, saved: Saved<'f>, cie: &Cie) {
        if register == cie.return_address {
            self.state.return_address = saved;
            self.is_changed = true;
        } else if register == self.frame_pointer {
            self.state.frame_pointer = saved;
            self.is_changed = true;
        } else if Some(register) == self.base_pointer {
            self.state.base_pointer = saved;
            self.is_changed = true;
        }
    }

    fn restore(&mut self, register: Register, cie: &Cie) {
        if register == cie.return_address {
            self.save(register, self.initial.return_address, cie);
        } else if register == self.frame_pointer {
            self.save(register, self.initial.frame_pointer, cie);
        } else if Some(register) == self.base_pointer {
            self.save(register, self.initial.base_pointer, cie);
        }
    }

    fn remember(&mut self) -> Result<(), Reason> {
        if self.remembered.len() == MAX_REMEMBERED {
            return Err(Reason::TooMany);
        }
        self.remembered.push(self.state);
        Ok(())
    }
}

fn advance(delta: u64, cie: &Cie) -> Step {
    Step::Advance(cie.code_alignment.wrapping_mul(delta))
}

fn factored(offset: i64, cie: &Cie) -> i64 {
    offset.wrapping_mul(cie.data_alignment)
}

fn read_register(input: &mut Slice) -> Result<Register, Reason> {
    Ok(Register(read_uleb(input)?.try_into().map_err(|_| Reason::Malformed)?))
}

fn read_expression<'f>(input: &mut Slice<'f>) -> Result<Slice<'f>, Reason> {
    let bytes = read_uleb(input)?;
    Ok(input.split(usize::from_u64(bytes)?)?)
}
