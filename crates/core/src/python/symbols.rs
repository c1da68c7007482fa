//! The symbols of a file, found without reading all of them where that can be done.

use memchr::memmem;
use object::elf::{FileHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, Sym64};
use object::read::elf::{FileHeader, GnuHashTable, SectionHeader, SectionTable, Sym, SymbolTable, VersionTable};

use crate::Error;

/// Bytes of names to search in a table without an index: 20 MB in Chromium with symbols.
const MAX_NAME_BYTES: u64 = 64 << 20;

/// Places to look at where a name is: on its own, or as the end of longer ones.
const MAX_PLACES: usize = 16;

type Header = FileHeader64<object::LittleEndian>;
const ENDIAN: object::LittleEndian = object::LittleEndian;

/// The symbol tables of an ELF file.
pub(super) struct Symbols<'f> {
    file: &'f [u8],
    sections: SectionTable<'f, Header>,
    exported: SymbolTable<'f, Header>,
    index: Option<GnuHashTable<'f, Header>>,
}

/// Where a symbol is, in the object's own space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl Symbol {
    fn of(symbol: &Sym64<object::LittleEndian>) -> Option<Self> {
        let is_defined = symbol.st_shndx(ENDIAN) != SHN_UNDEF;
        is_defined.then(|| Self {
            address: symbol.st_value(ENDIAN),
            bytes: symbol.st_size(ENDIAN),
        })
    }
}

impl<'f> Symbols<'f> {
    pub(super) fn read(file: &'f [u8]) -> Result<Self, Error> {
        let header = Header::parse(file).map_err(Error::damaged)?;
        header.endian().map_err(Error::damaged)?;
        let sections = header.sections(ENDIAN, file).map_err(Error::damaged)?;
        let exported = sections.symbols(ENDIAN, file, SHT_DYNSYM).map_err(Error::damaged)?;
        let header = sections.gnu_hash_header(ENDIAN, file).ok().flatten();
        let is_sound = header.is_some_and(|header| header.bloom_shift.get(ENDIAN) < u32::BITS); // it shifts a u32
        let index = sections.gnu_hash(ENDIAN, file).ok().flatten().filter(|_| is_sound);
        Ok(Self {
            file,
            sections,
            exported,
            index: index.map(|(index, _)| index),
        })
    }

    /// A symbol that the file offers to others.
    pub(super) fn exported(&self, name: &str) -> Option<Symbol> {
        let Some(index) = &self.index else {
            return self.search(&self.exported, name);
        };
        let (hash, versions) = (object::elf::gnu_hash(name.as_bytes()), VersionTable::default());
        let (_, symbol) = index.find(ENDIAN, name.as_bytes(), hash, None, &self.exported, &versions)?;
        Symbol::of(symbol)
    }

    /// A symbol, also one that the file keeps to itself.
    pub(super) fn any(&self, name: &str) -> Option<Symbol> {
        self.exported(name).or_else(|| self.search(&self.all()?, name))
    }

    /// Those symbols whose name is wanted: none in a file that was stripped.
    pub(super) fn all_that(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Symbol> {
        let table = self.all().unwrap_or_default();
        let is_wanted = |symbol: &&Sym64<_>| symbol.name(ENDIAN, table.strings()).is_ok_and(&is_wanted);
        table
            .symbols()
            .iter()
            .filter(is_wanted)
            .filter_map(Symbol::of)
            .collect()
    }

    /// Where a section is, and what it has in the file.
    pub(super) fn section(&self, name: &str) -> Option<(u64, &'f [u8])> {
        let (_, section) = self.sections.section_by_name(ENDIAN, name.as_bytes())?;
        Some((section.sh_addr(ENDIAN), section.data(ENDIAN, self.file).ok()?))
    }

    /// What the file has at an address.
    pub(super) fn contents(&self, address: u64) -> Option<&'f [u8]> {
        self.sections.iter().find_map(|section| {
            let data = section.data(ENDIAN, self.file).ok()?;
            let distance = address.checked_sub(section.sh_addr(ENDIAN))?;
            let is_loaded = section.sh_addr(ENDIAN) != 0;
            is_loaded.then(|| data.get(usize::try_from(distance).ok()?..))?
        })
    }

    fn all(&self) -> Option<SymbolTable<'f, Header>> {
        let table = self.sections.symbols(ENDIAN, self.file, SHT_SYMTAB).ok()?;
        (!table.is_empty()).then_some(table)
    }

    /// Symbols are only looked at where the name is among the names.
    fn search(&self, table: &SymbolTable<'f, Header>, name: &str) -> Option<Symbol> {
        let names = self.sections.section(table.string_section()).ok()?;
        if names.sh_size(ENDIAN) > MAX_NAME_BYTES {
            return None;
        }
        let names = names.data(ENDIAN, self.file).ok()?;
        let with_end = [name.as_bytes(), b"\0"].concat();
        let places: Vec<_> = memmem::find_iter(names, &with_end).take(MAX_PLACES).collect();
        if places.is_empty() {
            return None;
        }
        let is_named = |symbol: &&Sym64<_>| places.contains(&(symbol.st_name(ENDIAN) as usize));
        table.symbols().iter().filter(is_named).find_map(Symbol::of)
    }
}
