//! Stacks as a prefix tree: row 0 is the empty stack, parents come before their children.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::Error;

/// Entries that the paths of one tree may have together: 5 M stacks of 50 frames, 1 GiB of ids.
const MAX_PATH_ENTRIES: usize = 1 << 28;

/// The prefix tree of a profile's stacks, checked.
///
/// `parent[i] < i` for each row but the first, so that walking up ends at row 0.
#[derive(Clone, Copy)]
pub struct StackTree<'a> {
    parent: &'a [u32],
    location: &'a [u32],
}

impl<'a> StackTree<'a> {
    /// The tree of these columns, both of shape (n_stacks,). An error if they are no tree.
    pub fn new(parent: &'a [u32], location: &'a [u32]) -> Result<Self, Error> {
        if parent.len() != location.len() {
            let (parents, locations) = (parent.len(), location.len());
            return Err(Error::damaged(format_args!(
                "stacks have {parents} parents, but {locations} locations"
            )));
        }
        match parent
            .iter()
            .enumerate()
            .skip(1)
            .find(|&(stack, &parent)| parent as usize >= stack)
        {
            Some((stack, parent)) => Err(Error::damaged(format_args!(
                "stack {stack} has parent {parent}, which does not come before it"
            ))),
            None => Ok(Self { parent, location }),
        }
    }

    /// How many stacks there are.
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// Whether there is no stack at all, not even the empty one.
    pub fn is_empty(&self) -> bool {
        self.parent.is_empty()
    }

    /// The stack without its leaf; 0 for the empty stack.
    pub fn parent(&self, stack: u32) -> u32 {
        if stack == 0 { 0 } else { self.parent[stack as usize] }
    }

    /// The leaf of a stack. The empty stack's has no meaning.
    pub fn location(&self, stack: u32) -> u32 {
        self.location[stack as usize]
    }

    /// The greatest location id that a stack uses; None when every stack is empty.
    pub fn max_location(&self) -> Option<u32> {
        self.location.iter().skip(1).max().copied()
    }

    /// The path root → leaf of every stack: offsets of shape (n_stacks + 1,), and the locations they delimit.
    pub fn paths(&self) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let offsets = self.path_offsets()?;
        let mut locations = vec![0; offsets.last().map_or(0, |&end| end as usize)];
        for stack in 1..self.len() {
            let end = offsets[stack + 1] as usize - 1;
            let inherited = self.parent[stack] as usize;
            locations.copy_within(
                offsets[inherited] as usize..offsets[inherited + 1] as usize,
                offsets[stack] as usize,
            );
            locations[end] = self.location[stack];
        }
        Ok((offsets, locations))
    }

    fn path_offsets(&self) -> Result<Vec<u32>, Error> {
        let mut offsets = Vec::with_capacity(self.len() + 1);
        offsets.push(0);
        let mut end = 0;
        for stack in 0..self.len() {
            if stack > 0 {
                let parent = self.parent[stack] as usize;
                end += (offsets[parent + 1] - offsets[parent]) as usize + 1;
            }
            if end > MAX_PATH_ENTRIES {
                return Err(Error::damaged(format_args!(
                    "the stacks have more than {MAX_PATH_ENTRIES} frames together"
                )));
            }
            offsets.push(end as u32);
        }
        Ok(offsets)
    }
}

/// A prefix tree that grows: each distinct path gets one id.
pub struct PathTree {
    parent: Vec<u32>,
    location: Vec<u32>,
    depth: Vec<u16>,
    children: HashMap<u64, u32>,
}

impl Default for PathTree {
    fn default() -> Self {
        Self {
            parent: vec![0],
            location: vec![0],
            depth: vec![0],
            children: HashMap::new(),
        }
    }
}

impl PathTree {
    /// The id of `parent` with `location` as its leaf.
    pub fn child(&mut self, parent: u32, location: u32) -> Result<u32, Error> {
        let next = self.parent.len() as u32;
        let slot = match self.children.entry(pair(parent, location)) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(slot) => slot,
        };
        let depth = self.depth[parent as usize].checked_add(1);
        self.depth
            .push(depth.ok_or_else(|| Error::damaged("a path has more than 65,535 frames"))?);
        self.parent.push(parent);
        self.location.push(location);
        Ok(*slot.insert(next))
    }

    /// The columns (parent, location, depth), each of shape (n_stacks,).
    pub fn into_columns(self) -> (Vec<u32>, Vec<u32>, Vec<u16>) {
        (self.parent, self.location, self.depth)
    }
}

/// Two ids as one hash key.
pub(crate) fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Build the prefix tree of paths given root → leaf as CSR. Returns it, and each path's stack id.
pub fn intern_paths(offsets: &[u32], locations: &[u32]) -> Result<(PathTree, Vec<u32>), Error> {
    let mut tree = PathTree::default();
    let mut ids = Vec::with_capacity(offsets.len().saturating_sub(1));
    for bounds in offsets.windows(2) {
        let path = locations
            .get(bounds[0] as usize..bounds[1] as usize)
            .ok_or_else(|| Error::damaged("the offsets of the paths do not fit their locations"))?;
        let mut stack = 0;
        for &location in path {
            stack = tree.child(stack, location)?;
        }
        ids.push(stack);
    }
    Ok((tree, ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path interned twice has one id, and a shared prefix is stored once.
    #[test]
    fn paths_share_their_prefix() {
        let (tree, ids) = intern_paths(&[0, 2, 4, 6, 6], &[1, 2, 1, 3, 1, 2]).unwrap();
        assert_eq!(ids, [2, 3, 2, 0]);
        assert_eq!(
            tree.into_columns(),
            (vec![0, 0, 1, 1], vec![0, 1, 2, 3], vec![0, 1, 2, 2])
        );
    }

    /// What was interned comes back as it was.
    #[test]
    fn paths_survive_the_tree() {
        let (offsets, locations) = (vec![0, 3, 3, 5, 9], vec![7, 7, 1, 7, 2, 7, 7, 1, 0]);
        let (tree, ids) = intern_paths(&offsets, &locations).unwrap();
        let (parent, location, _) = tree.into_columns();
        let (starts, paths) = StackTree::new(&parent, &location).unwrap().paths().unwrap();
        for (path, &stack) in ids.iter().enumerate() {
            let expected = &locations[offsets[path] as usize..offsets[path + 1] as usize];
            assert_eq!(
                &paths[starts[stack as usize] as usize..starts[stack as usize + 1] as usize],
                expected
            );
        }
    }

    /// A cycle, a forward reference and columns that disagree are errors.
    #[test]
    fn a_tree_that_is_none_is_refused() {
        assert!(StackTree::new(&[0, 1], &[0, 0]).is_err());
        assert!(StackTree::new(&[0, 2, 1], &[0, 0, 0]).is_err());
        assert!(StackTree::new(&[0, 0], &[0]).is_err());
        assert!(StackTree::new(&[], &[]).unwrap().paths().is_ok());
    }

    /// A chain whose paths would fill the memory is refused before anything is allocated for it.
    #[test]
    fn paths_too_long_together_are_refused() {
        let parent: Vec<u32> = (0..40_000u32).map(|stack| stack.saturating_sub(1)).collect();
        assert!(StackTree::new(&parent, &parent).unwrap().paths().is_err());
    }

    /// Offsets that go backwards or beyond the end are errors.
    #[test]
    fn offsets_that_do_not_fit_are_refused() {
        assert!(intern_paths(&[0, 2, 1], &[1, 2]).is_err());
        assert!(intern_paths(&[0, 3], &[1, 2]).is_err());
        assert!(intern_paths(&[], &[]).unwrap().1.is_empty());
    }
}
