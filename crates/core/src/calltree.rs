//! Samples merged into one tree of frames.

use hashbrown::HashMap;

use crate::Error;
use crate::paths::{StackTree, pair};

/// The frame of row 0, which stands for everything.
pub const ROOT_FRAME: u32 = u32::MAX;

/// Nodes that a tree may have: 1 M samples, no two alike, of 64 frames each. 1.6 GB of columns.
const MAX_NODES: usize = 1 << 26;

/// Observations to merge, one a row.
pub struct Weights<'a> {
    /// A label for each sample, which becomes the first level of the tree; None for no such level.
    pub root: Option<&'a [u32]>,
    /// Stack ids.
    pub stack: &'a [u32],
    /// What each sample counts for.
    pub value: &'a [u64],
}

/// The frames to show at each location, outermost first: several where functions were inlined, none to hide it.
#[derive(Clone, Copy)]
pub struct FrameTable<'a> {
    offsets: &'a [u32],
    frames: &'a [u32],
}

impl<'a> FrameTable<'a> {
    /// The table of these columns: offsets of shape (n_locations + 1,), and the frames they delimit.
    pub fn new(offsets: &'a [u32], frames: &'a [u32]) -> Result<Self, Error> {
        let fits = offsets.last().is_some_and(|&end| end as usize <= frames.len());
        if !fits || !offsets.is_sorted() {
            return Err(Error::damaged("the frame offsets do not fit the frames"));
        }
        Ok(Self { offsets, frames })
    }

    fn locations(&self) -> usize {
        self.offsets.len() - 1
    }

    fn at(&self, location: u32) -> &'a [u32] {
        let location = location as usize;
        &self.frames[self.offsets[location] as usize..self.offsets[location + 1] as usize]
    }
}

/// A tree of frames as columns of equal length. Row 0 is the root; parents come before their children.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CallTree {
    /// The caller's row; 0 for row 0.
    pub parent: Vec<u32>,
    /// The frame, or the root label at the first level when there are any; [`ROOT_FRAME`] for row 0.
    pub frame: Vec<u32>,
    /// 0 for row 0.
    pub depth: Vec<u32>,
    /// The weight of the samples that end here.
    pub self_value: Vec<u64>,
    /// The weight of the samples that pass through here.
    pub total_value: Vec<u64>,
}

/// Merge samples into one tree. What weighs nothing leaves no trace in it.
///
/// Takes an addition for each sample, and a hash for each frame of the distinct (root, stack prefix) pairs.
pub fn call_tree(weights: &Weights, stacks: StackTree, frames: FrameTable) -> Result<CallTree, Error> {
    check(weights, stacks, frames)?;
    let mut builder = Builder::new(stacks, frames);
    let samples = weights.stack.iter().copied().zip(weights.value.iter().copied());
    match weights.root {
        None => builder.add(0, samples)?,
        Some(root) => {
            for (label, samples) in by_label(root, samples)
                .iter()
                .filter(|(_, samples)| !samples.is_empty())
            {
                let base = builder.child(0, *label)?;
                builder.add(base, samples.iter().copied())?;
            }
        }
    }
    Ok(builder.finish())
}

/// The samples that weigh something under each label, labels in the order of their first sample.
fn by_label(root: &[u32], samples: impl Iterator<Item = (u32, u64)>) -> Vec<(u32, Vec<(u32, u64)>)> {
    let mut groups: Vec<(u32, Vec<(u32, u64)>)> = Vec::new();
    let mut group_of: HashMap<u32, usize> = HashMap::new();
    for (&label, (stack, value)) in root.iter().zip(samples).filter(|(_, (_, value))| *value > 0) {
        let group = *group_of.entry(label).or_insert(groups.len());
        if group == groups.len() {
            groups.push((label, Vec::new()));
        }
        groups[group].1.push((stack, value));
    }
    groups
}

