//! Every rule of real files against gimli's own evaluation of the same call frame information: on registers and memory
//! made up for the purpose, both must come to the same caller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, Evaluation, EvaluationResult, Expression,
    FrameDescriptionEntry, LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection, UnwindTableRow, Value,
    Vendor,
};
use object::{Architecture, Object, ObjectSection};
use stackhound_core::address::ObjectAddr;
use stackhound_core::unwind::{self, Cfa, FramePointer, ReturnAddress, Rule, Table};

type Slice<'f> = EndianSlice<'f, LittleEndian>;

/// Where the same rules come from, on most machines and in most packages of them.
const FILES: [&str; 7] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libm.so.6",
    "/usr/bin/python3",
    "/usr/bin/node",
];

/// DWARF's numbers of frame pointer, stack pointer and return address.
#[derive(Clone, Copy)]
struct Numbers {
    fp: Register,
    sp: Register,
    ra: Register,
}

const X86_64: Numbers = Numbers {
    fp: gimli::X86_64::RBP,
    sp: gimli::X86_64::RSP,
    ra: gimli::X86_64::RA,
};
const ARM64: Numbers = Numbers {
    fp: gimli::AArch64::X29,
    sp: gimli::AArch64::SP,
    ra: gimli::AArch64::X30,
};

/// What a walk finds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    Caller {
        cfa: u64,
        return_address: u64,
        frame_pointer: Option<u64>,
    },
    Root,
    Unknown,
}

/// A register's value: no two are equal, and all are far apart.
fn register(number: Register) -> u64 {
    0x1000_0000 * (u64::from(number.0) + 1)
}

/// What a word of memory holds.
fn memory(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// One function, with what its rules depend on.
struct Function<'f, 's, S> {
    section: &'s S,
    entry: &'s FrameDescriptionEntry<Slice<'f>>,
    numbers: Numbers,
    ip: u64,
}

impl<'f, S: UnwindSection<Slice<'f>>> Function<'f, '_, S> {
    fn register(&self, number: Register) -> u64 {
        if number == gimli::X86_64::RA && self.numbers.ra == number {
            self.ip
        } else {
            register(number)
        }
    }

    fn evaluate(&self, expression: Expression<Slice<'f>>, cfa: Option<u64>) -> u64 {
        let mut evaluation: Evaluation<_> = expression.evaluation(self.entry.cie().encoding());
        cfa.into_iter().for_each(|cfa| evaluation.set_initial_value(cfa));
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic(memory(address)))
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register)))
                }
                other => panic!("{other:?}"),
            }
            .unwrap();
        }
        evaluation.value_result().unwrap().to_u64(u64::MAX).unwrap()
    }

    fn saved(&self, rule: RegisterRule<usize>, number: Register, cfa: u64) -> Option<u64> {
        match rule {
            RegisterRule::Undefined => None,
            RegisterRule::SameValue => Some(self.register(number)),
            RegisterRule::Offset(offset) => Some(memory(cfa.wrapping_add_signed(offset))),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Register(other) => Some(self.register(other)),
            RegisterRule::Expression(place) => Some(memory(self.evaluate(place.get(self.section).unwrap(), Some(cfa)))),
            RegisterRule::ValExpression(value) => Some(self.evaluate(value.get(self.section).unwrap(), Some(cfa))),
            other => panic!("{other:?}"),
        }
    }

    /// What gimli's row comes to.
    fn caller(&self, row: &UnwindTableRow<usize>) -> Found {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => self.register(*register).wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => self.evaluate(expression.get(self.section).unwrap(), None),
        };
        let rule = |number| rule_of(row, number);
        match self.saved(rule(self.numbers.ra), self.numbers.ra, cfa) {
            None => Found::Root,
            Some(return_address) => Found::Caller {
                cfa,
                return_address,
                frame_pointer: self.saved(rule(self.numbers.fp), self.numbers.fp, cfa),
            },
        }
    }
}

/// gimli names only those registers that are not the same as before.
fn rule_of(row: &UnwindTableRow<usize>, number: Register) -> RegisterRule<usize> {
    row.register(number).unwrap_or(RegisterRule::SameValue)
}

