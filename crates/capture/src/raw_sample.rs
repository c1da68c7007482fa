//! What the kernel half writes, as words.

use stackhound_core::address::ProcessAddr;

use crate::abi;
use crate::departures::Departure;

/// One sample as the kernel half wrote it.
#[derive(Clone, Copy, Debug)]
pub struct RawSample<'a> {
    /// What it is, without its addresses.
    pub header: abi::SampleHeader,
    /// Leaf first.
    pub kernel: &'a [u64],
    /// Leaf first.
    pub user: &'a [u64],
    /// Python's frames, leaf first, if the thread runs Python.
    pub python: Option<PythonPart<'a>>,
    /// Observations that it stands for.
    pub count: u64,
    /// Time of the last of them.
    pub last_ns: u64,
    /// Of the memory that was touched, where the event tells it.
    pub address: Option<ProcessAddr>,
    /// Of a page fault: how long it took, and of which file it is.
    pub fault: Option<abi::Fault>,
    /// Of a thread's time off the CPU: how it was.
    pub off_cpu: Option<abi::OffCpu>,
    /// Of what is no sample, but tells who woke a thread: its number.
    pub waking: Option<u64>,
    /// Of a request to a block device: what happened; only some have a thread and a stack.
    pub block_step: Option<abi::BlockStep>,
    /// Of a program's memory: what happened; only an allocation has a stack.
    pub heap_step: Option<abi::HeapStep>,
    /// The thread's departure that it belongs to, where stack and time off the CPU come one after the other.
    pub departure: Option<Departure>,
}

/// The frames of Python's interpreter in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonPart<'a> {
    /// How their walk ended, and what is known of the interpreter's lock (`bpf/abi.h`).
    pub summary: u64,
    /// Two words a frame, leaf first: code object with `PYTHON_ENTRY`, and instruction.
    pub words: &'a [u64],
}

impl<'a> PythonPart<'a> {
    /// Code object (with `PYTHON_ENTRY`) and instruction of each frame.
    pub fn frames(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let frames = self.words.chunks_exact(2).map(|frame| (frame[0], frame[1]));
        frames.filter(|(code, _)| *code != abi::PYTHON_TASK as u64)
    }

    /// The asyncio task that the thread runs, with its tag.
    pub fn task(&self) -> Option<u64> {
        let first = self.words.first_chunk();
        first.and_then(|&[code, task]| (code == abi::PYTHON_TASK as u64 && task != 0).then_some(task))
    }

    /// Whether the thread is known to hold the interpreter's lock.
    pub fn holds_gil(&self) -> bool {
        self.summary & abi::PYTHON_HOLDS_GIL as u64 != 0
    }

    /// How the walk ended: `enum python_end`.
    pub fn end(&self) -> u32 {
        (self.summary >> abi::PYTHON_END_SHIFT) as u32 & abi::PYTHON_END_MASK as u32
    }
}

const HEADER_WORDS: usize = size_of::<abi::SampleHeader>() / 8;
/// A count and a time, behind the addresses of a record of combined samples.
const COMBINED_WORDS: usize = 2;
const OFF_CPU_WORDS: usize = size_of::<abi::OffCpu>() / 8;
const FAULT_WORDS: usize = size_of::<abi::Fault>() / 8;
const BLOCK_STEP_WORDS: usize = size_of::<abi::BlockStep>() / 8;
const HEAP_STEP_WORDS: usize = size_of::<abi::HeapStep>() / 8;

impl<'a> RawSample<'a> {
    /// What a record of it takes in a ring.
    pub fn record_bytes(&self) -> u64 {
        let words =
            HEADER_WORDS + self.kernel.len() + self.user.len() + self.python.map_or(0, |python| 1 + python.words.len());
        let details = match self.header.kind.into() {
            abi::RECORD_COMBINED => COMBINED_WORDS,
            abi::RECORD_ADDRESSED | abi::RECORD_WAKING | abi::RECORD_DEPARTURE => 1,
            abi::RECORD_OFF_CPU => OFF_CPU_WORDS,
            abi::RECORD_FAULT => FAULT_WORDS,
            abi::RECORD_BLOCK_IO => BLOCK_STEP_WORDS,
            abi::RECORD_HEAP => HEAP_STEP_WORDS,
            _ => 0,
        };
        8 * (words + details) as u64
    }