fn check(weights: &Weights, stacks: StackTree, frames: FrameTable) -> Result<(), Error> {
    let samples = weights.stack.len();
    if weights.value.len() != samples || weights.root.is_some_and(|root| root.len() != samples) {
        return Err(Error::damaged("the samples' columns differ in length"));
    }
    if let Some(&stack) = weights
        .stack
        .iter()
        .max()
        .filter(|&&stack| stack as usize >= stacks.len())
    {
        return Err(Error::damaged(format_args!(
            "a sample has stack {stack}, of {}",
            stacks.len()
        )));
    }
    match stacks
        .max_location()
        .filter(|&location| location as usize >= frames.locations())
    {
        Some(location) => Err(Error::damaged(format_args!(
            "a stack has location {location}, of {}",
            frames.locations()
        ))),
        None => Ok(()),
    }
}

struct Builder<'a> {
    stacks: StackTree<'a>,
    frames: FrameTable<'a>,
    tree: CallTree,
    /// The node of each (parent, frame) under the present label: the other labels' would only fill the cache.
    children: HashMap<u64, u32>,
    nodes: NodeOfStack,
    /// The weight of each stack under the present label, zero between labels.
    sums: Vec<u64>,
    /// Stacks on the way up that have no node yet, leaf first.
    pending: Vec<u32>,
}

impl<'a> Builder<'a> {
    fn new(stacks: StackTree<'a>, frames: FrameTable<'a>) -> Self {
        let mut tree = CallTree::default();
        tree.push(0, ROOT_FRAME, 0);
        let (nodes, sums) = (NodeOfStack::new(stacks.len()), vec![0; stacks.len()]);
        Self {
            stacks,
            frames,
            tree,
            children: HashMap::new(),
            nodes,
            sums,
            pending: Vec::new(),
        }
    }

    /// Add the samples of one label, whose node is `base`.
    fn add(&mut self, base: u32, samples: impl Iterator<Item = (u32, u64)>) -> Result<(), Error> {
        let touched = self.sum(samples);
        self.children = HashMap::new();
        self.nodes.clear();
        self.nodes.set(0, base);
        for stack in touched {
            let sum = std::mem::take(&mut self.sums[stack as usize]);
            let node = self.node(stack)? as usize;
            self.tree.self_value[node] = self.tree.self_value[node].saturating_add(sum);
        }
        Ok(())
    }

    fn sum(&mut self, samples: impl Iterator<Item = (u32, u64)>) -> Vec<u32> {
        let mut touched = Vec::new();
        for (stack, value) in samples.filter(|(_, value)| *value > 0) {
            let sum = &mut self.sums[stack as usize];
            if *sum == 0 {
                touched.push(stack);
            }
            *sum = sum.saturating_add(value);
        }
        touched
    }

    fn node(&mut self, mut stack: u32) -> Result<u32, Error> {
        let mut node = loop {
            match self.nodes.get(stack) {
                Some(node) => break node,
                None => self.pending.push(stack),
            }
            stack = self.stacks.parent(stack);
        };
        while let Some(stack) = self.pending.pop() {
            for &frame in self.frames.at(self.stacks.location(stack)) {
                node = self.child(node, frame)?;
            }
            self.nodes.set(stack, node);
        }
        Ok(node)
    }

    fn child(&mut self, parent: u32, frame: u32) -> Result<u32, Error> {
        let next = self.tree.parent.len();
        let node = *self.children.entry(pair(parent, frame)).or_insert(next as u32);
        if node as usize == next {
            if next == MAX_NODES {
                return Err(Error::damaged(format_args!(
                    "the call tree has more than {MAX_NODES} nodes"
                )));
            }
            self.tree.push(parent, frame, self.tree.depth[parent as usize] + 1);
        }
        Ok(node)
    }

    fn finish(mut self) -> CallTree {
        self.tree.sum_up();
        self.tree
    }
}

impl CallTree {
    fn push(&mut self, parent: u32, frame: u32, depth: u32) {
        self.parent.push(parent);
        self.frame.push(frame);
        self.depth.push(depth);
        self.self_value.push(0);
    }

    fn sum_up(&mut self) {
        self.total_value = self.self_value.clone();
        for node in (1..self.parent.len()).rev() {
            let parent = self.parent[node] as usize;
            self.total_value[parent] = self.total_value[parent].saturating_add(self.total_value[node]);
        }
    }
}

