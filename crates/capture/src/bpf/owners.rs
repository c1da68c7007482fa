//! Processes that hold programs: by a descriptor of the program, or of what attaches it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::procfs;

/// A process that holds a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

/// Of all processes that may be looked at.
pub(super) fn by_program() -> HashMap<u32, Vec<Owner>> {
    let mut owners: HashMap<u32, Vec<Owner>> = HashMap::new();
    for pid in procfs::pids() {
        let programs = programs_of(pid);
        if programs.is_empty() {
            continue;
        }
        let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let comm = String::from_utf8_lossy(&comm).trim_end().to_owned();
        for program in programs {
            let owner = Owner {
                pid,
                comm: comm.clone(),
            };
            owners.entry(program).or_default().push(owner);
        }
    }
    owners
}

/// Each once.
fn programs_of(pid: u32) -> Vec<u32> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new(); // it has ended, or is not ours to look at
    };
    let is_bpf = |path: &Path| {
        let target = fs::read_link(path).unwrap_or_default();
        ["anon_inode:bpf-prog", "anon_inode:bpf_link"].contains(&&*target.to_string_lossy())
    };
    let with_program = descriptors.flatten().filter(|entry| is_bpf(&entry.path()));
    let mut programs: Vec<u32> = with_program
        .filter_map(|entry| {
            let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy());
            program_in(&fs::read_to_string(info).ok()?)
        })
        .collect();
    programs.sort_unstable();
    programs.dedup();
    programs
}

fn program_in(info: &str) -> Option<u32> {
    let number = |line: &str| line.strip_prefix("prog_id:")?.trim().parse().ok();
    info.lines().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::program_in;

    #[test]
    fn a_descriptor_tells_its_program() {
        assert_eq!(program_in("pos:\t0\nlink_type:\ttracing\nprog_id:\t42\n"), Some(42));
        assert_eq!(program_in("pos:\t0\n"), None);
    }
}
