//! What runs the BPF programs: events on each CPU, and the kernel's and other programs' functions.

use std::fs::File;
use std::io::Read;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{Link, PerfEventOpts, UprobeMultiOpts, UprobeOpts};

use super::Programs;
use crate::abi;
use crate::bpf_objects::{bpf_error, program};
use crate::configuration::lone_event;
use crate::cpus;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Options, Sampling};
use crate::perf_event::Trigger;

/// In the order in which they are attached.
const BLOCK_IO_PROGRAMS: [&str; 7] = [
    "end_request",
    "complete_request",
    "requeue_request",
    "merge_request",
    "issue_request",
    "insert_request",
    "submit_request",
];

const EVERY_PROCESS: i32 = -1;

/// The programs that hear of memory, and the functions of preload/heap.c that tell of it.
const HEAP_PROGRAMS: [(&str, &str); 3] = [
    ("tell_count", "stackhound_heap_counted"),
    ("tell_free", "stackhound_heap_freed"),
    ("tell_allocation", "stackhound_heap_allocated"),
];

/// A function of an allocator.
#[derive(Clone, Copy, Debug)]
pub struct UprobeSite {
    /// In its file.
    pub offset: usize,
    /// `enum allocator_call`.
    pub call: u32,
}

/// An event on a CPU.
pub(super) struct Attachment {
    pub(super) event: usize,
    cpu: u32,
    count: File,
    last_count: u64,
    _link: Link,
}

impl Programs {
    /// Closes the events of CPUs that are offline, or were for a moment: an event does not survive that, and a clock's
    /// count stands still. Their counts stay. Returns the CPUs. Not to be called more often than such a clock ticks.
    pub fn detach_lost_cpus(&mut self, online: &[u32]) -> Vec<u32> {
        let mut lost = Vec::new();
        for attachment in &mut self.attachments {
            let count = attachment.count();
            let stands_still = self.triggers[attachment.event].is_cpu_clock() && count == attachment.last_count;
            attachment.last_count = count;
            if stands_still || !online.contains(&attachment.cpu) {
                lost.push(attachment.cpu);
            }
        }
        for gone in self
            .attachments
            .extract_if(.., |attachment| lost.contains(&attachment.cpu))
        {
            self.counted[gone.event] += gone.last_count;
        }
        lost
    }

    /// Attaches every event to every CPU that is online and has none yet, their phases spread over one period.
    pub fn attach_missing(&mut self, online: &[u32]) -> Result<usize> {
        let mut attached = 0;
        let is_opened = |event: &usize| self.triggers[*event].is_perf_event();
        for event in (0..self.triggers.len()).filter(is_opened).collect::<Vec<_>>() {
            let step = phase_step(&self.triggers[event], online.len());
            for &cpu in online {
                let has = self.attachments.iter().any(|one| one.event == event && one.cpu == cpu);
                if has || (self.triggers[event].event.tracepoint.is_some() && cpu != online[0]) {
                    continue; // a tracepoint's program runs on every CPU however many events there are
                }
                match self.triggers[event].open(cpu) {
                    Ok(fd) => self.attach(event, cpu, fd)?,
                    Err(error) if cpus::has_left(cpu, &error) => continue,
                    Err(error) => return Err(open_error(&self.triggers[event], &error)),
                }
                attached += 1;
                std::thread::sleep(step);
            }
        }
        Ok(attached)
    }

    fn attach(&mut self, event: usize, cpu: u32, fd: OwnedFd) -> Result<()> {
        let trigger = &self.triggers[event];
        let count = File::from(fd.try_clone().map_err(|error| Error::system("dup", &error))?);
        let name = if trigger.event.tracepoint.is_some() {
            "sample_tracepoint"
        } else {
            "sample_event"
        };
        let cookie = if lone_event(&self.triggers).is_some() {
            0
        } else {
            event as u64
        };
        let options = PerfEventOpts {
            cookie,
            ..Default::default()
        };
        let program = program(&mut self.object, name);
        let link = program
            .attach_perf_event_with_opts(fd.into_raw_fd(), options)
            .map_err(|error| bpf_error("the sampling program cannot be attached", &error))?;
        self.attachments.push(Attachment {
            event,
            cpu,
            count,
            last_count: 0,
            _link: link,
        });
        Ok(())
    }

