//! From what call frame instructions came to, to a rule of 16 bytes.

use gimli::Register;

use super::entries::Cie;
use super::expression::{Value, evaluate};
use super::rule::{Cfa, FramePointer, ReturnAddress, Rule};
use super::state::{CfaAt, Saved, State};
use super::statistics::Reason;
use crate::image::Machine;

/// The frame that the kernel pushes for a signal handler on x86-64, from the stack pointer: the saved registers
/// (`struct sigcontext`) begin at byte 40.
const SIGNAL_SP: i64 = 40 + 15 * 8;
const SIGNAL_IP: i64 = 40 + 16 * 8;

/// The rule for a state; also the reason why it loses something, if it does.
pub(super) fn rule(state: &State, cie: &Cie, machine: Machine) -> (Rule, Option<Reason>) {
    if state.return_address == Saved::Undefined {
        return (Rule::END, None);
    }
    if cie.is_signal_frame && is_signal(state, machine) {
        return (Rule::SIGNAL, None);
    }
    convert(state, machine).unwrap_or_else(|reason| (Rule::UNSUPPORTED, Some(reason)))
}

fn convert(state: &State, machine: Machine) -> Result<(Rule, Option<Reason>), Reason> {
    let (return_address, return_address_offset) = return_address(state.return_address, machine)?;
    let ((frame_pointer, frame_pointer_offset), lost) = match frame_pointer(state.frame_pointer, machine) {
        Ok(place) => (place, None),
        Err(reason) => ((FramePointer::UNDEFINED, 0), Some(reason)),
    };
    let cfa = cfa(state.cfa, machine)?;
    if matches!(state.return_address, Saved::InRegister(_)) && cfa.cfa != Cfa::SP {
        return Err(Reason::ReturnAddress); // longjmp: to another stack
    }
    let rule = Rule {
        return_address,
        return_address_offset,
        frame_pointer,
        frame_pointer_offset,
        base_pointer_offset: base_pointer_offset(state.base_pointer),
        ..cfa
    };
    Ok((rule, lost))
}

fn cfa(cfa: CfaAt, machine: Machine) -> Result<Rule, Reason> {
    let value = match cfa {
        CfaAt::Register { register, offset } => Value::Register { register, offset },
        CfaAt::Expression(expression) => evaluate(expression).ok_or(Reason::CfaExpression)?,
    };
    match value {
        Value::Register { register, offset } => based_on(
            register,
            machine,
            [Cfa::SP, Cfa::FP, Cfa::REGISTER],
            Rule {
                cfa_offset: narrow(offset)?,
                ..Rule::NONE
            },
        ),
        Value::Stored {
            register,
            indirect_offset,
            offset,
        } => based_on(
            register,
            machine,
            [Cfa::AT_SP, Cfa::AT_FP, Cfa::AT_REGISTER],
            Rule {
                cfa_indirect_offset: narrow(indirect_offset)?,
                cfa_offset: narrow(offset)?,
                ..Rule::NONE
            },
        ),
        Value::Plt { offset, threshold } => Ok(Rule {
            cfa: Cfa::PLT,
            cfa_register: threshold,
            cfa_offset: narrow(offset)?,
            ..Rule::NONE
        }),
    }
}

/// The kinds of CFA are those by the stack pointer, by the frame pointer, and by another register.
fn based_on(register: Register, machine: Machine, kinds: [Cfa; 3], rule: Rule) -> Result<Rule, Reason> {
    let (cfa, cfa_register) = if register == machine.stack_pointer() {
        (kinds[0], 0)
    } else if register == machine.frame_pointer() {
        (kinds[1], 0)
    } else if register.0 < machine.registers() {
        (kinds[2], register.0 as u8)
    } else {
        return Err(Reason::Malformed);
    };
    Ok(Rule {
        cfa,
        cfa_register,
        ..rule
    })
}

fn return_address(saved: Saved, machine: Machine) -> Result<(ReturnAddress, i16), Reason> {
    match saved {
        Saved::AtCfa(offset) => Ok((ReturnAddress::AT_CFA, narrow(offset)?)),
        Saved::Same if machine == Machine::Arm64 => Ok((ReturnAddress::IN_REGISTER, Rule::ARM64_LINK_REGISTER)),
        Saved::InRegister(register) if register.0 < machine.registers() => {
            Ok((ReturnAddress::IN_REGISTER, register.0 as i16))
        }
        _ => Err(Reason::ReturnAddress),
    }
}

/// An error when it is lost, which matters only to callers that need it.
fn frame_pointer(saved: Saved, machine: Machine) -> Result<(FramePointer, i16), Reason> {
    match saved {
        Saved::Same => Ok((FramePointer::SAME, 0)),
        Saved::Undefined => Ok((FramePointer::UNDEFINED, 0)),
        Saved::AtCfa(offset) => Ok((FramePointer::AT_CFA, narrow(offset)?)),
        Saved::AtExpression(expression) => match evaluate(expression) {
            Some(Value::Register { register, offset }) if register == machine.frame_pointer() => {
                Ok((FramePointer::AT_FP, narrow(offset)?))
            }
            _ => Err(Reason::FramePointer),
        },
        Saved::InRegister(_) | Saved::Otherwise => Err(Reason::FramePointer),
    }
}

/// Whoever needs it finds out that it is lost.
fn base_pointer_offset(saved: Saved) -> i16 {
    match saved {
        Saved::Same => 0,
        Saved::AtCfa(offset) if offset != 0 => narrow(offset).unwrap_or(Rule::BASE_POINTER_LOST),
        _ => Rule::BASE_POINTER_LOST,
    }
}

fn narrow<N: TryFrom<i64>>(offset: i64) -> Result<N, Reason> {
    offset.try_into().map_err(|_| Reason::Offset)
}

/// Whether this is what the kernel pushes. arm64's has one layout, whatever is said of it.
fn is_signal(state: &State, machine: Machine) -> bool {
    let register = machine.stack_pointer();
    match (state.cfa, state.return_address) {
        _ if machine == Machine::Arm64 => true,
        (CfaAt::Expression(cfa), Saved::AtExpression(return_address)) => {
            let sp = Value::Stored {
                register,
                indirect_offset: SIGNAL_SP,
                offset: 0,
            };
            let ip = Value::Register {
                register,
                offset: SIGNAL_IP,
            };
            evaluate(cfa) == Some(sp) && evaluate(return_address) == Some(ip)
        }
        _ => false,
    }
}