/// What our rule comes to.
fn follow(rule: &Rule, numbers: Numbers, ip: u64) -> Found {
    let (sp, fp, other) = (
        register(numbers.sp),
        register(numbers.fp),
        Register(rule.cfa_register.into()),
    );
    let stored = |base: u64| memory(base.wrapping_add_signed(rule.cfa_indirect_offset.into()));
    let base = match rule.cfa {
        Cfa::SP => sp,
        Cfa::FP => fp,
        Cfa::REGISTER => register(other),
        Cfa::AT_SP => stored(sp),
        Cfa::AT_FP => stored(fp),
        Cfa::AT_REGISTER => stored(register(other)),
        Cfa::PLT => sp + if ip & 15 >= rule.cfa_register.into() { 8 } else { 0 },
        Cfa::SIGNAL if numbers.ra == gimli::X86_64::RA => return signal(sp),
        Cfa::END => return Found::Root,
        _ => return Found::Unknown,
    };
    let cfa = base.wrapping_add_signed(rule.cfa_offset.into());
    let at_cfa = |offset: i16| memory(cfa.wrapping_add_signed(offset.into()));
    Found::Caller {
        cfa,
        return_address: match rule.return_address {
            ReturnAddress::IN_REGISTER => register(gimli::Register(rule.return_address_offset as u16)),
            _ => at_cfa(rule.return_address_offset),
        },
        frame_pointer: match rule.frame_pointer {
            FramePointer::SAME => Some(fp),
            FramePointer::AT_CFA => Some(at_cfa(rule.frame_pointer_offset)),
            FramePointer::AT_FP => Some(memory(fp.wrapping_add_signed(rule.frame_pointer_offset.into()))),
            _ => None,
        },
    }
}

/// What the kernel of x86-64 pushes (`struct rt_sigframe`, after the return address is gone).
fn signal(sp: u64) -> Found {
    Found::Caller {
        cfa: memory(sp + 160),
        return_address: memory(sp + 168),
        frame_pointer: Some(memory(sp + 120)),
    }
}

/// How many rows were compared, and how many of them we cannot say.
#[derive(Debug, Default)]
struct Compared {
    rows: usize,
    unsupported: usize,
    lost_frame_pointers: usize,
    lost_base_pointers: usize,
    is_go: bool,
}

/// Compare all functions of a section; where one begins, those before it end.
fn compare<'f, S: UnwindSection<Slice<'f>>>(
    table: &Table,
    section: &S,
    bases: &BaseAddresses,
    numbers: Numbers,
    compared: &mut Compared,
) {
    let mut functions = BTreeMap::new();
    let mut entries = section.entries(bases);
    while let Some(entry) = entries.next().unwrap() {
        if let CieOrFde::Fde(partial) = entry {
            let entry = partial.parse(S::cie_from_offset).unwrap();
            functions.insert(entry.initial_address(), entry);
        }
    }
    let mut context = UnwindContext::new();
    for (start, entry) in &functions {
        let limit = functions.range(start + 1..).next().map_or(u64::MAX, |(next, _)| *next);
        let mut rows = entry.rows(section, bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let end = row.end_address().min(limit).min(entry.end_address());
            if row.start_address() < end {
                for ip in [row.start_address(), end - 1] {
                    let function = Function {
                        section,
                        entry,
                        numbers,
                        ip,
                    };
                    compare_row(table, &function, row, compared);
                }
            }
        }
    }
}

fn compare_row<'f, S: UnwindSection<Slice<'f>>>(
    table: &Table,
    function: &Function<'f, '_, S>,
    row: &UnwindTableRow<usize>,
    compared: &mut Compared,
) {
    compared.rows += 1;
    let ip = function.ip;
    let rule = table
        .rule_at(ObjectAddr(ip))
        .unwrap_or_else(|| panic!("nothing known at {ip:#x}, where {row:?}"));
    if compared.is_go && !is_said_by_go(rule, function.numbers) {
        return;
    }
    let (mut ours, theirs) = (follow(rule, function.numbers, ip), function.caller(row));
    if let Found::Caller { frame_pointer, .. } = &mut ours
        && compared.is_go
    {
        *frame_pointer = None; // of which Go says nothing
    }
    match (ours, theirs) {
        (Found::Caller { .. }, Found::Root) if compared.is_go => {} // a signal handler: we go on below it
        (Found::Unknown, _) => {
            assert_eq!(*rule, Rule::UNSUPPORTED);
            compared.unsupported += 1;
        }
        (
            Found::Caller {
                cfa,
                return_address,
                frame_pointer: None,
            },
            Found::Caller {
                cfa: their_cfa,
                return_address: their_address,
                ..
            },
        ) => {
            assert_eq!(
                (cfa, return_address),
                (their_cfa, their_address),
                "at {ip:#x}: {rule:?}, {row:?}"
            );
            compared.lost_frame_pointers += 1;
        }
        _ => assert_eq!(ours, theirs, "at {ip:#x}: {rule:?}, {row:?}"),
    }
    if let (Found::Caller { cfa, .. }, true) = (ours, function.numbers.ra == X86_64.ra && !compared.is_go) {
        compare_base_pointer(rule, function, row, cfa, compared);
    }
}