    /// How the walk of the user stack ended: `enum user_end`.
    pub fn user_end(&self) -> u32 {
        u32::from(self.header.flags) >> abi::USER_END_SHIFT & (abi::USER_ENDS as u32 - 1)
    }

    /// Of a ring record's or a combining slot's words; None when they contradict themselves.
    pub fn parse(words: &'a [u64]) -> Option<Self> {
        let (header, rest) = words.split_at_checked(HEADER_WORDS)?;
        // SAFETY: SampleHeader is plain integers of this very size, and u64 are aligned for it.
        let header: abi::SampleHeader = unsafe { std::ptr::read(header.as_ptr().cast()) };
        let (kernel, rest) = rest.split_at_checked(header.kernel_frames.into())?;
        let (user, rest) = rest.split_at_checked(header.user_frames.into())?;
        let (python, rest) = split_python(&header, rest)?;
        let mut sample = Self {
            header,
            kernel,
            user,
            python,
            count: 1,
            last_ns: header.boottime_ns,
            address: None,
            fault: None,
            off_cpu: None,
            waking: None,
            block_step: None,
            heap_step: None,
            departure: None,
        };
        match (u32::from(header.kind), rest) {
            (abi::RECORD_SAMPLE, _) => {}
            (abi::RECORD_COMBINED, [count, last_ns, ..]) => (sample.count, sample.last_ns) = (*count, *last_ns),
            (abi::RECORD_ADDRESSED, [address, ..]) => sample.address = Some(ProcessAddr(*address)),
            (abi::RECORD_OFF_CPU, _) => {
                let away = off_cpu(rest)?;
                sample.off_cpu = Some(away);
                sample.departure = (away.departure != 0).then_some(Departure {
                    number: away.departure,
                    site: away.site,
                });
            }
            (abi::RECORD_FAULT, _) => {
                let fault = fault(rest)?;
                sample.fault = Some(fault);
                sample.address = Some(ProcessAddr(fault.address));
            }
            (abi::RECORD_WAKING, [number, ..]) => sample.waking = Some(*number),
            (abi::RECORD_BLOCK_IO, _) => sample.block_step = Some(block_step(rest)?),
            (abi::RECORD_HEAP, _) => sample.heap_step = Some(heap_step(rest)?),
            (abi::RECORD_DEPARTURE, [number, ..]) => sample.departure = Some(departure(*number)),
            _ => return None,
        }
        Some(sample)
    }
}

fn departure(word: u64) -> Departure {
    Departure {
        number: word as u32,
        site: (word >> 32) as u32,
    }
}

fn fault(words: &[u64]) -> Option<abi::Fault> {
    let words = words.get(..FAULT_WORDS)?;
    // SAFETY: Fault is plain integers of this very size, and u64 are aligned for it.
    Some(unsafe { std::ptr::read(words.as_ptr().cast()) })
}

fn off_cpu(words: &[u64]) -> Option<abi::OffCpu> {
    let words = words.get(..OFF_CPU_WORDS)?;
    // SAFETY: OffCpu is plain integers of this very size, and u64 are aligned for it.
    Some(unsafe { std::ptr::read(words.as_ptr().cast()) })
}

fn block_step(words: &[u64]) -> Option<abi::BlockStep> {
    let words = words.get(..BLOCK_STEP_WORDS)?;
    // SAFETY: BlockStep is plain integers of this very size, and u64 are aligned for it.
    Some(unsafe { std::ptr::read(words.as_ptr().cast()) })
}

fn heap_step(words: &[u64]) -> Option<abi::HeapStep> {
    let words = words.get(..HEAP_STEP_WORDS)?;
    // SAFETY: HeapStep is plain integers of this very size, and u64 are aligned for it.
    Some(unsafe { std::ptr::read(words.as_ptr().cast()) })
}

