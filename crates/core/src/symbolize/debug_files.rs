//! Which files have an object's symbols: its own, and separate debug files.
//!
//! blazesym maps files into memory and follows the links in them. Both are fine for what root installed. Anybody
//! else's file may be cut short while it is mapped, may unfold to more than the memory, or may link to a FIFO: such
//! files are looked over first, read from a copy when they are not the object's own, and their links are followed here.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, copy};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::sections::{MAX_UNTRUSTED_BYTES, Sections};

/// Where Debian, Fedora and the others put separate debug files.
const USUAL_DIRS: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// Where separate debug files may be.
#[derive(Clone, Debug)]
pub struct DebugDirs {
    /// For all debug files, like /usr/lib/debug; the first that has one counts.
    dirs: Vec<PathBuf>,
    /// For what debuginfod servers gave, as elfutils keeps it: `BUILD_ID/debuginfo`.
    downloads: Option<PathBuf>,
}

impl DebugDirs {
    /// These directories, then the usual ones, then what was downloaded.
    pub fn new(first: &[PathBuf], downloads: Option<PathBuf>) -> Self {
        let usual = USUAL_DIRS.map(PathBuf::from);
        let dirs = first.iter().cloned().chain(usual).collect();
        Self { dirs, downloads }
    }
}

impl Default for DebugDirs {
    fn default() -> Self {
        Self::new(&[], None)
    }
}

/// Looks for debug files.
pub(super) struct DebugFiles {
    places: DebugDirs,
}

/// The files to ask for an object's symbols.
#[derive(Debug)]
pub(super) struct Located {
    /// The object's own file.
    pub(super) main: PathBuf,
    /// The file with what was stripped from it, if it was.
    pub(super) debug: Option<PathBuf>,
    /// Whether one of them has debug information.
    pub(super) has_lines: bool,
    /// Whether blazesym may look for debug information, which makes it follow links.
    pub(super) follow_links: bool,
    /// Where the object's code begins.
    pub(super) first_code: u64,
    /// Size of the files.
    pub(super) bytes: u64,
    /// Of the object, in hexadecimal digits; empty: none.
    pub(super) build_id: String,
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
    pub(super) fn new(places: DebugDirs) -> Self {
        Self { places }
    }

    pub(super) fn dirs(&self) -> &[PathBuf] {
        &self.places.dirs
    }

    /// The build-id of an object whose debug file would say more than is to be had here.
    pub(super) fn missing(&self, wanted: Wanted) -> Option<String> {
        let file = open_regular(wanted.path, 0).ok()?;
        let sections = Sections::read(&file).ok()?;
        let is_missing = wanted.needs_more_than(&sections)
            && !sections.has_go_table
            && !sections.build_id.is_empty()
            && self.find(&wanted, &sections).is_none();
        is_missing.then(|| hex(&sections.build_id))
    }

    /// The files of an object, or the reason why there are none.
    pub(super) fn locate(&self, wanted: Wanted) -> Result<Located, &'static str> {
        let file = open_regular(wanted.path, 0)?;
        let metadata = file.metadata().map_err(reason)?;
        let sections = Sections::read(&file)?;
        let mut located = Located {
            main: wanted.path.to_owned(),
            debug: None,
            has_lines: sections.has_debug_info,
            follow_links: true,
            first_code: sections.first_code,
            bytes: metadata.len(),
            build_id: hex(&sections.build_id),
            _held: Held::default(),
        };
        let trusted = is_trusted(&metadata);
        if !trusted {
            sections.check_size(&file, metadata.len())?;
            located.hold_main(file, &sections);
        }
        if wanted.needs_more_than(&sections) {
            located.add_debug(self.find(&wanted, &sections), &sections);
        }
        if wanted.lines && (wanted.origin.is_some() || !trusted) {
            located.add_package(&wanted.real_path());
        }
        Ok(located)
    }

    fn find(&self, wanted: &Wanted, sections: &Sections) -> Option<Found> {
        let mut candidates: Vec<(PathBuf, Place)> = Vec::new();
        let dirs = &self.places.dirs;
        if let Some((first, rest)) = sections.build_id.split_first().filter(|(_, rest)| rest.len() > 6) {
            let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
            candidates.extend(dirs.iter().map(|dir| (dir.join(&name), Place::Shared)));
        }
        if let Some((name, _)) = &sections.debug_link {
            let real = wanted.real_path();
            let here = real.parent().unwrap_or(Path::new("/"));
            let below_root = here.strip_prefix("/").unwrap_or(here);
            let beside = [here.join(name), here.join(".debug").join(name)];
            candidates.extend(beside.map(|path| (path, Place::Beside)));
            candidates.extend(dirs.iter().map(|dir| (dir.join(below_root).join(name), Place::Shared)));
        }
        if let Some(downloads) = self.places.downloads.as_ref().filter(|_| !sections.build_id.is_empty()) {
            let path = downloads.join(hex(&sections.build_id)).join("debuginfo");
            candidates.push((path, Place::Downloads));
        }
        candidates
            .into_iter()
            .find_map(|(path, place)| Found::open(path, place, sections))
    }
}

