//! The stacks of a recording: small while they grow, and the rows of the table `stacks` when they are asked for.
//!
//! A stack is a path in a prefix tree, whose rows are single frames: a parent and a location each. Where each stack is
//! another one, most rows are nobody else's (the kernel's frames at the end of a new path, for one), and all say what
//! others said before. While it grows the tree is therefore one of words of [`WORD`] frames: a program takes new paths
//! through the same parts, so that words repeat where stacks do not.

use std::hash::{BuildHasher, Hash};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::hashes::hash_stack;
use crate::paths::pair;
use crate::rows::{LocationId, StackId};

/// Frames in a word. With more of them words repeat less, with fewer there are more nodes.
const WORD: usize = 16;

/// Frames that a stack may have, by the type of the column `depth`; what is below them is left out.
const MAX_FRAMES: usize = u16::MAX as usize;

/// Locations, the outermost first, and [`NO_LOCATION`] behind them.
type Word = [u32; WORD];

/// There are fewer locations than that.
const NO_LOCATION: u32 = u32::MAX;

/// A stack: one of whole words, with another word below it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    parent: u32,
    word: u32,
}

/// Each distinct stack once.
pub(crate) struct Stacks {
    words: Distinct<Word>,
    /// The first one is the empty stack; parents come before their children.
    nodes: Distinct<Node>,
    last: LastPath,
}

impl Default for Stacks {
    fn default() -> Self {
        let (mut words, mut nodes) = (Distinct::default(), Distinct::default());
        let word = words.id([NO_LOCATION; WORD]);
        nodes.id(Node { parent: 0, word });
        Self {
            words,
            nodes,
            last: LastPath::default(),
        }
    }
}

impl Stacks {
    /// The stack of these locations, which come root first.
    pub(crate) fn intern(&mut self, path: &[LocationId]) -> StackId {
        let path = &path[..path.len().min(MAX_FRAMES)];
        let known = self.last.share(path);
        let mut stack = self.last.stacks.last().copied().unwrap_or(0);
        for part in path.chunks(WORD).skip(known) {
            let word = self.words.id(word_of(part));
            stack = self.nodes.id(Node { parent: stack, word });
            self.last.stacks.push(stack);
        }
        StackId(stack)
    }

    /// The locations of a stack, leaf first.
    pub(crate) fn frames(&self, stack: StackId) -> impl Iterator<Item = LocationId> {
        let nodes = &self.nodes.values;
        let above = move |node: &Node| (node.parent > 0).then(|| nodes[node.parent as usize]);
        let upwards = std::iter::successors(Some(nodes[stack.index()]), above);
        upwards.flat_map(move |node| self.locations(node).rev().map(LocationId))
    }

    /// Which stacks have a frame that is meant; shape (n_stacks,).
    pub(crate) fn having(&self, is_meant: impl Fn(LocationId) -> bool) -> Vec<bool> {
        let has_one = |word: &Word| locations_of(word).any(|location| is_meant(LocationId(location)));
        let words: Vec<bool> = self.words.values.iter().map(has_one).collect();
        let mut found = vec![false; self.nodes.values.len()];
        for (stack, node) in self.nodes.values.iter().enumerate().skip(1) {
            found[stack] = found[node.parent as usize] || words[node.word as usize];
        }
        found
    }

    fn locations(&self, node: Node) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
        locations_of(&self.words.values[node.word as usize])
    }
}

fn word_of(locations: &[LocationId]) -> Word {
    let mut word = [NO_LOCATION; WORD];
    for (place, location) in word.iter_mut().zip(locations) {
        *place = location.0;
    }
    word
}

fn locations_of(word: &Word) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
    let end = word.iter().position(|&location| location == NO_LOCATION);
    word[..end.unwrap_or(WORD)].iter().copied()
}

/// Values by number, each once: five to ten bytes more than the value.
struct Distinct<T> {
    values: Vec<T>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            ids: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<T: Copy + Eq + Hash> Distinct<T> {
    fn id(&mut self, value: T) -> u32 {
        let Self { values, ids, hasher } = self;
        let next = values.len() as u32;
        let is_it = |&id: &u32| values[id as usize] == value;
        let rehash = |&id: &u32| hasher.hash_one(values[id as usize]);
        match ids.entry(hasher.hash_one(value), is_it, rehash) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                place.insert(next);
                values.push(value);
                next
            }
        }
    }
}

/// The path that was interned last: the next one often begins with the same words.
#[derive(Default)]
struct LastPath {
    locations: Vec<LocationId>,
    /// Of each word the stack that it ends.
    stacks: Vec<u32>,
}

