//! The memory that the walker reads: segments of 1 MiB, made when they are needed, and handed out in pieces.
//!
//! A piece is written before anything refers to it. What is given back is handed out again only after a grace period,
//! since a program may be reading it still.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::abi;
use crate::bpf_objects::{bpf_error, map_options};
use crate::error::Error;
use crate::mapped::Mapped;

const SEGMENT_WORDS: u32 = 1 << abi::UNWIND_SEGMENT_BITS;
const SEGMENT_BYTES: usize = SEGMENT_WORDS as usize * size_of::<u32>();
/// Pieces are multiples of a cache line.
const UNIT_WORDS: u32 = 16;

/// A piece of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of its first word, over all segments. Never 0.
    pub reference: u32,
    words: u32,
}

impl Piece {
    /// Its size.
    pub fn bytes(&self) -> usize {
        self.words as usize * size_of::<u32>()
    }
}

/// Makes the segment of an index, where whoever reads the memory looks for it.
type MakeSegment = Box<dyn Fn(u32) -> crate::error::Result<Mapped> + Send>;

/// All segments.
pub struct Memory {
    make_segment: MakeSegment,
    segments: Vec<Mapped>,
    free: FreeList,
    lack: Option<String>,
}

impl Memory {
    /// On the programs' outer map; no segment yet.
    pub fn new(outer: MapHandle) -> Self {
        Self::with_segments(Box::new(move |index| bpf_segment(&outer, index)))
    }

    /// Memory of this process alone.
    pub fn anonymous() -> Self {
        Self::with_segments(Box::new(|_| Mapped::anonymous(SEGMENT_BYTES).map_err(cannot_map)))
    }

    fn with_segments(make_segment: MakeSegment) -> Self {
        Self {
            make_segment,
            segments: Vec::new(),
            free: FreeList::default(),
            lack: None,
        }
    }

    /// Where the segments lie.
    pub fn segments(&self) -> impl Iterator<Item = NonNull<u64>> {
        self.segments.iter().map(Mapped::words)
    }

    /// A piece that holds these words, which are more than none and fit into a segment; None when there is no more room.
    pub fn store(&mut self, words: &[u32]) -> Option<Piece> {
        let piece = self.allocate(words.len() as u32)?;
        let (segment, first) = (piece.reference / SEGMENT_WORDS, piece.reference % SEGMENT_WORDS);
        // SAFETY: the piece lies in the mapped segment, and no program reads it before it is referred to.
        unsafe {
            let to = self.segments[segment as usize]
                .words()
                .cast::<u32>()
                .add(first as usize);
            std::ptr::copy_nonoverlapping(words.as_ptr(), to.as_ptr(), words.len());
        }
        Some(piece)
    }

    /// Changes a word of a piece that programs may be reading.
    pub fn set_word(&mut self, piece: Piece, index: u32, word: u32) {
        assert!(index < piece.words);
        let place = piece.reference + index;
        let segment = &self.segments[(place / SEGMENT_WORDS) as usize];
        // SAFETY: within the mapped segment, aligned, and shared with the programs as a word that changes.
        unsafe {
            let at = segment.words().cast::<u32>().add((place % SEGMENT_WORDS) as usize);
            AtomicU32::from_ptr(at.as_ptr()).store(word, Ordering::Release);
        }
    }

    /// Why there was no more room, if that ever was so.
    pub fn lack(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// Takes back a piece that no program can be reading.
    pub fn free(&mut self, piece: Piece) {
        self.free.give(piece.reference, piece.words);
    }

    /// Memory of the kernel that it takes.
    pub fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT_BYTES
    }

    fn allocate(&mut self, words: u32) -> Option<Piece> {
        let words = words.next_multiple_of(UNIT_WORDS);
        assert!(
            0 < words && words <= SEGMENT_WORDS - UNIT_WORDS,
            "a piece of {words} words"
        );
        loop {
            if let Some(reference) = self.free.take(words) {
                return Some(Piece { reference, words });
            }
            if let Err(lack) = self.add_segment() {
                self.lack.get_or_insert(lack);
                return None;
            }
        }
    }

    fn add_segment(&mut self) -> Result<(), String> {
        if self.segments.len() == abi::UNWIND_SEGMENTS {
            return Err(format!("{} MiB are full", self.bytes() >> 20));
        }
        let index = self.segments.len() as u32;
        let segment = (self.make_segment)(index).map_err(|error| error.to_string())?;
        self.segments.push(segment);
        // The first unit of each segment stays unused: 0 refers to nothing, and no two segments become neighbours.
        self.free
            .give(index * SEGMENT_WORDS + UNIT_WORDS, SEGMENT_WORDS - UNIT_WORDS);
        Ok(())
    }
}

fn bpf_segment(outer: &MapHandle, index: u32) -> crate::error::Result<Mapped> {
    let options = map_options(libbpf_sys::BPF_F_MMAPABLE);
    let value_bytes = SEGMENT_BYTES as u32;
    let segment = MapHandle::create(MapType::Array, Some("unwind_segment"), 4, value_bytes, 1, &options)
        .map_err(|error| bpf_error("no more memory for unwind tables", &error))?;
    let memory = Mapped::new(&segment, 0, SEGMENT_BYTES).map_err(cannot_map)?;
    let fd = segment.as_fd().as_raw_fd() as u32;
    outer
        .update(&index.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| bpf_error("memory for unwind tables cannot be put in place", &error))?;
    Ok(memory)
}

fn cannot_map(error: std::io::Error) -> Error {
    Error::system("memory for unwind tables cannot be mapped", &error)
}

/// Free ranges of words, apart from each other.
#[derive(Default)]
struct FreeList {
    words_by_start: BTreeMap<u32, u32>,
}

impl FreeList {
    /// The first range that is large enough, or as much of it.
    fn take(&mut self, words: u32) -> Option<u32> {
        let (&start, &length) = self.words_by_start.iter().find(|(_, length)| **length >= words)?;
        self.words_by_start.remove(&start);
        if length > words {
            self.words_by_start.insert(start + words, length - words);
        }
        Some(start)
    }

    fn give(&mut self, mut start: u32, mut words: u32) {
        if let Some((&before, &length)) = self.words_by_start.range(..start).next_back()
            && before + length == start
        {
            self.words_by_start.remove(&before);
            (start, words) = (before, length + words);
        }
        if let Some(length) = self.words_by_start.remove(&(start + words)) {
            words += length;
        }
        self.words_by_start.insert(start, words);
    }
}

#[cfg(test)]
mod tests {
    use super::FreeList;

    #[test]
    fn what_is_given_back_grows_together_again() {
        let mut free = FreeList::default();
        free.give(16, 1008);
        let pieces = [free.take(16).unwrap(), free.take(32).unwrap(), free.take(64).unwrap()];
        assert_eq!(pieces, [16, 32, 64]);
        free.give(16, 16);
        free.give(64, 64);
        assert_eq!(free.take(48), Some(64), "the hole of 16 is too small");
        free.give(64, 48);
        free.give(32, 32);
        assert_eq!(free.words_by_start.into_iter().collect::<Vec<_>>(), [(16, 1008)]);
    }

    #[test]
    fn more_than_there_is_is_not_found() {
        let mut free = FreeList::default();
        free.give(16, 16);
        assert_eq!(free.take(32), None);
        assert_eq!(free.take(16), Some(16));
    }
}
