//! Which processes map which files: a table stays for as long as somebody uses it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Counts the processes of each file.
#[derive(Default)]
pub struct Users {
    files_of: HashMap<u32, Box<[u32]>>,
    counts: HashMap<u32, u32>,
    /// Files that had users, and have none, with the time.
    left: HashMap<u32, Instant>,
}

impl Users {
    /// A process maps these files now.
    pub fn set(&mut self, pid: u32, mut files: Vec<u32>) {
        files.sort_unstable();
        files.dedup();
        for &file in &files {
            *self.counts.entry(file).or_default() += 1;
            self.left.remove(&file);
        }
        let before = self.files_of.insert(pid, files.into());
        self.drop_files(&before.unwrap_or_default());
    }

    /// A process maps nothing any more.
    pub fn remove(&mut self, pid: u32) {
        let before = self.files_of.remove(&pid);
        self.drop_files(&before.unwrap_or_default());
    }

    /// Files that nobody has used for so long. Each is told once.
    pub fn take_unused(&mut self, age: Duration) -> Vec<u32> {
        let is_old = |_: &u32, since: &mut Instant| since.elapsed() >= age;
        self.left.extract_if(is_old).map(|(file, _)| file).collect()
    }

    fn drop_files(&mut self, files: &[u32]) {
        for file in files {
            let count = self.counts.get_mut(file).expect("counted when it was set");
            *count -= 1;
            if *count == 0 {
                self.counts.remove(file);
                self.left.insert(*file, Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_unused_when_its_last_process_has_left() {
        let mut users = Users::default();
        users.set(1, vec![7, 7, 8]);
        users.set(2, vec![7]);
        users.remove(1);
        assert_eq!(users.take_unused(Duration::ZERO), [8]);
        users.set(2, vec![9]);
        assert_eq!(users.take_unused(Duration::ZERO), [7]);
        assert!(users.take_unused(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_file_that_is_used_again_in_time_is_kept() {
        let mut users = Users::default();
        users.set(1, vec![7]);
        users.remove(1);
        assert!(users.take_unused(Duration::from_secs(60)).is_empty());
        users.set(2, vec![7]);
        assert!(users.take_unused(Duration::ZERO).is_empty());
    }
}
