//! What block devices are called.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use stackhound_core::block_io::device_numbers;

/// Names of block devices, each looked up once: a device that goes away keeps the one that it had.
pub struct BlockDevices {
    directory: PathBuf,
    names: HashMap<u32, String>,
}

impl Default for BlockDevices {
    fn default() -> Self {
        Self::below(Path::new("/sys/dev/block"))
    }
}

impl BlockDevices {
    fn below(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            names: HashMap::new(),
        }
    }

    /// The name of a device by its number in the kernel (`dev_t`): `sda1`, `nvme0n1`, `dm-0`; `8:1` where the kernel has
    /// none.
    pub fn name(&mut self, device: u32) -> &str {
        let directory = &self.directory;
        self.names.entry(device).or_insert_with(|| {
            let (major, minor) = device_numbers(device);
            let numbers = format!("{major}:{minor}");
            read_name(&directory.join(&numbers)).unwrap_or(numbers)
        })
    }
}

/// The link leads to the device's own directory, which has its name.
fn read_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_called_as_its_directory_and_without_one_by_its_numbers() {
        let directory = std::env::temp_dir().join(format!("stackhound-devices-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink("../../devices/virtual/block/loop7", directory.join("7:7")).unwrap();
        let mut devices = BlockDevices::below(&directory);
        assert_eq!(devices.name(7 << 20 | 7), "loop7");
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(
            (devices.name(7 << 20 | 7).to_string(), devices.name(8 << 20 | 1)),
            ("loop7".into(), "8:1")
        );
    }
}
