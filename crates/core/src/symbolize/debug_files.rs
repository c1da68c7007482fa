//! Which files have an object's symbols: its own, and separate debug files.
//!
//! blazesym maps files into memory and follows the links in them. Both are fine for what root installed. Anybody
//! else's file may be cut short while it is mapped, may unfold to more than the memory, or may link to a FIFO: such
//! files are looked over first, copied where they are not ours already, and their links are followed here.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, copy, sink};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use flate2::CrcWriter;
use object::elf::{FileHeader32, FileHeader64, PF_X, PT_LOAD, SHF_COMPRESSED};
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use tempfile::TempDir;
use xz2::read::XzDecoder;
use xz2::stream::Stream;

use crate::elf::build_id_in;

/// Bytes of a file that nobody vouches for: Chromium's debug file has 5 GB, and is not built as a user often.
const MAX_UNTRUSTED_BYTES: u64 = 2 << 30;

/// Bytes that such a file may unfold to: its own size, times what zlib and zstd reach on debug information.
const MAX_UNFOLDED_RATIO: u64 = 16;

/// Bytes of a compressed symbol table (`.gnu_debugdata`), unfolded. Fedora's largest have 20 MB.
const MAX_DEBUGDATA_BYTES: u64 = 128 << 20;

/// Bytes of a note section or a debug link: a path and a checksum.
const MAX_SMALL_SECTION_BYTES: u64 = 8 << 10;

/// Where to look for debug files.
pub(super) struct DebugFiles {
    dirs: Vec<PathBuf>,
}

/// The files to ask for an object's symbols.
#[derive(Debug)]
pub(super) struct Located {
    /// The object's own file.
    pub(super) main: PathBuf,
    /// The file with what was stripped from it, if it was.
    pub(super) debug: Option<PathBuf>,
    /// Whether blazesym may look for debug information, which makes it follow links.
    pub(super) follow_links: bool,
    /// Where the object's code begins.
    pub(super) first_code: u64,
    /// Size of the files.
    pub(super) bytes: u64,
    _held: Held,
}

/// What keeps the paths in [`Located`] valid.
#[derive(Debug, Default)]
struct Held {
    files: Vec<File>,
    dir: Option<TempDir>,
}

/// An object file to locate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// Where to read it.
    pub(super) path: &'a Path,
    /// The directory that it really is in, if it is not trusted.
    pub(super) origin: Option<&'a Path>,
    /// Its real file name.
    pub(super) name: &'a OsStr,
    /// Whether debug information is of interest, or only names.
    pub(super) lines: bool,
}

impl DebugFiles {
    pub(super) fn new(dirs: Vec<PathBuf>) -> Self {
        Self { dirs }
    }

    pub(super) fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// The files of an object, or the reason why there are none.
    pub(super) fn locate(&self, wanted: Wanted) -> Result<Located, &'static str> {
        let file = File::open(wanted.path).map_err(reason)?;
        let mut bytes = file.metadata().map_err(reason)?.len();
        let sections = Sections::read(file)?;
        let trusted = wanted.origin.is_none();
        if !trusted {
            sections.check_size(bytes)?;
        }
        let mut located = Located {
            main: wanted.path.to_owned(),
            debug: None,
            follow_links: trusted || !sections.has_links,
            first_code: sections.first_code,
            bytes,
            _held: Held::default(),
        };
        let stripped = if wanted.lines {
            !sections.has_debug_info
        } else {
            !sections.has_symbols
        };
        if let Some(found) = stripped.then(|| self.find(&wanted, &sections)).flatten() {
            bytes += found.bytes;
            located.follow_links = found.follow_links;
            located.debug = Some(found.path);
            located._held.files.extend(found.held);
        } else if stripped && sections.debug_link.is_some() {
            located.follow_links = false; // the link was refused just now: it leads to another program's file, or none
        }
        located.bytes = bytes;
        if wanted.lines
            && let Some(origin) = wanted.origin
        {
            located.add_package(&origin.join(wanted.name));
        }
        Ok(located)
    }

    fn find(&self, wanted: &Wanted, sections: &Sections) -> Option<Found> {
        let mut candidates: Vec<(PathBuf, bool)> = Vec::new();
        if let Some((first, rest)) = sections.build_id.split_first().filter(|(_, rest)| rest.len() > 6) {
            let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
            candidates.extend(self.dirs.iter().map(|dir| (dir.join(&name), true)));
        }
        if let Some((name, _)) = &sections.debug_link {
            let here = wanted.origin.or(wanted.path.parent()).unwrap_or(Path::new("/"));
            let below_root = here.strip_prefix("/").unwrap_or(here);
            candidates.extend([(here.join(name), false), (here.join(".debug").join(name), false)]);
            candidates.extend(self.dirs.iter().map(|dir| (dir.join(below_root).join(name), true)));
        }
        candidates
            .into_iter()
            .find_map(|(path, shared)| Found::open(path, shared, sections))
    }
}