    /// Begins to follow how threads leave and come back to CPUs.
    pub fn attach_off_cpu(&mut self, options: &Options) -> Result<()> {
        let failed = |error| bpf_error("threads off the CPU cannot be followed", &error);
        let (hooks, threads): (&[&str], _) = match options.off_cpu_at_departure {
            true => (&["depart"], "begin_all_departures"),
            false => (&["begin_presence", "arrive"], "begin_presences"),
        };
        let waking = options.wakers.then_some(&"note_waker");
        for name in hooks.iter().chain(waking) {
            self.hooks
                .push(program(&mut self.object, name).attach().map_err(failed)?);
        }
        let threads = program(&mut self.object, threads).attach().map_err(failed)?;
        std::thread::sleep(std::time::Duration::from_micros(1)); // so that this thread has just come to its CPU
        let mut run = libbpf_rs::Iter::new(&threads).map_err(failed)?;
        std::io::copy(&mut run, &mut std::io::sink())
            .map_err(|error| Error::system("the threads cannot be counted", &error))?;
        Ok(())
    }

    /// Begins to follow requests to block devices: where they begin last, so that no end of one is missed.
    pub fn attach_block_io(&mut self) -> Result<()> {
        for name in BLOCK_IO_PROGRAMS {
            let program = program(&mut self.object, name);
            if program.autoload() {
                let link = program.attach();
                let link = link.map_err(|error| bpf_error("requests to block devices cannot be followed", &error))?;
                self.hooks.push(link);
            }
        }
        Ok(())
    }

    /// Begins to follow what programs tell of their memory through this library, whoever has it loaded.
    pub fn attach_heap_library(&mut self, library: &Path) -> Result<()> {
        for (name, function) in HEAP_PROGRAMS {
            let options = UprobeOpts {
                func_name: Some(function.into()),
                ..Default::default()
            };
            let link = program(&mut self.object, name).attach_uprobe_with_opts(EVERY_PROCESS, library, 0, options);
            let link = link.map_err(|error| bpf_error("allocations cannot be followed", &error))?;
            self.hooks.push(link);
        }
        Ok(())
    }

    /// Watches functions of an allocator in one process, as long as the links are kept. None where it has ended.
    pub fn attach_allocator(&mut self, pid: u32, file: &Path, sites: &[UprobeSite]) -> Result<Vec<Link>> {
        let returning: Vec<_> = (sites.iter().copied())
            .filter(|site| site.call != abi::CALL_FREE)
            .collect();
        let mut links = Vec::new();
        for (name, is_return, sites) in [
            ("leave_allocator", true, &returning[..]),
            ("enter_allocator", false, sites),
        ] {
            let options = UprobeMultiOpts {
                offsets: sites.iter().map(|site| site.offset).collect(),
                cookies: sites.iter().map(|site| site.call.into()).collect(),
                retprobe: is_return,
                ..Default::default()
            };
            let program = program(&mut self.object, name);
            match program.attach_uprobe_multi_with_opts(pid as i32, file, "", options) {
                Ok(link) => links.push(link),
                Err(_) if crate::procfs::has_ended(pid) => return Ok(Vec::new()),
                Err(error) => return Err(bpf_error("allocators cannot be watched", &error)),
            }
        }
        Ok(links)
    }

    /// Detaches the events; counters and rings stay readable.
    pub fn detach(&mut self) {
        self.attachments.clear();
        while self.hooks.pop().is_some() {} // the last one first: what it begins another one ends
    }
}

impl Attachment {
    /// The event's own count so far; 0 where it cannot be read.
    pub(super) fn count(&self) -> u64 {
        let mut bytes = [0; 8];
        match (&self.count).read(&mut bytes) {
            Ok(8) => u64::from_ne_bytes(bytes),
            _ => 0,
        }
    }
}

/// Phases are spread over a period, so that CPUs do not sample at once; never over more than 100 ms.
fn phase_step(trigger: &Trigger, cpus: usize) -> Duration {
    let period_ns = match trigger.event.sampling {
        Sampling::Frequency(hz) => 1_000_000_000 / hz.max(1),
        Sampling::Period(_) => 0,
    };
    Duration::from_nanos(period_ns.min(100_000_000) / cpus.max(1) as u64)
}

/// Why an event cannot be opened.
pub fn open_error(trigger: &Trigger, error: &std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => Error::new(
            ErrorKind::Event,
            format!("this machine has no event {}", trigger.name),
            "'stackhound list' shows what there is",
        ),
        Some(libc::EINVAL) => Error::new(
            ErrorKind::Event,
            format!("the kernel refuses event {} at this rate", trigger.name),
            "choose another -F or -c (kernel.perf_event_max_sample_rate is the limit)",
        ),
        _ => Error::system(&format!("event {} cannot be opened", trigger.name), error),
    }
}