/// The node of each stack under the present label, forgotten in constant time.
struct NodeOfStack {
    /// (generation, node)
    slots: Vec<(u32, u32)>,
    generation: u32,
}

impl NodeOfStack {
    fn new(stacks: usize) -> Self {
        Self {
            slots: vec![(0, 0); stacks.max(1)],
            generation: 1,
        }
    }

    /// There are fewer labels than u32 has values, so a generation never comes back.
    fn clear(&mut self) {
        self.generation += 1;
    }

    fn get(&self, stack: u32) -> Option<u32> {
        let (generation, node) = self.slots[stack as usize];
        (generation == self.generation).then_some(node)
    }

    fn set(&mut self, stack: u32, node: u32) {
        self.slots[stack as usize] = (self.generation, node);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::Random;

    const CHAIN: ([u32; 4], [u32; 4]) = ([0, 0, 1, 1], [0, 0, 1, 2]);

    fn merge(weights: &Weights, offsets: &[u32], frames: &[u32]) -> Result<CallTree, Error> {
        let (parent, location) = CHAIN;
        call_tree(
            weights,
            StackTree::new(&parent, &location)?,
            FrameTable::new(offsets, frames)?,
        )
    }

    /// Each sample adds to its leaf's own value and to the total of every caller.
    #[test]
    fn a_sample_counts_for_its_leaf_and_its_callers() {
        let weights = Weights {
            root: None,
            stack: &[2, 3, 2, 1],
            value: &[1, 10, 100, 1000],
        };
        let tree = merge(&weights, &[0, 1, 2, 3], &[5, 6, 7]).unwrap();
        assert_eq!(tree.frame, [ROOT_FRAME, 5, 6, 7]);
        assert_eq!(tree.parent, [0, 0, 1, 1]);
        assert_eq!(tree.self_value, [0, 1000, 101, 10]);
        assert_eq!(tree.total_value, [1111, 1111, 101, 10]);
    }

    /// A sample that weighs nothing makes no node, with labels or without.
    #[test]
    fn samples_without_weight_leave_no_trace() {
        for root in [None, Some(&[7][..])] {
            let tree = merge(
                &Weights {
                    root,
                    stack: &[3],
                    value: &[0],
                },
                &[0, 1, 2, 3],
                &[5, 6, 7],
            )
            .unwrap();
            assert_eq!(tree.frame, [ROOT_FRAME]);
        }
    }

    /// Inlined functions are levels of their own, a location without frames is none, and equal frames merge.
    #[test]
    fn locations_expand_into_their_frames() {
        let weights = Weights {
            root: None,
            stack: &[2, 3],
            value: &[1, 2],
        };
        let tree = merge(&weights, &[0, 0, 2, 3], &[8, 9, 8]).unwrap();
        assert_eq!(tree.frame, [ROOT_FRAME, 8, 9]);
        assert_eq!(tree.self_value, [0, 2, 1]);
        assert_eq!(tree.depth, [0, 1, 2]);
    }

    /// A label is the first level; an empty stack counts for its label.
    #[test]
    fn labels_keep_their_samples_apart() {
        let weights = Weights {
            root: Some(&[4, 3, 4]),
            stack: &[1, 1, 0],
            value: &[1, 2, 4],
        };
        let tree = merge(&weights, &[0, 1, 2, 3], &[5, 6, 7]).unwrap();
        assert_eq!(tree.frame, [ROOT_FRAME, 4, 5, 3, 5]);
        assert_eq!(tree.self_value, [0, 4, 1, 0, 2]);
        assert_eq!(tree.total_value, [7, 5, 1, 2, 2]);
    }

    /// Ids beyond their tables and columns that disagree are errors, not panics.
    #[test]
    fn ids_out_of_range_are_refused() {
        let good = Weights {
            root: None,
            stack: &[3],
            value: &[1],
        };
        assert!(merge(&Weights { stack: &[4], ..good }, &[0, 1, 2, 3], &[5, 6, 7]).is_err());
        assert!(merge(&Weights { value: &[], ..good }, &[0, 1, 2, 3], &[5, 6, 7]).is_err());
        assert!(
            merge(
                &Weights {
                    root: Some(&[]),
                    ..good
                },
                &[0, 1, 2, 3],
                &[5, 6, 7]
            )
            .is_err()
        );
        assert!(merge(&good, &[0, 1, 2], &[5, 6, 7]).is_err());
        assert!(merge(&good, &[0, 1, 2, 4], &[5, 6, 7]).is_err());
        assert!(merge(&good, &[0, 2, 1, 3], &[5, 6, 7]).is_err());
        assert!(merge(&good, &[], &[]).is_err());
    }

    /// The same trees as by following every sample's path, for random profiles.
    #[test]
    fn agrees_with_the_naive_merge() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let profile = RandomProfile::new(&mut random);
            for root in [None, Some(profile.root.as_slice())] {
                let weights = Weights {
                    root,
                    stack: &profile.stack,
                    value: &profile.value,
                };
                let stacks = StackTree::new(&profile.parent, &profile.location).unwrap();
                let frames = FrameTable::new(&profile.offsets, &profile.frames).unwrap();
                let tree = call_tree(&weights, stacks, frames).unwrap();
                assert_eq!(by_path(&tree), profile.naive(root));
            }
        }
    }

    struct RandomProfile {
        root: Vec<u32>,
        stack: Vec<u32>,
        value: Vec<u64>,
        parent: Vec<u32>,
        location: Vec<u32>,
        offsets: Vec<u32>,
        frames: Vec<u32>,
    }

    impl RandomProfile {
        fn new(random: &mut Random) -> Self {
            let stacks = 1 + random.below(40);
            let locations = 1 + random.below(8);
            let samples = random.below(100);
            let mut offsets = vec![0];
            offsets.extend((0..locations).scan(0, |end, _| {
                *end += random.below(3);
                Some(*end)
            }));
            Self {
                root: (0..samples).map(|_| random.below(3)).collect(),
                stack: (0..samples).map(|_| random.below(stacks)).collect(),
                value: (0..samples).map(|_| u64::from(1 + random.below(9))).collect(),
                parent: (0..stacks).map(|stack| random.below(stack.max(1))).collect(),
                location: (0..stacks).map(|_| random.below(locations)).collect(),
                frames: (0..offsets[locations as usize]).map(|_| random.below(4)).collect(),
                offsets,
            }
        }

        /// (self, total) of each path of frames.
        fn naive(&self, root: Option<&[u32]>) -> BTreeMap<Vec<u32>, (u64, u64)> {
            let mut values = BTreeMap::from([(Vec::new(), (0, 0))]);
            for (sample, &value) in self.value.iter().enumerate() {
                let mut path: Vec<u32> = root.iter().map(|root| root[sample]).collect();
                path.extend(self.frames_of(self.stack[sample]));
                for end in 0..=path.len() {
                    values.entry(path[..end].to_vec()).or_insert((0, 0)).1 += value;
                }
                values.get_mut(&path).unwrap().0 += value;
            }
            values
        }

        fn frames_of(&self, stack: u32) -> Vec<u32> {
            if stack == 0 {
                return Vec::new();
            }
            let location = self.location[stack as usize] as usize;
            let mut path = self.frames_of(self.parent[stack as usize]);
            path.extend(&self.frames[self.offsets[location] as usize..self.offsets[location + 1] as usize]);
            path
        }
    }

    fn by_path(tree: &CallTree) -> BTreeMap<Vec<u32>, (u64, u64)> {
        let mut paths: Vec<Vec<u32>> = Vec::new();
        for node in 0..tree.parent.len() {
            let mut path = if node == 0 {
                Vec::new()
            } else {
                paths[tree.parent[node] as usize].clone()
            };
            path.extend((node > 0).then_some(tree.frame[node]));
            assert_eq!(path.len(), tree.depth[node] as usize);
            paths.push(path);
        }
        let values = tree.self_value.iter().copied().zip(tree.total_value.iter().copied());
        paths.into_iter().zip(values).collect()
    }
}