impl Located {
    /// `NAME.dwp` beside a file that is read through a descriptor: blazesym looks for it beside the path it is given,
    /// so give it one.
    fn add_package(&mut self, original: &Path) {
        let mut package = original.as_os_str().to_owned();
        package.push(".dwp");
        let Some((file, bytes)) = open_untrusted(Path::new(&package)) else {
            return;
        };
        let linked = Sections::read(file)
            .and_then(|sections| sections.check_size(bytes))
            .is_ok()
            .then(|| {
                let (copy, _) = open_untrusted(Path::new(&package))?;
                let (copy, dir) = (private_copy(copy).ok()?, TempDir::new().ok()?);
                symlink(&self.main, dir.path().join("main")).ok()?;
                symlink(fd_path(&copy), dir.path().join("main.dwp")).ok()?;
                Some((copy, dir))
            });
        if let Some((copy, dir)) = linked.flatten() {
            self.main = dir.path().join("main");
            self.bytes += bytes;
            self._held.files.push(copy);
            self._held.dir = Some(dir);
        }
    }
}

/// A separate debug file that belongs to the object.
struct Found {
    path: PathBuf,
    follow_links: bool,
    bytes: u64,
    held: Option<File>,
}

impl Found {
    /// The file at `path`, if it is the right one. `shared`: in a directory for all debug files, where links are
    /// usual.
    fn open(path: PathBuf, shared: bool, sections: &Sections) -> Option<Self> {
        if shared && std::fs::metadata(&path).is_ok_and(|metadata| is_trusted(&metadata)) {
            let file = File::open(&path).ok()?;
            let bytes = file.metadata().ok()?.len();
            let debug = Sections::read(file).ok()?;
            return debug.belongs_to(sections, &path).then_some(Self {
                path,
                follow_links: true,
                bytes,
                held: None,
            });
        }
        let (file, bytes) = open_untrusted(&path)?;
        let copy = private_copy(file).ok()?;
        let path = fd_path(&copy);
        let debug = Sections::read(copy.try_clone().ok()?).ok()?;
        debug.check_size(bytes).ok()?;
        let follow_links = !debug.has_links;
        debug.belongs_to(sections, &path).then_some(Self {
            path,
            follow_links,
            bytes,
            held: Some(copy),
        })
    }
}

/// What a file's section headers say.
#[derive(Debug, Default)]
struct Sections {
    build_id: Vec<u8>,
    /// Address of the first executable segment.
    first_code: u64,
    has_symbols: bool,
    has_debug_info: bool,
    /// Whether other files are named in it.
    has_links: bool,
    /// Name and checksum of the file with the debug information.
    debug_link: Option<(PathBuf, u32)>,
    /// Bytes that the compressed sections claim to have.
    unfolded_bytes: u64,
    /// Whether a compressed symbol table unfolds to more than is reasonable.
    has_bomb: bool,
}

