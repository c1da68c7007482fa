//! Locations found lately, by process and address: stacks repeat, and one line of memory replaces the search through a
//! process's mappings, a file's segments and all locations.

use std::num::NonZeroU32;

use stackhound_core::address::ProcessAddr;
use stackhound_core::rows::LocationId;

/// Tells one process's mappings, at one time, from all others.
pub type Generation = NonZeroU32;

/// Places, as a power of two: 64 KiB.
const PLACE_BITS: u32 = 12;

#[derive(Clone, Copy)]
struct Place {
    address: ProcessAddr,
    generation: Generation,
    location: LocationId,
}

/// The last location at each place.
pub struct Lately {
    places: Box<[Option<Place>]>,
    generations: Generation,
}

impl Default for Lately {
    fn default() -> Self {
        Self {
            places: vec![None; 1 << PLACE_BITS].into(),
            generations: Generation::MIN,
        }
    }
}

impl Lately {
    /// One that nothing is known of yet.
    pub fn generation(&mut self) -> Generation {
        self.generations = self.generations.checked_add(1).unwrap_or_else(|| {
            self.places.fill(None);
            Generation::MIN
        });
        self.generations
    }

    /// The location of an address, unless another has taken its place.
    pub fn location(&self, generation: Generation, address: ProcessAddr) -> Option<LocationId> {
        let found = self.places[place(generation, address)]?;
        (found.generation == generation && found.address == address).then_some(found.location)
    }

    /// Keeps a location.
    pub fn keep(&mut self, generation: Generation, address: ProcessAddr, location: LocationId) {
        self.places[place(generation, address)] = Some(Place {
            address,
            generation,
            location,
        });
    }
}

fn place(generation: Generation, address: ProcessAddr) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = address.0 ^ u64::from(generation.get()) << 40;
    (key.wrapping_mul(GOLDEN) >> (u64::BITS - PLACE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use stackhound_core::address::ObjectAddr;
    use stackhound_core::profile::Profile;
    use stackhound_core::rows::ObjectKind;

    use super::*;

    #[test]
    fn a_location_is_found_again_under_its_own_generation_only() {
        let (mut profile, mut lately) = (Profile::default(), Lately::default());
        let object = profile.object(ObjectKind::Elf, "/bin/app", &[]);
        let location = profile.location(object, ObjectAddr(0x40));
        let (before, after) = (lately.generation(), lately.generation());
        lately.keep(before, ProcessAddr(0x1000), location);
        assert_eq!(lately.location(before, ProcessAddr(0x1000)), Some(location));
        assert_eq!(lately.location(after, ProcessAddr(0x1000)), None);
        assert_eq!(lately.location(before, ProcessAddr(0x1001)), None);
    }
}
