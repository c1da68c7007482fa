//! The general registers, in DWARF's order.

/// How many there are, the stack pointer with them.
#[cfg(target_arch = "x86_64")]
pub const REGISTERS: usize = 16;
/// The frame pointer's number.
#[cfg(target_arch = "x86_64")]
pub const FP: usize = 6;
/// The stack pointer's number.
#[cfg(target_arch = "x86_64")]
pub const SP: usize = 7;
/// Those that a function may change without saying so.
#[cfg(target_arch = "x86_64")]
pub(crate) const SCRATCH: [usize; 9] = [0, 1, 2, 4, 5, 8, 9, 10, 11];

/// How many there are, the stack pointer with them.
#[cfg(target_arch = "aarch64")]
pub const REGISTERS: usize = 32;
/// The frame pointer's number.
#[cfg(target_arch = "aarch64")]
pub const FP: usize = 29;
/// The stack pointer's number.
#[cfg(target_arch = "aarch64")]
pub const SP: usize = 31;
/// Those that a function may change without saying so.
#[cfg(target_arch = "aarch64")]
pub(crate) const SCRATCH: [usize; 19] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18];

/// What a thread had in its registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The next instruction's address.
    pub ip: u64,
    /// The others.
    pub general: [u64; REGISTERS],
}

#[cfg(target_arch = "x86_64")]
impl From<&libc::user_regs_struct> for Registers {
    fn from(from: &libc::user_regs_struct) -> Self {
        Self {
            ip: from.rip,
            general: [
                from.rax, from.rdx, from.rcx, from.rbx, from.rsi, from.rdi, from.rbp, from.rsp, from.r8, from.r9,
                from.r10, from.r11, from.r12, from.r13, from.r14, from.r15,
            ],
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl From<&libc::user_regs_struct> for Registers {
    fn from(from: &libc::user_regs_struct) -> Self {
        let mut general = [0; REGISTERS];
        general[..31].copy_from_slice(&from.regs);
        general[SP] = from.sp;
        Self { ip: from.pc, general }
    }
}
