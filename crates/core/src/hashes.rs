//! Hashes of what stacks contain: equal across processes, hosts and files.

use xxhash_rust::xxh3::xxh3_64;

use crate::Error;
use crate::paths::StackTree;

/// The hash of a location: XXH3 of kind ‖ 0 ‖ identity ‖ 0 ‖ address (8 bytes, little-endian), where the identity is
/// the object's build-id in hex, or its path where there is none.
pub fn hash_location(kind: &str, identity: &str, address: u64) -> u64 {
    xxh3_64(
        &[
            kind.as_bytes(),
            b"\0",
            identity.as_bytes(),
            b"\0",
            &address.to_le_bytes(),
        ]
        .concat(),
    )
}

/// The hash of a stack: XXH3 of its caller's and its leaf's, little-endian. The empty stack's is 0.
pub fn hash_stack(caller: u64, leaf: u64) -> u64 {
    xxh3_64([caller.to_le_bytes(), leaf.to_le_bytes()].as_flattened())
}

/// The hash of every stack, for locations given as columns, and objects as (kind, identity).
pub fn hash_stacks(
    stacks: StackTree,
    location_object: &[u32],
    location_address: &[u64],
    objects: &[(String, String)],
) -> Result<Vec<u64>, Error> {
    let locations = location_object
        .iter()
        .zip(location_address)
        .map(|(&object, &address)| {
            let (kind, identity) = objects
                .get(object as usize)
                .ok_or_else(|| Error::damaged(format_args!("a location has object {object}, of {}", objects.len())))?;
            Ok(hash_location(kind, identity, address))
        })
        .collect::<Result<Vec<u64>, Error>>()?;
    let mut hashes = vec![0; stacks.len()];
    for stack in 1..stacks.len() {
        let location = stacks.location(stack as u32);
        let leaf = *locations
            .get(location as usize)
            .ok_or_else(|| Error::damaged(format_args!("a stack has location {location}, of {}", locations.len())))?;
        hashes[stack] = hash_stack(hashes[stacks.parent(stack as u32) as usize], leaf);
    }
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each stack's hash follows from its caller's and its own location's.
    #[test]
    fn hashes_go_from_the_root_to_the_leaf() {
        let objects = [
            ("elf".to_owned(), "ab01".to_owned()),
            ("kernel".to_owned(), "[kernel]".to_owned()),
        ];
        let stacks = StackTree::new(&[0, 0, 1], &[0, 1, 0]).unwrap();
        let (main, read) = (hash_location("kernel", "[kernel]", 7), hash_location("elf", "ab01", 16));
        let first = hash_stack(0, main);
        let hashes = hash_stacks(stacks, &[0, 1], &[16, 7], &objects).unwrap();
        assert_eq!(hashes, [0, first, hash_stack(first, read)]);
    }

    /// Ids beyond their tables are errors, not panics.
    #[test]
    fn ids_out_of_range_are_refused() {
        let objects = [("elf".to_owned(), "ab01".to_owned())];
        let stacks = StackTree::new(&[0, 0], &[9, 1]).unwrap();
        assert!(hash_stacks(stacks, &[0], &[16], &objects).is_err());
        assert!(hash_stacks(stacks, &[0, 1], &[16, 7], &objects).is_err());
        assert!(hash_stacks(stacks, &[0, 0], &[16, 7], &objects).is_ok());
    }
}
