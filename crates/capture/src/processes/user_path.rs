//! From the user frames of a sample to locations.

use std::sync::Arc;

use stackhound_core::address::ProcessAddr;
use stackhound_core::profile::Profile;
use stackhound_core::rows::LocationId;

use super::{Instance, Processes};
use crate::files::FileStore;
use crate::mappings::find;
use crate::python::Frame;

impl Processes {
    /// Appends the locations of a sample's user frames, root first; the frames come leaf first. Returns whether the walk
    /// left the code: frame pointers lead astray in code that was built without them, and what they find there is no
    /// return address, so it is cut off.
    ///
    /// One stack of a process mostly shares its outer callers with the last one: only the others are looked up.
    pub fn user_path(
        &mut self,
        pid: u32,
        frames: &mut Vec<Frame>,
        files: &mut FileStore,
        profile: &mut Profile,
        path: &mut Vec<LocationId>,
    ) -> bool {
        if frames.is_empty() {
            return false;
        }
        let (mut callers, is_broken) = self.share_callers(pid, frames);
        for at in (1..frames.len() - callers.len()).rev() {
            callers.push((frames[at], self.frame_location(pid, frames, at, files, profile)));
        }
        path.extend(callers.iter().map(|(_, location)| location));
        path.push(self.frame_location(pid, frames, 0, files, profile));
        if let Some(instance) = self.by_pid.get_mut(&pid) {
            instance.callers = callers;
        }
        is_broken
    }

    /// The part of the last stack that this one begins with, and whether native callers were cut off because they are
    /// in no code. What is known of the other frames is in `known` then.
    fn share_callers(&mut self, pid: u32, frames: &mut Vec<Frame>) -> (Vec<(Frame, LocationId)>, bool) {
        self.known.clear();
        let Some(instance) = self.by_pid.get_mut(&pid) else {
            self.known.resize(frames.len(), None);
            return (Vec::new(), false);
        };
        instance.leave_old_program(frames[0]);
        let generation = *instance.generation.get_or_insert_with(|| self.lately.generation());
        let mut callers = std::mem::take(&mut instance.callers);
        let pairs = callers.iter().zip(frames[1..].iter().rev());
        let shared = pairs.take_while(|((known, _), frame)| known == *frame).count();
        // In one go, so that the processor waits for many lines of memory at a time.
        let addresses = frames[..frames.len() - shared].iter().enumerate();
        let lately = &self.lately;
        let known = addresses.map(|(at, frame)| lately.location(generation, address_of(at, frame)));
        self.known.extend(known);
        let is_astray = |at: &usize| self.known[*at].is_none() && instance.is_outside(frames[*at]);
        let Some(first) = (1..self.known.len()).find(is_astray) else {
            callers.truncate(shared);
            return (callers, false);
        };
        let mut at = 0;
        frames.retain(|frame| {
            at += 1;
            at <= first || matches!(frame, Frame::Python(..))
        });
        self.known.truncate(first);
        self.known.resize(frames.len(), None);
        (Vec::new(), true)
    }

    fn frame_location(
        &mut self,
        pid: u32,
        frames: &[Frame],
        at: usize,
        files: &mut FileStore,
        profile: &mut Profile,
    ) -> LocationId {
        match frames[at] {
            Frame::Python(location, _) => location,
            Frame::Native(_) => self.known[at].unwrap_or_else(|| {
                let address = address_of(at, &frames[at]);
                self.new_location(pid, address, files, profile)
            }),
        }
    }

    fn new_location(
        &mut self,
        pid: u32,
        address: ProcessAddr,
        files: &mut FileStore,
        profile: &mut Profile,
    ) -> LocationId {
        let (object, in_object) = self.resolve(pid, address, files, profile);
        let location = profile.location(object, in_object);
        let generation = self.by_pid.get(&pid).and_then(|instance| instance.generation);
        if let Some(generation) = generation.filter(|_| self.reason(object).is_none()) {
            self.lately.keep(generation, address, location);
        }
        location
    }
}

/// Where the instruction is: in the leaf the next one, in a caller the call, before the address that it returns to.
fn address_of(at: usize, frame: &Frame) -> ProcessAddr {
    ProcessAddr(frame.address().wrapping_sub(u64::from(at > 0)))
}

impl Instance {
    /// Once an instruction of the program that was exec'd has run.
    fn leave_old_program(&mut self, leaf: Frame) {
        if !self.before_exec.is_empty() && find(&self.mappings, leaf.address()).is_some() {
            self.before_exec = Arc::default();
            self.forget_frames();
        }
    }

    /// Whether a caller is in no code.
    fn is_outside(&self, caller: Frame) -> bool {
        match caller {
            Frame::Native(address) => !self.was_gone && self.find(address.wrapping_sub(1)).is_none(),
            Frame::Python(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> u64 {
        here as *const () as u64
    }

    /// What looks up stacks of this very process.
    struct LookUp {
        processes: Processes,
        files: FileStore,
        profile: Profile,
    }

    impl LookUp {
        fn new() -> Self {
            let (mut processes, mut files) = (Processes::new(false), FileStore::default());
            processes.scan(std::process::id(), &mut files, 0);
            Self {
                processes,
                files,
                profile: Profile::default(),
            }
        }

        /// How many frames have locations, and whether the walk left the code.
        fn path(&mut self, addresses: &[u64]) -> (usize, bool) {
            let mut frames: Vec<Frame> = addresses.iter().copied().map(Frame::Native).collect();
            let (pid, mut path) = (std::process::id(), Vec::new());
            let (files, profile) = (&mut self.files, &mut self.profile);
            let is_broken = (self.processes).user_path(pid, &mut frames, files, profile, &mut path);
            (path.len(), is_broken)
        }
    }

    #[test]
    fn callers_in_no_code_are_cut_off_each_time() {
        let mut look_up = LookUp::new();
        for _ in 0..2 {
            let broken = look_up.path(&[here(), here() + 8, 0x10, here() + 16]);
            assert_eq!(broken, (2, true));
            assert_eq!(look_up.path(&[here(), here() + 8, here() + 16]), (3, false));
        }
    }

    #[test]
    fn a_leaf_in_no_code_is_kept_and_no_caller_takes_it_for_code() {
        let mut look_up = LookUp::new();
        assert_eq!(look_up.path(&[0x10, here()]), (2, false));
        assert_eq!(look_up.path(&[here(), 0x11]), (1, true));
    }
}
