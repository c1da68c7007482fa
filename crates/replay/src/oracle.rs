//! An independent unwinder: gimli evaluates the call frame information of the very files, with all registers.

use std::collections::HashMap;

use gimli::{
    CfaRule, Encoding, EvaluationResult, Format, Register, RegisterRule, UnwindContext, UnwindExpression, Value,
};
use stackhound_capture::abi::MAX_STACK_FRAMES;

use crate::elf::{ElfFile, Row};
use crate::registers::SCRATCH;
use crate::{Case, End, FP, Memory, REGISTERS, Replay, SP, Stack};

/// Of expressions in `.eh_frame`.
const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: Format::Dwarf32,
    version: 4,
};

/// A frame: None for registers that are not known.
#[derive(Clone, Debug)]
struct Frame {
    ip: u64,
    registers: [Option<u64>; REGISTERS],
    /// The instruction pointer is behind a call.
    is_call: bool,
}

impl Frame {
    fn sp(&self) -> u64 {
        self.registers[SP].expect("each step gives one")
    }

    /// Where the call is that this frame is in.
    fn place(&self) -> u64 {
        self.ip.wrapping_sub(self.is_call.into())
    }

    fn register(&self, register: Register) -> Result<u64, End> {
        let known = self.registers.get(usize::from(register.0)).copied().flatten();
        known.ok_or(End::Unsupported)
    }
}

/// The unwinder, with the files that it has seen.
#[derive(Default)]
pub struct Oracle {
    files: HashMap<u32, Option<ElfFile>>,
    context: Box<UnwindContext<usize>>,
}

impl Oracle {
    /// The frames of a case, and how many of them were found without a step by frame pointers, of which nobody can say
    /// whether they are right.
    pub fn walk(&mut self, replay: &Replay, case: &mut Case) -> (Stack, usize) {
        let mut frame = Frame {
            ip: case.registers.ip,
            registers: case.registers.general.map(Some),
            is_call: false,
        };
        let mut stack = Stack {
            addresses: vec![frame.ip],
            end: End::Truncated,
            lack: None,
        };
        let mut certain = None;
        loop {
            let (caller, is_certain) = self.caller(replay, case, &frame);
            frame = match caller {
                Ok(caller) => caller,
                Err(end) => return ended(stack, end, certain),
            };
            if !is_certain {
                if case.code_at(frame.place()).is_none() {
                    return ended(stack, End::NoRule, certain);
                }
                certain.get_or_insert(stack.addresses.len());
                stack.lack = Some(End::NoRule);
            }
            if stack.addresses.len() == MAX_STACK_FRAMES {
                return ended(stack, End::Truncated, certain);
            }
            if case.code_at(frame.place()).is_none() {
                return ended(stack, End::OutsideCode, certain);
            }
            stack.addresses.push(frame.ip + u64::from(!frame.is_call));
        }
    }

    /// What is at an address: file, address in the object, function.
    pub fn describe(&mut self, replay: &Replay, case: &Case, address: u64) -> (String, u64, String) {
        let Some((index, in_object)) = self.locate(replay, case, address) else {
            let is_code = case.code_at(address).is_some();
            return (
                if is_code { "code without a file" } else { "no code" }.into(),
                address,
                String::new(),
            );
        };
        let file = self.files[&index].as_ref().expect("it was found");
        let symbol = file.symbol(in_object).unwrap_or_default();
        (replay.path(index).to_owned(), in_object, symbol)
    }

    fn locate(&mut self, replay: &Replay, case: &Case, address: u64) -> Option<(u32, u64)> {
        let code = case.code_at(address)?;
        let index = code.file?;
        let file = self.files.entry(index).or_insert_with(|| {
            let bytes = replay.file(index)?;
            ElfFile::parse(Box::leak(Box::new(bytes))) // kept to the end of the program
        });
        let in_object = file.as_ref()?.address(address - code.start + code.file_offset)?;
        Some((index, in_object))
    }

    /// A frame's caller, and whether that is more than a guess.
    fn caller(&mut self, replay: &Replay, case: &mut Case, frame: &Frame) -> (Result<Frame, End>, bool) {
        let located = self.locate(replay, case, frame.place());
        let row = located.and_then(|(index, address)| {
            let file = self.files[&index].as_ref()?;
            file.row(&mut self.context, address)
        });
        let memory = &mut case.memory;
        match row {
            Some(Ok(row)) => (Step { row, frame, memory }.take(), true),
            Some(Err(end)) => (Err(end), true),
            None => (by_frame_pointer(frame, memory), false),
        }
    }
}

