//! Code at an address where other code was before: made code comes and goes, and samples of both are told apart by
//! their time.

use crate::address::ObjectAddr;
use crate::profile::Profile;
use crate::rows::{LocationId, ObjectId, StackId};

/// Bits of an address that a process can have, in an object whose code takes the place of other code. Those above them
/// count what was there before.
const ADDRESS_BITS: u32 = 56;

/// Places of code one after the other at an address that can be told apart; the last one stands for all behind it.
pub const MAX_GENERATION: usize = (1 << (u64::BITS - ADDRESS_BITS)) - 1;

/// The code that was at an address after so many others.
pub fn with_generation(address: u64, generation: usize) -> ObjectAddr {
    ObjectAddr(address | (generation.min(MAX_GENERATION) as u64) << ADDRESS_BITS)
}

/// The address alone, and how many others had been there before.
pub fn split_generation(address: ObjectAddr) -> (u64, usize) {
    let generation = address.0 >> ADDRESS_BITS;
    (address.0 & ((1 << ADDRESS_BITS) - 1), generation as usize)
}

impl Profile {
    /// The addresses of an object's locations, without generations: each once, in increasing order.
    pub fn addresses_of(&self, object: ObjectId) -> Vec<u64> {
        let locations = self.locations.object.iter().zip(&self.locations.address);
        let of_object = locations.filter(|(of, _)| **of == object);
        let mut addresses: Vec<u64> = of_object.map(|(_, address)| split_generation(*address).0).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Move frames at these addresses of an object, which are in increasing order, to the generation that was there at
    /// the time of their sample. Samples that were handed over stay as they are.
    pub fn tell_apart(&mut self, object: ObjectId, reused: &[u64], generation_at: impl Fn(u64, u64) -> usize) {
        let is_concerned = self.stacks_at(object, reused);
        for row in 0..self.samples.len() {
            let stack = self.samples.stack[row];
            if is_concerned[stack.index()] {
                let time_ns = self.samples.boottime_ns[row];
                let address = |address| match reused.binary_search(&address) {
                    Ok(_) => with_generation(address, generation_at(address, time_ns)),
                    Err(_) => ObjectAddr(address),
                };
                self.samples.stack[row] = self.moved(stack, object, address);
            }
        }
    }

    /// Which stacks have a frame at one of these addresses.
    fn stacks_at(&self, object: ObjectId, addresses: &[u64]) -> Vec<bool> {
        self.stacks.having(|location| {
            let address = || split_generation(self.locations.address[location.index()]).0;
            self.locations.object[location.index()] == object && addresses.binary_search(&address()).is_ok()
        })
    }

    /// The stack with its frames in `object` where `address` says.
    fn moved(&mut self, stack: StackId, object: ObjectId, address: impl Fn(u64) -> ObjectAddr) -> StackId {
        let mut path = self.path(stack);
        for location in &mut path {
            if self.locations.object[location.index()] == object {
                let place = split_generation(self.locations.address[location.index()]).0;
                *location = self.location(object, address(place));
            }
        }
        self.stack(&path)
    }

    /// The locations of a stack, root first.
    fn path(&self, stack: StackId) -> Vec<LocationId> {
        let mut path: Vec<LocationId> = self.stacks.frames(stack).collect();
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{ObjectKind, SampleRow};

    /// A sample of made code that calls a library, with the stack main → made → library.
    fn sample(profile: &mut Profile, boottime_ns: u64, made: u64) {
        let objects = [(ObjectKind::Elf, 1), (ObjectKind::Jit, made), (ObjectKind::Elf, 2)];
        let path = objects.map(|(kind, address)| {
            let object = profile.object(kind, "", &[]);
            profile.location(object, ObjectAddr(address))
        });
        let stack = profile.stack(&path);
        profile.sample(SampleRow {
            boottime_ns,
            stack,
            count: 1,
            ..SampleRow::default()
        });
    }

    /// The addresses of each sample's stack, root first.
    fn paths(profile: &Profile) -> Vec<Vec<(u64, usize)>> {
        let address = |location: LocationId| split_generation(profile.locations.address[location.index()]);
        let stacks = profile.samples.stack.iter();
        stacks
            .map(|stack| profile.path(*stack).into_iter().map(address).collect())
            .collect()
    }

    /// Samples of the code that came later have a location of their own; others keep theirs, and so does the caller's.
    #[test]
    fn samples_are_told_apart_by_their_time() {
        let mut profile = Profile::default();
        for (time_ns, made) in [(10, 0x50), (20, 0x50), (30, 0x60)] {
            sample(&mut profile, time_ns, made);
        }
        let object = profile.object(ObjectKind::Jit, "", &[]);
        assert_eq!(profile.addresses_of(object), [0x50, 0x60]);
        for _ in 0..2 {
            profile.tell_apart(object, &[0x50], |_, time_ns| usize::from(time_ns >= 15));
            let expected = [
                [(1, 0), (0x50, 0), (2, 0)],
                [(1, 0), (0x50, 1), (2, 0)],
                [(1, 0), (0x60, 0), (2, 0)],
            ];
            assert_eq!(paths(&profile), expected);
        }
        assert_eq!(profile.addresses_of(object), [0x50, 0x60]);
    }

    /// What comes after the last generation that can be told counts as that.
    #[test]
    fn generations_have_an_end() {
        assert_eq!(
            split_generation(with_generation(0x7fff_ffff_ffff, 3)),
            (0x7fff_ffff_ffff, 3)
        );
        assert_eq!(split_generation(with_generation(8, 1_000)), (8, MAX_GENERATION));
    }
}
