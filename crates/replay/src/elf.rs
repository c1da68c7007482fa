//! What the oracle knows of a file: its call frame information, read by gimli alone.

use std::borrow::Cow;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, DebugFrameOffset, EhFrame, EhFrameOffset, EndianSlice, Expression,
    LittleEndian, Register, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow,
};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind, elf};

use crate::End;

pub(crate) type Slice = EndianSlice<'static, LittleEndian>;

/// Functions of Go's runtime that write the stack pointer: Go's own unwinder stops there, since what its compiler says
/// of them is true of only one of the two stacks (SPWRITE in cmd/internal/obj).
const SWITCH_STACKS: [&str; 9] = [
    "runtime.asmcgocall.abi0",
    "runtime.gogo",
    "runtime.mcall",
    "runtime.morestack.abi0",
    "runtime.mstart.abi0",
    "runtime.nanotime1.abi0",
    "runtime.rt0_go.abi0",
    "runtime.systemstack.abi0",
    "runtime.walltime.abi0",
];

/// A file's functions.
pub(crate) struct ElfFile {
    file: object::File<'static>,
    eh_frame: EhFrame<Slice>,
    debug_frame: DebugFrame<Slice>,
    bases: BaseAddresses,
    /// By address.
    functions: Vec<Function>,
    /// Where those begin that switch stacks.
    switches: Vec<u64>,
}

/// Where a function is, and its entry.
#[derive(Clone, Copy)]
struct Function {
    start: u64,
    end: u64,
    entry: Entry,
}

#[derive(Clone, Copy)]
enum Entry {
    Eh(EhFrameOffset),
    Debug(DebugFrameOffset),
}

/// What is said of an address.
pub(crate) struct Row<'c> {
    pub(crate) rules: &'c UnwindTableRow<usize>,
    pub(crate) return_address: Register,
    pub(crate) is_signal: bool,
    /// That expressions lie in.
    section: Slice,
}

impl Row<'_> {
    pub(crate) fn expression(&self, at: &UnwindExpression<usize>) -> Option<Expression<Slice>> {
        let rest = self.section.slice().get(at.offset..at.offset.checked_add(at.length)?)?;
        Some(Expression(EndianSlice::new(rest, LittleEndian)))
    }
}

impl ElfFile {
    /// None for what is no ELF file.
    pub(crate) fn parse(bytes: &'static [u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let (address, eh_frame) = section(&file, ".eh_frame");
        let (_, debug_frame) = section(&file, ".debug_frame");
        let mut debug_frame = DebugFrame::from(debug_frame);
        debug_frame.set_address_size(8);
        let mut found = Self {
            eh_frame: EhFrame::from(eh_frame),
            debug_frame,
            bases: BaseAddresses::default().set_eh_frame(address),
            functions: Vec::new(),
            switches: Vec::new(),
            file,
        };
        found.functions = functions(&found.eh_frame, &found.bases, Entry::Eh);
        if found.functions.is_empty() {
            found.functions = functions(&found.debug_frame, &found.bases, Entry::Debug); // Go has nothing else
            found.switches = found.addresses_of(&SWITCH_STACKS);
        }
        found.functions.sort_unstable_by_key(|function| function.start);
        Some(found)
    }

    /// What is said of an address of the object. None when nothing is; an error when that does not help.
    pub(crate) fn row<'c>(&self, context: &'c mut UnwindContext<usize>, address: u64) -> Option<Result<Row<'c>, End>> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions[..after]
            .last()
            .filter(|function| address < function.end)?;
        if self.switches.contains(&function.start) {
            return Some(Err(End::Unsupported));
        }
        let row = match function.entry {
            Entry::Eh(offset) => row(&self.eh_frame, &self.bases, offset, context, address),
            Entry::Debug(offset) => row(&self.debug_frame, &self.bases, offset, context, address),
        };
        Some(row.map_err(|_| End::Unsupported))
    }

    /// An offset in the file as the object's address.
    pub(crate) fn address(&self, file_offset: u64) -> Option<u64> {
        self.file.segments().filter(is_code).find_map(|segment| {
            let (start, bytes) = segment.file_range();
            let distance = file_offset.checked_sub(start).filter(|distance| *distance < bytes)?;
            Some(segment.address() + distance)
        })
    }

    fn addresses_of(&self, names: &[&str]) -> Vec<u64> {
        let symbols = self.file.symbols();
        let named = symbols.filter(|symbol| symbol.name().is_ok_and(|name| names.contains(&name)));
        named.map(|symbol| symbol.address()).collect()
    }

    /// What the symbol tables call an address.
    pub(crate) fn symbol(&self, address: u64) -> Option<String> {
        let symbols = self.file.symbols().chain(self.file.dynamic_symbols());
        let before = symbols.filter(|it| it.kind() == SymbolKind::Text && it.address() <= address);
        Some(before.max_by_key(|it| it.address())?.name().ok()?.to_owned())
    }
}

fn is_code(segment: &object::Segment<'_, '_>) -> bool {
    matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.contains(elf::PF_X))
}

/// A section's address and contents.
fn section(file: &object::File<'static>, name: &str) -> (u64, Slice) {
    let section = file.section_by_name(name);
    let contents = section.as_ref().and_then(|section| section.uncompressed_data().ok());
    let contents: &'static [u8] = match contents {
        Some(Cow::Borrowed(bytes)) => bytes,
        Some(Cow::Owned(bytes)) => bytes.leak(), // files are kept to the end of the program
        None => &[],
    };
    let address = section.map_or(0, |section| section.address());
    (address, EndianSlice::new(contents, LittleEndian))
}

fn functions<S: UnwindSection<Slice>>(
    section: &S,
    bases: &BaseAddresses,
    entry: fn(S::Offset) -> Entry,
) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(found)) = entries.next() {
        let CieOrFde::Fde(partial) = found else {
            continue;
        };
        if let Ok(function) = partial.parse(S::cie_from_offset)
            && function.len() > 0
        {
            let start = function.initial_address();
            functions.push(Function {
                start,
                end: start.wrapping_add(function.len()),
                entry: entry(S::Offset::from(function.offset())),
            });
        }
    }
    functions
}

fn row<'c, S: UnwindSection<Slice>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    context: &'c mut UnwindContext<usize>,
    address: u64,
) -> Result<Row<'c>, gimli::Error> {
    let function = section.fde_from_offset(bases, offset, S::cie_from_offset)?;
    Ok(Row {
        rules: function.unwind_info_for_address(section, bases, context, address)?,
        return_address: function.cie().return_address_register(),
        is_signal: function.is_signal_trampoline(),
        section: *section.section(),
    })
}