impl LastPath {
    /// How many words this path has in common with the last one, whose place it takes: the stacks of the others follow.
    fn share(&mut self, path: &[LocationId]) -> usize {
        let pairs = self.locations.chunks(WORD).zip(path.chunks(WORD));
        let shared = pairs.take_while(|(last, next)| last == next).count();
        self.stacks.truncate(shared);
        self.locations.clear();
        self.locations.extend_from_slice(path);
        shared
    }
}

/// The children of each node, older ones first.
struct Families {
    /// Where each node's children end among all.
    ends: Vec<u32>,
    children: Vec<u32>,
}

impl Families {
    fn new(nodes: &[Node]) -> Self {
        let mut ends = vec![0; nodes.len() + 1];
        for node in &nodes[1..] {
            ends[node.parent as usize + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1]; // for now, where they begin
        }
        let mut children = vec![0; nodes.len() - 1];
        for (child, node) in (0..).zip(nodes).skip(1) {
            let place = &mut ends[node.parent as usize];
            children[*place as usize] = child;
            *place += 1;
        }
        Self { ends, children }
    }

    fn of(&self, parent: usize) -> &[u32] {
        let start = parent.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.children[start as usize..self.ends[parent] as usize]
    }
}

/// The table `stacks`; row 0 is the empty stack, and parents come before their children.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) parent: Vec<u32>,
    pub(crate) location: Vec<u32>,
    pub(crate) depth: Vec<u16>,
    /// Of each path's contents; 0 for the empty one's.
    pub(crate) hash: Vec<u64>,
    of_stack: Vec<u32>,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            parent: vec![0],
            location: vec![0],
            depth: vec![0],
            hash: vec![0],
            of_stack: vec![0],
        }
    }
}

