//! Unwind tables kept on disk, by build-id: a large program's table takes longer to make than to read.
//!
//! A file of the cache is a table as `stackhound_core::unwind` writes it, with a checksum. One that is damaged, or of
//! another version, is as good as none, and written anew.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;
use stackhound_core::elf::Elf;
use stackhound_core::unwind::{Table, TableView};
use xxhash_rust::xxh3::xxh3_64;

/// All files together; the oldest go.
const MAX_BYTES: u64 = 256 << 20;
/// Tables of fewer rows are made about as fast as they are found.
const MIN_ROWS: usize = 4096;
/// ELF header and program headers: they tell apart files that claim to be the same.
const HEAD_BYTES: usize = 4096;

/// A directory of tables; None where there is no place for it.
#[derive(Default)]
pub struct Cache {
    directory: Option<PathBuf>,
}

impl Cache {
    /// In the cache directory of the user that this process runs as.
    pub fn open() -> Self {
        let base = user_cache_directory();
        let directory = base.and_then(|base| own_directory(&base.join("stackhound/unwind")).ok());
        let cache = Self { directory };
        cache.shrink(MAX_BYTES);
        cache
    }

    /// The file for the table of a file with this identity; None when there is no cache.
    pub fn place(&self, identity: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(identity))
    }

    /// Reads a table, and hands it on where it lies. None: there is none that can be used.
    pub fn read<T>(&self, place: &Path, use_it: impl FnOnce(&TableView<'_>) -> T) -> Option<T> {
        let options = &mut OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NOFOLLOW).open(place).ok()?;
        // SAFETY: the directory is ours alone; files in it are only ever replaced as a whole.
        let bytes = unsafe { Mmap::map(&file) }.ok()?;
        let view = TableView::from_bytes(&bytes).ok()?;
        let _ = file.set_modified(SystemTime::now()); // a file that looks older than it is goes sooner
        Some(use_it(&view))
    }

    /// Keeps a table. Where that fails it will be made again the next time.
    pub fn write(&self, place: &Path, table: &Table) {
        if table.rows.len() >= MIN_ROWS {
            let new = place.with_extension(format!("{}.new", std::process::id()));
            let written = write_file(&new, &table.to_bytes()).and_then(|()| fs::rename(&new, place));
            if written.is_err() {
                let _ = fs::remove_file(&new);
            }
        }
    }

    /// Deletes the files that were not used for longest, and what an interrupted write has left.
    fn shrink(&self, max_bytes: u64) {
        let Some(directory) = &self.directory else { return };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (modified, size, path) in files {
            let is_left_over = path.extension().is_some() && modified.elapsed().is_ok_and(|age| age.as_secs() > 60);
            if bytes > max_bytes || is_left_over {
                let _ = fs::remove_file(path); // another collector may have been faster
                bytes -= size;
            }
        }
    }
}

/// What files with the same table have in common: build-id, length, and the ELF header. None without a build-id.
pub fn identity(elf: &Elf, bytes: &[u8]) -> Option<String> {
    if elf.build_id.is_empty() {
        return None;
    }
    let mut identity = String::new();
    elf.build_id.iter().for_each(|byte| {
        let _ = write!(identity, "{byte:02x}"); // writing to a string cannot fail
    });
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    let _ = write!(identity, "-{:x}-{:016x}", bytes.len(), xxh3_64(head));
    Some(identity)
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let options = &mut OpenOptions::new();
    let mut file: File = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Makes a directory that only this user can write to; an error when there is one that others can.
fn own_directory(path: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::symlink_metadata(path)?;
    if metadata.uid() != own_user() || metadata.mode() & 0o022 != 0 || !metadata.is_dir() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(path.to_path_buf())
}

/// Under sudo the environment may still name the home of the user who called it: then it is not ours.
fn user_cache_directory() -> Option<PathBuf> {
    let named = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let is_ours = |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.uid() == own_user());
    let home = || named("HOME").filter(is_ours);
    let of_root = || (own_user() == 0).then(|| PathBuf::from("/var/cache"));
    named("XDG_CACHE_HOME")
        .filter(is_ours)
        .or_else(|| home().map(|home| home.join(".cache")))
        .or_else(of_root)
}

fn own_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackhound_core::unwind;

    fn cache() -> (Cache, PathBuf) {
        let directory = std::env::temp_dir().join(format!("stackhound-cache-{:?}", std::thread::current().id()));
        let _ = fs::remove_dir_all(&directory);
        let directory = Some(own_directory(&directory).unwrap());
        let path = directory.clone().unwrap();
        (Cache { directory }, path)
    }

    fn own_table() -> (Vec<u8>, Table) {
        let bytes = fs::read("/proc/self/exe").unwrap();
        let table = unwind::build(&bytes).unwrap();
        (bytes, table)
    }

    #[test]
    fn a_table_that_was_kept_is_found_again() {
        let (cache, directory) = cache();
        let (bytes, table) = own_table();
        let elf = Elf::parse(&bytes).unwrap();
        let place = cache.place(&identity(&elf, &bytes).unwrap()).unwrap();
        assert_eq!(cache.read(&place, |_| ()), None);
        cache.write(&place, &table);
        assert_eq!(cache.read(&place, |view| *view == table.view()), Some(true));
        let other = [&bytes[..], b"one more"].concat();
        assert_ne!(
            identity(&elf, &other),
            identity(&elf, &bytes),
            "another file of the same build-id"
        );
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let (cache, directory) = cache();
        let (bytes, table) = own_table();
        let place = cache
            .place(&identity(&Elf::parse(&bytes).unwrap(), &bytes).unwrap())
            .unwrap();
        cache.write(&place, &table);
        let mut kept = fs::read(&place).unwrap();
        let middle = kept.len() / 2;
        kept[middle] ^= 1;
        fs::write(&place, kept).unwrap();
        assert_eq!(cache.read(&place, |_| ()), None);
        cache.write(&place, &table);
        assert_eq!(cache.read(&place, |_| ()), Some(()), "it is written anew");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_files_used_last_stay_when_there_are_too_many() {
        let (cache, directory) = cache();
        for (age_s, name) in [(300, "oldest"), (200, "older"), (0, "newest")] {
            let file = File::create(directory.join(name)).unwrap();
            (&file).write_all(&[0; 1000]).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(age_s))
                .unwrap();
        }
        cache.shrink(2000);
        let left: Vec<bool> = ["oldest", "older", "newest"]
            .map(|name| directory.join(name).exists())
            .into();
        assert_eq!(left, [false, true, true]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let (_, directory) = cache();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(own_directory(&directory).is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