/// What kind of directory a debug file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Root's, for all debug files, where links are usual.
    Shared,
    /// The object's own.
    Beside,
    /// Of files that a server gave, which nobody vouches for, whoever they belong to.
    Downloads,
}

impl Wanted<'_> {
    fn real_path(&self) -> PathBuf {
        self.origin
            .map_or_else(|| self.path.to_owned(), |origin| origin.join(self.name))
    }

    fn needs_more_than(&self, sections: &Sections) -> bool {
        if self.lines {
            !sections.has_debug_info
        } else {
            !sections.has_symbols
        }
    }
}

impl Located {
    /// Read this very file from now on, not what its path may lead to by then.
    fn hold_main(&mut self, file: File, sections: &Sections) {
        self.main = fd_path(&file);
        self.follow_links = !sections.has_links;
        self._held.files.push(file);
    }

    fn add_debug(&mut self, found: Option<Found>, sections: &Sections) {
        if let Some(found) = found {
            self.bytes += found.bytes;
            self.has_lines |= found.has_lines;
            self.follow_links = found.follow_links;
            self.debug = Some(found.path);
            self._held.files.extend(found.held);
        } else if sections.debug_link.is_some() {
            self.follow_links = false; // the link was refused just now: it leads to another program's file, or none
        }
    }

    /// `NAME.dwp` beside a file that is read through a descriptor: blazesym looks for it beside the path it is given,
    /// so give it one.
    fn add_package(&mut self, original: &Path) {
        let mut package = original.as_os_str().to_owned();
        package.push(".dwp");
        let Some(copied) = Copied::of(Path::new(&package)) else {
            return;
        };
        if let Ok(dir) = link_both(&self.main, &fd_path(&copied.file)) {
            self.main = dir.path().join("main");
            self.bytes += copied.bytes;
            self._held.files.push(copied.file);
            self._held.dir = Some(dir);
        }
    }
}

/// A separate debug file that belongs to the object.
struct Found {
    path: PathBuf,
    has_lines: bool,
    follow_links: bool,
    bytes: u64,
    held: Option<File>,
}

impl Found {
    /// The file at `path`, if it is the right one.
    fn open(path: PathBuf, place: Place, object: &Sections) -> Option<Self> {
        let is_trusted = || std::fs::metadata(&path).is_ok_and(|metadata| is_trusted(&metadata));
        if place == Place::Beside || !is_trusted() {
            return Self::held(Copied::of(&path)?, &path, object);
        }
        let file = File::open(&path).ok()?;
        let bytes = file.metadata().ok()?.len();
        let sections = Sections::read(&file).ok()?;
        if place == Place::Downloads {
            sections.check_size(&file, bytes).ok()?;
            return Self::held(Copied { file, sections, bytes }, &path, object);
        }
        sections.belongs_to(object, &path).then_some(Self {
            path,
            has_lines: sections.has_debug_info,
            follow_links: true,
            bytes,
            held: None,
        })
    }

    /// A file that nobody else changes from now on.
    fn held(own: Copied, path: &Path, object: &Sections) -> Option<Self> {
        let Copied { file, sections, bytes } = own;
        sections.belongs_to(object, path).then(|| Self {
            path: fd_path(&file),
            has_lines: sections.has_debug_info,
            follow_links: !sections.has_links,
            bytes,
            held: Some(file),
        })
    }
}

/// A copy of somebody's file, which nobody else can change.
struct Copied {
    file: File,
    sections: Sections,
    bytes: u64,
}