impl Sections {
    fn read(file: File) -> Result<Self, &'static str> {
        let data = ReadCache::new(file);
        match FileKind::parse(&data) {
            Ok(FileKind::Elf32) => Self::parse::<FileHeader32<Endianness>, _>(&data),
            Ok(FileKind::Elf64) => Self::parse::<FileHeader64<Endianness>, _>(&data),
            _ => return Err("not an ELF file"),
        }
        .map_err(|_| "damaged ELF file")
    }

    fn parse<'d, H: FileHeader<Endian = Endianness>, R: ReadRef<'d>>(data: R) -> object::Result<Self> {
        let header = H::parse(data)?;
        let endian = header.endian()?;
        let table = header.sections(endian, data)?;
        let programs = header.program_headers(endian, data)?.iter();
        let code =
            programs.filter(|program| program.p_type(endian) == PT_LOAD && program.p_flags(endian).contains(PF_X));
        let first_code = code.map(|program| program.p_vaddr(endian).into()).min().unwrap_or(0);
        let mut sections = Self {
            first_code,
            ..Self::default()
        };
        for section in table.iter() {
            if section.sh_flags(endian).contains(SHF_COMPRESSED) {
                let claimed = section
                    .compression(endian, data)?
                    .map_or(0, |(header, ..)| header.ch_size(endian).into());
                sections.unfolded_bytes = sections.unfolded_bytes.saturating_add(claimed);
            }
            let small = section.sh_size(endian).into() <= MAX_SMALL_SECTION_BYTES;
            match table.section_name(endian, section)? {
                b".symtab" => sections.has_symbols = true,
                b".debug_info" => sections.has_debug_info = true,
                b".gnu_debugaltlink" | b".debug_sup" => sections.has_links = true,
                b".gnu_debuglink" if small => {
                    sections.has_links = true;
                    sections.debug_link = parse_link(endian, section.data(endian, data)?);
                }
                b".gnu_debuglink" => sections.has_links = true,
                b".note.gnu.build-id" if small => {
                    let notes = section.notes(endian, data)?;
                    sections.build_id = notes
                        .and_then(|notes| build_id_in::<H>(notes, endian))
                        .unwrap_or_default();
                }
                b".gnu_debugdata" => sections.has_bomb = is_bomb(section.data(endian, data)?),
                _ => {}
            }
        }
        Ok(sections)
    }

    /// An error when reading a file of `bytes` bytes could take unreasonable memory.
    fn check_size(&self, bytes: u64) -> Result<(), &'static str> {
        let bomb = self.has_bomb && !self.has_symbols;
        if bomb || bytes > MAX_UNTRUSTED_BYTES || self.unfolded_bytes > bytes.saturating_mul(MAX_UNFOLDED_RATIO) {
            return Err("too large");
        }
        Ok(())
    }

    /// Whether this is the debug file of an object: by the build-id, or by the link's checksum.
    fn belongs_to(&self, object: &Self, path: &Path) -> bool {
        if !object.build_id.is_empty() && !self.build_id.is_empty() {
            return self.build_id == object.build_id;
        }
        object
            .debug_link
            .as_ref()
            .is_some_and(|(_, checksum)| crc32(path).is_ok_and(|crc| crc == *checksum))
    }
}

/// A name that ends in 0, padding, and a checksum. The name has no directory.
fn parse_link(endian: Endianness, data: &[u8]) -> Option<(PathBuf, u32)> {
    let end = data.iter().position(|&byte| byte == 0)?;
    let name = Path::new(OsStr::from_bytes(&data[..end])).file_name()?;
    let checksum = data.get((end + 1).next_multiple_of(4)..)?.first_chunk::<4>()?;
    let checksum = if endian == Endianness::Little {
        u32::from_le_bytes(*checksum)
    } else {
        u32::from_be_bytes(*checksum)
    };
    Some((name.into(), checksum))
}

fn is_bomb(compressed: &[u8]) -> bool {
    let Ok(stream) = Stream::new_stream_decoder(MAX_DEBUGDATA_BYTES, 0) else {
        return true;
    };
    let mut unfolded = XzDecoder::new_stream(compressed, stream).take(MAX_DEBUGDATA_BYTES + 1);
    copy(&mut unfolded, &mut sink()).map_or(true, |bytes| bytes > MAX_DEBUGDATA_BYTES)
}

fn crc32(path: &Path) -> io::Result<u32> {
    let mut writer = CrcWriter::new(sink());
    copy(&mut File::open(path)?, &mut writer)?;
    Ok(writer.crc().sum())
}

/// Whether only root can change the file.
fn is_trusted(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0
}

/// A regular file and its size; never blocks, and follows no link in its last part.
fn open_untrusted(path: &Path) -> Option<(File, u64)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file
        .metadata()
        .ok()
        .filter(|metadata| metadata.is_file() && metadata.len() <= MAX_UNTRUSTED_BYTES)?;
    Some((file, metadata.len()))
}

/// A copy that nobody else can change.
fn private_copy(file: File) -> io::Result<File> {
    let mut target = tempfile::tempfile()?;
    copy(&mut file.take(MAX_UNTRUSTED_BYTES), &mut target)?;
    target.rewind()?;
    Ok(target)
}

fn fd_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn reason(error: io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "file gone",
        io::ErrorKind::PermissionDenied => "file not readable",
        _ => "file damaged",
    }
}