/// What there is of Python's frames, and what follows them.
fn split_python<'a>(header: &abi::SampleHeader, words: &'a [u64]) -> Option<(Option<PythonPart<'a>>, &'a [u64])> {
    if u32::from(header.flags) & abi::HAS_PYTHON == 0 {
        return Some((None, words));
    }
    let (summary, rest) = words.split_first()?;
    let frames = summary & abi::PYTHON_FRAMES_MASK as u64;
    let (words, rest) = rest.split_at_checked(2 * frames as usize)?;
    let summary = *summary;
    Some((Some(PythonPart { summary, words }), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(kind: u32, kernel: u8, user: u8, rest: &[u64]) -> Vec<u64> {
        let mut words = vec![0; HEADER_WORDS];
        words[0] = 42;
        let tail = u64::from(kind) | 3 << 8 | u64::from(kernel) << 16 | u64::from(user) << 24;
        words[HEADER_WORDS - 1] = tail << 32 | 7;
        words.extend(rest);
        words
    }

    #[test]
    fn a_record_gives_back_its_kernel_and_user_addresses() {
        let words = words(abi::RECORD_SAMPLE, 2, 1, &[10, 11, 20]);
        let sample = RawSample::parse(&words).unwrap();
        assert_eq!((sample.kernel, sample.user), (&[10, 11][..], &[20][..]));
        assert_eq!(
            (sample.header.cpu, sample.header.event, sample.count, sample.last_ns),
            (7, 3, 1, 42)
        );
    }

    #[test]
    fn a_combined_record_tells_how_many_it_stands_for() {
        let words = words(abi::RECORD_COMBINED, 0, 1, &[20, 1000, 99]);
        let sample = RawSample::parse(&words).unwrap();
        assert_eq!((sample.count, sample.last_ns), (1000, 99));
    }

    #[test]
    fn a_record_may_tell_the_address_of_memory() {
        let words = words(abi::RECORD_ADDRESSED, 1, 1, &[10, 20, 0x7000]);
        let sample = RawSample::parse(&words).unwrap();
        assert_eq!((sample.address, sample.count), (Some(ProcessAddr(0x7000)), 1));
        assert_eq!(sample.record_bytes(), 8 * words.len() as u64);
        assert!(RawSample::parse(&words[..words.len() - 1]).is_none());
    }

    #[test]
    fn a_record_has_pythons_frames_behind_the_others() {
        let mut words = words(
            abi::RECORD_COMBINED,
            1,
            1,
            &[10, 20, 2 | 1 << 8, 32, 5, 65, 6, 1000, 99],
        );
        words[HEADER_WORDS - 1] |= u64::from(abi::HAS_PYTHON) << 16;
        let sample = RawSample::parse(&words).unwrap();
        let python = sample.python.unwrap();
        assert_eq!(
            (python.summary >> abi::PYTHON_END_SHIFT, python.words),
            (1, &[32, 5, 65, 6][..])
        );
        assert_eq!((sample.count, sample.record_bytes()), (1000, 8 * words.len() as u64));
        assert!(RawSample::parse(&words[..HEADER_WORDS + 5]).is_none());
    }

    #[test]
    fn a_task_is_no_frame() {
        let words = [abi::PYTHON_TASK as u64, 99, 65, 6];
        let python = PythonPart {
            summary: 2,
            words: &words,
        };
        assert_eq!(
            (python.task(), python.frames().collect::<Vec<_>>()),
            (Some(99), vec![(65, 6)])
        );
        let python = PythonPart {
            summary: 2,
            words: &[abi::PYTHON_TASK as u64, 0, 65, 6],
        };
        assert_eq!((python.task(), python.frames().count()), (None, 1));
        let python = PythonPart {
            summary: 1,
            words: &words[2..],
        };
        assert_eq!((python.task(), python.frames().count()), (None, 1));
    }

    #[test]
    fn a_record_of_time_off_the_cpu_has_its_details_behind_the_stack() {
        let away = [5_000, 700, 9, u64::from(abi::OFF_CPU_PREEMPTED), 0, 0];
        let mut words = words(abi::RECORD_OFF_CPU, 1, 1, &[10, 20]);
        words.extend(away);
        let sample = RawSample::parse(&words).unwrap();
        let off_cpu = sample.off_cpu.unwrap();
        assert_eq!((off_cpu.duration_ns, off_cpu.queued_ns, off_cpu.flags), (5_000, 700, 1));
        assert_eq!(off_cpu.waking, 9);
        assert_eq!(sample.record_bytes(), 8 * words.len() as u64);
        assert!(RawSample::parse(&words[..words.len() - 1]).is_none());
    }

    #[test]
    fn a_record_of_a_waking_has_its_number_behind_the_stack() {
        let words = words(abi::RECORD_WAKING, 1, 0, &[10, 77]);
        let sample = RawSample::parse(&words).unwrap();
        assert_eq!(
            (sample.waking, sample.record_bytes()),
            (Some(77), 8 * words.len() as u64)
        );
        assert!(RawSample::parse(&words[..words.len() - 1]).is_none());
    }

    #[test]
    fn a_step_of_a_request_needs_no_stack() {
        let step = [0xffff_8000, 2048, 8 << 20 | 1 | 1 << 32, 4096 | 5 << 32 | 16 << 40, 77];
        let mut words = words(abi::RECORD_BLOCK_IO, 0, 0, &[]);
        words.extend(step);
        let sample = RawSample::parse(&words).unwrap();
        let step = sample.block_step.unwrap();
        assert_eq!(
            (step.device, step.flags, step.bytes, step.cgroup),
            (8 << 20 | 1, 1, 4096, 77)
        );
        assert_eq!(
            (u32::from(step.step), u32::from(step.traits)),
            (abi::BLOCK_COMPLETE, abi::BLOCK_LAST)
        );
        assert_eq!(sample.record_bytes(), 8 * words.len() as u64);
        assert!(RawSample::parse(&words[..words.len() - 1]).is_none());
    }

    #[test]
    fn a_step_of_an_allocation_has_its_details_behind_the_stack() {
        let step = [9, 4, 100, 50, 5_000, u64::from(abi::HEAP_ALLOCATED)];
        let mut words = words(abi::RECORD_HEAP, 0, 1, &[20]);
        words.extend(step);
        let sample = RawSample::parse(&words).unwrap();
        let step = sample.heap_step.unwrap();
        assert_eq!((step.program, step.id, step.size), (9, 4, 100));
        assert_eq!((step.calls, step.bytes, u32::from(step.step)), (50, 5_000, 1));
        assert_eq!(sample.record_bytes(), 8 * words.len() as u64);
        assert!(RawSample::parse(&words[..words.len() - 1]).is_none());
    }

    #[test]
    fn a_record_of_a_fault_has_its_details_behind_the_stack() {
        let mut words = words(abi::RECORD_FAULT, 1, 1, &[10, 20]);
        words.extend([0x7000, 900, 12, 3, 1 << 32 | 8 << 20 | 1]);
        let sample = RawSample::parse(&words).unwrap();
        let fault = sample.fault.unwrap();
        assert_eq!(
            (sample.address, fault.ns, fault.page),
            (Some(ProcessAddr(0x7000)), 900, 3)
        );
        assert_eq!((fault.device, fault.has_file), (8 << 20 | 1, 1));
        assert_eq!(sample.record_bytes(), 8 * words.len() as u64);
        assert!(RawSample::parse(&words[..words.len() - 1]).is_none());
    }

    #[test]
    fn a_departure_has_its_number_behind_the_stack() {
        let words = words(abi::RECORD_DEPARTURE, 1, 1, &[10, 20, 5 << 32 | 3]);
        let sample = RawSample::parse(&words).unwrap();
        assert_eq!(
            (sample.departure, sample.record_bytes()),
            (Some(Departure { number: 3, site: 5 }), 8 * words.len() as u64)
        );
        assert!(sample.off_cpu.is_none());
        assert!(RawSample::parse(&words[..words.len() - 1]).is_none());
    }

    #[test]
    fn a_record_that_promises_more_frames_than_it_has_is_refused() {
        assert!(RawSample::parse(&words(abi::RECORD_SAMPLE, 2, 1, &[10])).is_none());
        assert!(RawSample::parse(&words(abi::RECORD_COMBINED, 0, 0, &[1])).is_none());
        assert!(RawSample::parse(&[1, 2, 3]).is_none());
    }
}