impl Copied {
    /// None for what is no regular file, too large, or no ELF file. Follows no link in the path's last part.
    fn of(path: &Path) -> Option<Self> {
        let original = open_regular(path, libc::O_NOFOLLOW).ok()?;
        let mut file = tempfile::tempfile().ok()?;
        let bytes = copy(&mut original.take(MAX_UNTRUSTED_BYTES + 1), &mut file).ok()?;
        let sections = Sections::read(&file).ok()?;
        sections.check_size(&file, bytes).ok()?;
        Some(Self { file, sections, bytes })
    }
}

/// The build-id of an ELF file that has one.
pub(super) fn build_id(path: &Path) -> Option<String> {
    let file = open_regular(path, libc::O_NOFOLLOW).ok()?;
    let sections = Sections::read(&file).ok()?;
    (!sections.build_id.is_empty()).then(|| hex(&sections.build_id))
}

/// Whether only root can change the file.
fn is_trusted(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0
}

/// A regular file; never blocks.
fn open_regular(path: &Path, flags: i32) -> Result<File, &'static str> {
    let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(reason)?;
    let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if is_regular {
        Ok(file)
    } else {
        Err("not a regular file")
    }
}

/// A directory in which `main.dwp` is beside `main`.
fn link_both(main: &Path, package: &Path) -> io::Result<TempDir> {
    let dir = TempDir::new()?;
    symlink(main, dir.path().join("main"))?;
    symlink(package, dir.path().join("main.dwp"))?;
    Ok(dir)
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

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use xz2::write::XzEncoder;

    use super::super::sections::MAX_DEBUGDATA_BYTES;
    use super::*;

    const BUILD_ID: [u8; 8] = [0xab, 1, 2, 3, 4, 5, 6, 7];

    /// (name, flags, contents) of each section.
    type Section<'a> = (&'a str, u64, Vec<u8>);

    /// An ELF file of these sections, written byte by byte as the specification says.
    fn elf(sections: &[Section]) -> Vec<u8> {
        let mut sections = sections.to_vec();
        let names: Vec<&str> = sections.iter().map(|section| section.0).chain([".shstrtab"]).collect();
        let starts = names.iter().scan(1, |next, name| {
            Some(std::mem::replace(next, *next + name.len() as u32 + 1))
        });
        let starts: Vec<u32> = starts.collect();
        sections.push((".shstrtab", 0, format!("\0{}\0", names.join("\0")).into_bytes()));
        let mut body = Vec::new();
        let mut headers = vec![0; 64];
        for ((name, flags, data), start) in sections.iter().zip(starts) {
            let kind: u32 = if name.starts_with(".note") { 7 } else { 1 };
            headers.extend([start.to_le_bytes(), kind.to_le_bytes()].concat());
            let (offset, size) = (64 + body.len() as u64, data.len() as u64);
            headers.extend([*flags, 0, offset, size, 0, 1, 0].map(u64::to_le_bytes).concat());
            body.extend(data);
        }
        let mut file = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9], &[3, 0, 62, 0, 1, 0, 0, 0]].concat();
        file.extend([0, 0, 64 + body.len() as u64].map(u64::to_le_bytes).concat());
        let (count, last) = (sections.len() as u16 + 1, sections.len() as u16);
        file.extend([0, 0, 64, 56, 0, 64, count, last].map(u16::to_le_bytes).concat());
        [file, body, headers].concat()
    }

    fn build_id(id: &[u8]) -> Section<'static> {
        let words = [4, id.len() as u32, 3].map(u32::to_le_bytes).concat();
        (".note.gnu.build-id", 2, [&words, b"GNU\0".as_slice(), id].concat())
    }

    fn debug_link(name: &str) -> Section<'static> {
        let mut data = [name.as_bytes(), b"\0"].concat();
        data.resize(data.len().next_multiple_of(4), 0);
        data.extend([1, 2, 3, 4]);
        (".gnu_debuglink", 0, data)
    }

    /// A directory with a program of these sections, and one for all debug files.
    struct Machine {
        dir: TempDir,
        files: DebugFiles,
    }

    impl Machine {
        fn new(program: &[Section]) -> Self {
            let dir = TempDir::new().unwrap();
            fs::create_dir_all(dir.path().join("debug/.build-id/ab")).unwrap();
            fs::write(dir.path().join("app"), elf(program)).unwrap();
            fs::set_permissions(dir.path().join("app"), fs::Permissions::from_mode(0o666)).unwrap(); // also when root tests
            let places = DebugDirs::new(&[dir.path().join("debug")], Some(dir.path().join("downloads")));
            let files = DebugFiles::new(places);
            Self { dir, files }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// What is found for somebody's program, and for lines.
        fn locate(&self) -> Result<Located, &'static str> {
            self.files.locate(wanted(&self.path("app")))
        }

        fn missing(&self) -> Option<String> {
            self.files.missing(wanted(&self.path("app")))
        }
    }

    fn wanted(path: &Path) -> Wanted<'_> {
        Wanted {
            path,
            origin: None,
            name: OsStr::new("app"),
            lines: true,
        }
    }

    fn make_fifo(path: &Path) {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a string that ends in 0.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }

    /// A debug file is found by the build-id, and by the name that the program gives.
    #[test]
    fn debug_files_are_found() {
        let debug = elf(&[build_id(&BUILD_ID), (".debug_info", 0, vec![0])]);
        for place in [
            "debug/.build-id/ab/01020304050607.debug",
            "app.debug",
            ".debug/app.debug",
            "downloads/ab01020304050607/debuginfo",
        ] {
            let machine = Machine::new(&[build_id(&BUILD_ID), debug_link("app.debug")]);
            fs::create_dir_all(machine.path(".debug")).unwrap();
            fs::create_dir_all(machine.path("downloads/ab01020304050607")).unwrap();
            assert!(machine.locate().unwrap().debug.is_none());
            assert_eq!(machine.missing().as_deref(), Some("ab01020304050607"));
            fs::write(machine.path(place), &debug).unwrap();
            assert!(machine.locate().unwrap().debug.is_some(), "{place}");
            assert_eq!(machine.missing(), None);
        }
    }

    /// Nothing is asked for that has no identity, or would say no more: Go's own table has everything.
    #[test]
    fn only_what_would_help_is_missing() {
        assert_eq!(Machine::new(&[]).missing(), None);
        for section in [".debug_info", ".gopclntab"] {
            let machine = Machine::new(&[build_id(&BUILD_ID), (section, 0, vec![0])]);
            assert_eq!(machine.missing(), None, "{section}");
        }
    }

    /// What a server gave may be hostile though root owns it: it may be no bomb, and its links are not followed.
    #[test]
    fn downloads_are_looked_over() {
        let machine = Machine::new(&[build_id(&BUILD_ID)]);
        let place = machine.path("downloads/ab01020304050607");
        fs::create_dir_all(&place).unwrap();
        let claim = [1u64, 1 << 40, 1].map(u64::to_le_bytes).concat();
        let put = |section: Section| {
            fs::write(place.join("debuginfo"), elf(&[build_id(&BUILD_ID), section])).unwrap();
            machine.locate().unwrap()
        };
        assert!(put((".debug_info", 1 << 11, claim)).debug.is_none());
        let located = put((".gnu_debugaltlink", 0, b"/fifo\0id".to_vec()));
        assert!(located.debug.is_some() && !located.follow_links);
        assert!(put((".debug_info", 0, vec![0])).follow_links);
        fs::write(place.join("debuginfo"), "").unwrap();
        assert!(
            machine.locate().unwrap().debug.is_none(),
            "an empty file tells that no server has it"
        );
    }

    /// The debug file of another program is not taken, whatever its name.
    #[test]
    fn debug_files_of_other_programs_are_refused() {
        let machine = Machine::new(&[build_id(&BUILD_ID), debug_link("app.debug")]);
        fs::write(
            machine.path("app.debug"),
            elf(&[build_id(&[9; 8]), (".debug_info", 0, vec![0])]),
        )
        .unwrap();
        let located = machine.locate().unwrap();
        assert!(located.debug.is_none() && !located.follow_links);
        let machine = Machine::new(&[debug_link("app.debug")]); // by the checksum, which is another one
        fs::write(machine.path("app.debug"), elf(&[(".debug_info", 0, vec![0])])).unwrap();
        assert!(machine.locate().unwrap().debug.is_none());
    }

    /// Somebody's debug file is read from a copy: what they do to it afterwards changes nothing.
    #[test]
    fn debug_files_that_may_change_are_copied() {
        let machine = Machine::new(&[build_id(&BUILD_ID), debug_link("app.debug")]);
        let debug = elf(&[build_id(&BUILD_ID), (".debug_info", 0, vec![0])]);
        fs::write(machine.path("app.debug"), &debug).unwrap();
        let located = machine.locate().unwrap();
        fs::write(machine.path("app.debug"), "").unwrap();
        assert_eq!(fs::read(located.debug.as_ref().unwrap()).unwrap(), debug);
    }

    /// Pipes and symbolic links in a program's directory are not opened; a name that leads out of it stays in it.
    #[test]
    fn links_lead_to_regular_files_beside_the_program() {
        let start = Instant::now();
        let debug = elf(&[build_id(&BUILD_ID), (".debug_info", 0, vec![0])]);
        let machine = Machine::new(&[build_id(&BUILD_ID), debug_link("app.debug")]);
        make_fifo(&machine.path("app.debug"));
        make_fifo(&machine.path("app.dwp"));
        assert!(machine.locate().unwrap().debug.is_none());
        fs::remove_file(machine.path("app.debug")).unwrap();
        fs::write(machine.path("elsewhere"), &debug).unwrap();
        symlink(machine.path("elsewhere"), machine.path("app.debug")).unwrap();
        assert!(machine.locate().unwrap().debug.is_none());
        let outside = TempDir::new().unwrap();
        fs::write(outside.path().join("app.debug"), &debug).unwrap();
        let link = debug_link(outside.path().join("app.debug").to_str().unwrap());
        assert!(
            Machine::new(&[build_id(&BUILD_ID), link])
                .locate()
                .unwrap()
                .debug
                .is_none()
        );
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was waited for");
    }

    /// blazesym would follow these links itself: it is not let near them in somebody's file.
    #[test]
    fn links_to_shared_debug_information_are_not_followed() {
        for name in [".gnu_debugaltlink", ".debug_sup"] {
            let machine = Machine::new(&[(".debug_info", 0, vec![0]), (name, 0, b"/fifo\0id".to_vec())]);
            assert!(!machine.locate().unwrap().follow_links);
        }
        assert!(
            Machine::new(&[(".debug_info", 0, vec![0])])
                .locate()
                .unwrap()
                .follow_links
        );
    }

    /// A file that claims to unfold to more than is reasonable, or does so without claiming it, is refused.
    #[test]
    fn bombs_are_refused() {
        let claim = [1u64, 1 << 40, 1].map(u64::to_le_bytes).concat();
        let machine = Machine::new(&[(".debug_info", 1 << 11, claim)]);
        assert_eq!(machine.locate().unwrap_err(), "too large");
        let header = [1u64, 1, 1].map(u64::to_le_bytes).concat(); // zlib, one byte: so it claims
        let mut packed = ZlibEncoder::new(header, Compression::fast());
        copy(&mut io::repeat(0).take(1 << 20), &mut packed).unwrap();
        let machine = Machine::new(&[(".debug_info", 1 << 11, packed.finish().unwrap())]);
        assert_eq!(machine.locate().unwrap_err(), "too large");
        let mut packed = XzEncoder::new(Vec::new(), 0);
        copy(&mut io::repeat(0).take(MAX_DEBUGDATA_BYTES + 1), &mut packed).unwrap();
        let machine = Machine::new(&[(".gnu_debugdata", 0, packed.finish().unwrap())]);
        assert_eq!(machine.locate().unwrap_err(), "too large");
        let mut packed = XzEncoder::new(Vec::new(), 0);
        packed.write_all(b"small").unwrap();
        assert!(
            Machine::new(&[(".gnu_debugdata", 0, packed.finish().unwrap())])
                .locate()
                .is_ok()
        );
    }

    /// A file cut or changed anywhere gives an answer or a reason, never a panic.
    #[test]
    fn damaged_files_do_no_harm() {
        let machine = Machine::new(&[]);
        let whole = elf(&[
            build_id(&BUILD_ID),
            debug_link("app.debug"),
            (".debug_info", 1 << 11, vec![1; 24]),
        ]);
        for at in 0..whole.len() {
            fs::write(machine.path("app"), &whole[..at]).unwrap();
            assert!(machine.locate().is_err(), "{at} bytes");
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            fs::write(machine.path("app"), changed).unwrap();
            let _ = machine.locate();
        }
    }
}