impl Rows {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.parent.len()
    }

    /// Of a stack that is in the rows.
    pub(crate) fn of(&self, stack: StackId) -> u32 {
        self.of_stack[stack.index()]
    }

    /// Those from one on, as they are; which stacks they are of is left out.
    pub(crate) fn since(&self, first: usize) -> Self {
        Self {
            parent: self.parent[first..].to_vec(),
            location: self.location[first..].to_vec(),
            depth: self.depth[first..].to_vec(),
            hash: self.hash[first..].to_vec(),
            of_stack: Vec::new(),
        }
    }

    /// Adds the stacks that were interned since. `hash`: of each location.
    pub(crate) fn grow(&mut self, stacks: &Stacks, hash: &[u64]) {
        let first_new = self.of_stack.len();
        self.of_stack.resize(stacks.nodes.values.len(), 0);
        let families = Families::new(&stacks.nodes.values);
        for parent in 0..stacks.nodes.values.len() {
            let children = families.of(parent);
            if children.last().is_some_and(|&newest| newest as usize >= first_new) {
                self.add_family(parent, children, first_new, stacks, hash);
            }
        }
    }

    /// Words below the same parent may begin with the same frames, whose rows they share.
    fn add_family(&mut self, parent: usize, children: &[u32], first_new: usize, stacks: &Stacks, hash: &[u64]) {
        let top = self.of_stack[parent];
        let mut siblings = (children.len() > 1).then(HashMap::new);
        for &child in children {
            let child = child as usize;
            let locations = stacks.locations(stacks.nodes.values[child]);
            if child >= first_new {
                let below = |row, location| self.child(row, location, hash, siblings.as_mut());
                self.of_stack[child] = locations.fold(top, below);
            } else if let Some(siblings) = &mut siblings {
                self.note(self.of_stack[child], locations.len(), siblings);
            }
        }
    }

    /// A row that siblings may have made; without siblings a new one.
    fn child(&mut self, parent: u32, location: u32, hash: &[u64], siblings: Option<&mut HashMap<u64, u32>>) -> u32 {
        match siblings {
            None => self.push(parent, location, hash),
            Some(siblings) => {
                let row = siblings.entry(pair(parent, location));
                *row.or_insert_with(|| self.push(parent, location, hash))
            }
        }
    }

    fn push(&mut self, parent: u32, location: u32, hash: &[u64]) -> u32 {
        let (row, above) = (self.parent.len() as u32, parent as usize);
        self.parent.push(parent);
        self.location.push(location);
        self.depth.push(self.depth[above] + 1); // at most MAX_FRAMES
        self.hash.push(hash_stack(self.hash[above], hash[location as usize]));
        row
    }

    /// Tells siblings that are to come of the rows of a word, of which `row` is the last.
    fn note(&self, mut row: u32, frames: usize, siblings: &mut HashMap<u64, u32>) {
        for _ in 0..frames {
            let parent = self.parent[row as usize];
            siblings.insert(pair(parent, self.location[row as usize]), row);
            row = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::{StackTree, intern_paths};
    use crate::random::Random;

    fn path(locations: &[u32]) -> Vec<LocationId> {
        locations.iter().copied().map(LocationId).collect()
    }

    /// Random paths of up to 30 frames that have much in common.
    fn random_paths(random: &mut Random, count: usize) -> Vec<Vec<u32>> {
        let mut path = |_| {
            let frames = random.next() % 31;
            (0..frames).map(|_| (random.next() % 2) as u32).collect()
        };
        (0..count).map(&mut path).collect()
    }

    /// All paths of a tree, sorted, with the hash of each.
    fn contents(parent: &[u32], location: &[u32], hash: &[u64]) -> Vec<(Vec<u32>, u64)> {
        let (offsets, locations) = StackTree::new(parent, location).unwrap().paths().unwrap();
        let path = |ends: &[u32]| locations[ends[0] as usize..ends[1] as usize].to_vec();
        let mut rows: Vec<_> = offsets.windows(2).map(path).zip(hash.iter().copied()).collect();
        rows.sort_unstable();
        rows
    }

    /// What was interned comes back, leaf first, and the same path is the same stack.
    #[test]
    fn paths_survive() {
        let (mut stacks, mut random) = (Stacks::default(), Random::new(3));
        let paths = random_paths(&mut random, 2_000);
        let ids: Vec<StackId> = paths.iter().map(|locations| stacks.intern(&path(locations))).collect();
        for (locations, &id) in paths.iter().zip(&ids) {
            let mut found: Vec<u32> = stacks.frames(id).map(|location| location.0).collect();
            found.reverse();
            assert_eq!(&found, locations);
            assert_eq!(stacks.intern(&path(locations)), id);
        }
        assert_eq!(stacks.intern(&[]), StackId::EMPTY);
    }

    /// The rows are those of a prefix tree of frames: each path once, with its depth and hash.
    #[test]
    fn rows_are_a_prefix_tree_of_frames() {
        let (mut stacks, mut random) = (Stacks::default(), Random::new(5));
        let paths = random_paths(&mut random, 3_000);
        let ids: Vec<StackId> = paths.iter().map(|locations| stacks.intern(&path(locations))).collect();
        let hash_of_location = [11, 22];
        let mut rows = Rows::default();
        rows.grow(&stacks, &hash_of_location);

        let ends = paths.iter().scan(0, |end, path| {
            *end += path.len() as u32;
            Some(*end)
        });
        let offsets: Vec<u32> = [0].into_iter().chain(ends).collect();
        let (tree, _) = intern_paths(&offsets, &paths.concat()).unwrap();
        let (parent, location, _) = tree.into_columns();
        let mut hash = vec![0; parent.len()];
        for row in 1..parent.len() {
            hash[row] = hash_stack(hash[parent[row] as usize], hash_of_location[location[row] as usize]);
        }
        assert_eq!(
            contents(&rows.parent, &rows.location, &rows.hash),
            contents(&parent, &location, &hash)
        );
        for (path, id) in paths.iter().zip(ids) {
            assert_eq!(usize::from(rows.depth[rows.of(id) as usize]), path.len());
        }
    }

    /// Rows that were made stay, and later stacks share them, however the growing was interrupted.
    #[test]
    fn rows_grow_as_one_tree() {
        let mut random = Random::new(7);
        let paths = random_paths(&mut random, 1_000);
        let (mut stacks, mut by_parts) = (Stacks::default(), Rows::default());
        for part in paths.chunks(37) {
            for locations in part {
                stacks.intern(&path(locations));
            }
            let before = by_parts.hash.clone();
            by_parts.grow(&stacks, &[11, 22]);
            assert_eq!(by_parts.hash[..before.len()], before);
        }
        let mut at_once = Rows::default();
        at_once.grow(&stacks, &[11, 22]);
        let sorted = |rows: &Rows| contents(&rows.parent, &rows.location, &rows.hash);
        assert_eq!(sorted(&by_parts), sorted(&at_once));
    }

    /// A stack has as many frames as its depth can count, those next to its root.
    #[test]
    fn the_deepest_frames_are_left_out() {
        let mut stacks = Stacks::default();
        let stack = stacks.intern(&vec![LocationId(0); MAX_FRAMES + 9]);
        let mut rows = Rows::default();
        rows.grow(&stacks, &[1]);
        assert_eq!(rows.depth.last(), Some(&u16::MAX));
        assert_eq!(stacks.frames(stack).count(), MAX_FRAMES);
    }

    /// Only stacks with such a frame, whatever is below it.
    #[test]
    fn stacks_are_found_by_their_frames() {
        let mut stacks = Stacks::default();
        let with: Vec<u32> = [vec![0; 6], vec![1], vec![0; 9]].concat();
        let [with, without] = [with, vec![0; 16]].map(|locations| stacks.intern(&path(&locations)));
        let found = stacks.having(|location| location.0 == 1);
        assert_eq!([with, without].map(|stack| found[stack.index()]), [true, false]);
    }
}