fn ended(mut stack: Stack, end: End, certain: Option<usize>) -> (Stack, usize) {
    stack.end = end;
    let certain = certain.unwrap_or(stack.addresses.len());
    (stack, certain)
}

fn by_frame_pointer(frame: &Frame, memory: &mut Memory) -> Result<Frame, End> {
    let fp = frame.registers[FP]
        .filter(|fp| *fp >= frame.sp() && fp % 8 == 0)
        .ok_or(End::NoRule)?;
    let mut registers = [None; REGISTERS];
    registers[FP] = Some(memory.word(fp).ok_or(End::NoRule)?);
    registers[SP] = Some(fp.wrapping_add(16));
    match memory.word(fp.wrapping_add(8)).ok_or(End::NoRule)? {
        0 => Err(End::Root),
        ip => Ok(Frame {
            ip,
            registers,
            is_call: true,
        }),
    }
}

/// One row, applied to one frame.
struct Step<'a> {
    row: Row<'a>,
    frame: &'a Frame,
    memory: &'a mut Memory,
}

impl Step<'_> {
    fn take(mut self) -> Result<Frame, End> {
        let (return_address, is_signal) = (self.row.return_address, self.row.is_signal);
        let cfa = self.cfa()?;
        if !is_signal && cfa < self.frame.sp() {
            return Err(End::NoProgress);
        }
        let ip = match self.row.rules.register(return_address) {
            Some(RegisterRule::Undefined) => return Err(End::Root),
            Some(rule) => self.value(&rule, return_address, cfa)?,
            None => self.frame.register(return_address)?,
        };
        if ip == 0 {
            return Err(End::Root);
        }
        Ok(Frame {
            ip,
            registers: self.registers(cfa)?,
            is_call: !is_signal,
        })
    }

    fn cfa(&mut self) -> Result<u64, End> {
        let rules = self.row.rules;
        match rules.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Ok(self.frame.register(*register)?.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => self.evaluate(expression, None),
        }
    }

    /// Of the caller. A function changes some as it likes; the others are as they were where nothing else is said.
    fn registers(&mut self, cfa: u64) -> Result<[Option<u64>; REGISTERS], End> {
        let mut registers = self.frame.registers;
        for scratch in SCRATCH {
            registers[scratch] = None;
        }
        registers[SP] = Some(cfa);
        for (number, value) in registers.iter_mut().enumerate() {
            let register = Register(number as u16);
            *value = match self.row.rules.register(register) {
                None => *value,
                Some(RegisterRule::Undefined) => None,
                Some(rule) => Some(self.value(&rule, register, cfa)?),
            };
        }
        Ok(registers)
    }

    fn value(&mut self, rule: &RegisterRule<usize>, register: Register, cfa: u64) -> Result<u64, End> {
        match rule {
            RegisterRule::SameValue => self.frame.register(register),
            RegisterRule::Offset(offset) => self.load(cfa.wrapping_add_signed(*offset)),
            RegisterRule::ValOffset(offset) => Ok(cfa.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => self.frame.register(*other),
            RegisterRule::Expression(expression) => {
                let address = self.evaluate(expression, Some(cfa))?;
                self.load(address)
            }
            RegisterRule::ValExpression(expression) => self.evaluate(expression, Some(cfa)),
            _ => Err(End::Unsupported),
        }
    }

    fn load(&mut self, address: u64) -> Result<u64, End> {
        self.memory.word(address).ok_or(End::Unreadable)
    }

    fn evaluate(&mut self, expression: &UnwindExpression<usize>, initial: Option<u64>) -> Result<u64, End> {
        let expression = self.row.expression(expression).ok_or(End::Unsupported)?;
        let mut evaluation = expression.evaluation(ENCODING);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate();
        loop {
            result = match result.map_err(|_| End::Unsupported)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let mut bytes = [0; 8];
                    let size = usize::from(size).min(bytes.len());
                    if !self.memory.read(address, &mut bytes[..size]) {
                        return Err(End::Unreadable);
                    }
                    evaluation.resume_with_memory(Value::Generic(u64::from_ne_bytes(bytes)))
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register_or_ip(register)?))
                }
                _ => return Err(End::Unsupported),
            };
        }
        let value = evaluation.value_result().ok_or(End::Unsupported)?;
        value.to_u64(u64::MAX).map_err(|_| End::Unsupported)
    }

    /// PLT entries ask for the instruction pointer, which x86-64 numbers as one behind the general registers.
    fn register_or_ip(&self, register: Register) -> Result<u64, End> {
        if cfg!(target_arch = "x86_64") && usize::from(register.0) == REGISTERS {
            return Ok(self.frame.ip);
        }
        self.frame.register(register)
    }
}