fn compare_base_pointer<'f, S: UnwindSection<Slice<'f>>>(
    rule: &Rule,
    function: &Function<'f, '_, S>,
    row: &UnwindTableRow<usize>,
    cfa: u64,
    compared: &mut Compared,
) {
    let ours = match rule.base_pointer_offset {
        _ if rule.cfa == Cfa::SIGNAL => return,
        Rule::BASE_POINTER_LOST => {
            compared.lost_base_pointers += 1;
            return;
        }
        0 => register(gimli::X86_64::RBX),
        offset => memory(cfa.wrapping_add_signed(offset.into())),
    };
    let theirs = function.saved(rule_of(row, gimli::X86_64::RBX), gimli::X86_64::RBX, cfa);
    assert_eq!(Some(ours), theirs, "at {:#x}: {rule:?}, {row:?}", function.ip);
}

/// Whether Go's linker describes such code as it is. Roots, signal frames and changes of stacks it does not describe. On
/// arm64 it takes the return address for lost where it is in its register, and for moved where assembly takes more of
/// the stack than its frame.
fn is_said_by_go(rule: &Rule, numbers: Numbers) -> bool {
    let is_in_frame = rule.return_address == ReturnAddress::AT_CFA;
    let is_lowest = i32::from(rule.return_address_offset) == -rule.cfa_offset;
    let is_described = ![Cfa::END, Cfa::SIGNAL, Cfa::FRAME_POINTER].contains(&rule.cfa);
    is_described && (numbers.ra != ARM64.ra || is_in_frame && is_lowest)
}

fn compare_file(path: &Path) -> Compared {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let (numbers, vendor) = match file.architecture() {
        Architecture::Aarch64 => (ARM64, Vendor::AArch64),
        _ => (X86_64, Vendor::Default),
    };
    let table = unwind::build(&bytes).unwrap();
    let section = |name| {
        let section = file.section_by_name(name)?;
        Some((section.address(), section.uncompressed_data().unwrap()))
    };
    let mut compared = Compared {
        is_go: file
            .sections()
            .any(|section| section.name().is_ok_and(|name| name.ends_with(".gopclntab"))),
        ..Compared::default()
    };
    if let Some((address, data)) = section(".eh_frame") {
        let mut section = EhFrame::new(&data, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(vendor);
        let bases = BaseAddresses::default().set_eh_frame(address);
        compare(&table, &section, &bases, numbers, &mut compared);
    }
    if let Some((_, data)) = section(".debug_frame") {
        let mut section = DebugFrame::new(&data, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(vendor);
        compare(&table, &section, &BaseAddresses::default(), numbers, &mut compared);
    }
    compared
}

/// Programs and libraries of this machine, as many as there are, this program, and what `UNWIND_FILES` names, like the
/// files of another machine (`:` between them).
#[test]
fn rules_are_those_that_gimli_finds() {
    let ourselves = std::env::current_exe().unwrap();
    let more = std::env::var_os("UNWIND_FILES").unwrap_or_default();
    let there = FILES.iter().map(PathBuf::from).filter(|path| path.exists());
    for path in there
        .chain([ourselves])
        .chain(std::env::split_paths(&more).filter(|path| path.exists()))
    {
        let path = path.as_path();
        let compared = compare_file(path);
        println!("{}: {compared:?}", path.display());
        assert!(compared.rows > 1000, "{}", path.display());
        assert!(
            compared.unsupported * 100 <= compared.rows,
            "{}: {compared:?}",
            path.display()
        );
    }
}

/// A Go program, where Go is installed: what the rules come from is Go's own table, and its linker's debug information
/// says the same. Without that, and without symbols, they are still the same rules.
#[test]
fn rules_of_go_are_those_that_its_linker_says() {
    let directory = tempfile::tempdir().unwrap();
    let program = |flags: &str| -> Option<PathBuf> {
        let (source, output) = (
            directory.path().join("main.go"),
            directory.path().join(format!("go{flags}")),
        );
        std::fs::write(&source, "package main\nfunc main() { go println(1); println(2) }\n").unwrap();
        let mut command = Command::new("go");
        command
            .args(["build", &format!("-ldflags={flags}"), "-o"])
            .arg(&output)
            .arg(&source);
        command.status().ok()?.success().then_some(output)
    };
    let (Some(whole), Some(stripped)) = (program(""), program("-s -w")) else {
        return eprintln!("skipped: go is not installed");
    };
    let compared = compare_file(&whole);
    assert!(compared.is_go && compared.rows > 1000, "{compared:?}");
    let table = |path| unwind::build(&std::fs::read(path).unwrap()).unwrap();
    let (whole, stripped) = (table(whole), table(stripped));
    assert!(whole.rules.contains(&Rule::SIGNAL) && whole.rules.contains(&Rule::FRAME_POINTER));
    assert_eq!(whole.statistics.functions, stripped.statistics.functions);
    assert_eq!(whole.rows.len(), stripped.rows.len());
}
