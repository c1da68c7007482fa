//! How a recording ends: sampling stops, what is left is taken in, names are looked up, and the tables are made.

use stackhound_core::symbolize::MissingDebugFile;

use super::{Finished, Recording, Status};
use crate::abi;
use crate::absent;
use crate::cost;
use crate::error::Result;
use crate::fault_totals::FaultCounts;
use crate::metadata::Ending;
use crate::unwind::Unwinder;

/// What is known at the end of sampling.
pub(super) struct Stopped {
    counters: abi::Counters,
    pub(super) status: Status,
    end_boottime_ns: u64,
    idle_ns: u64,
    unwind_bytes: usize,
}

impl Recording {
    pub fn stop_and_look(&mut self, lines: bool) -> Result<Vec<MissingDebugFile>> {
        if self.stopped.is_none() {
            self.stopped = Some(self.stop()?);
        }
        self.intake.missing_debug_files(lines)
    }

    fn stop(&mut self) -> Result<Stopped> {
        let status = self.status();
        let idle = self.beginning.idle();
        let unseen = self.programs.unseen_samples(idle);
        self.drain();
        self.intake.processes.look_at_new(&mut self.intake.profile);
        let event_counts = self.programs.sum_up()?;
        if let Some(mut allocators) = self.allocators.take() {
            allocators.close(&mut self.programs)?;
            self.notes.push(allocators.note());
        }
        self.programs.detach();
        let end_boottime_ns = cost::boottime_ns();
        let unwind_bytes = self.unwinder.as_ref().map_or(0, Unwinder::memory_bytes);
        self.notes.extend(self.unwinder.iter().flat_map(Unwinder::lacks));
        self.drain();
        self.look_at_absent(end_boottime_ns)?;
        self.unwinder = None; // its threads would only be in the way
        self.drain();
        self.flush()?;
        self.drain(); // what waited in `pending`, so that the last exits are noted
        self.finish_requests();
        self.intake.finish_allocations();
        self.note_totals(&event_counts)?;
        let counters = self.programs.counters();
        self.note_losses(&counters, unseen);
        Ok(Stopped {
            counters,
            status,
            end_boottime_ns,
            idle_ns: idle.ns,
            unwind_bytes,
        })
    }

    fn finish_requests(&mut self) {
        if self.block_io.is_none() {
            return;
        }
        self.intake.settle_requests(u64::MAX);
        match self.intake.block_io.finish(&mut self.intake.profile) {
            0 => {}
            1 => self.notes.push("1 request to a block device had not ended".into()),
            open => self
                .notes
                .push(format!("{open} requests to block devices had not ended")),
        }
    }

    /// Nothing tells any more when threads come back: those that are away now are looked up. That takes a while, which is
    /// not of the recording.
    fn look_at_absent(&mut self, end_boottime_ns: u64) -> Result<()> {
        let Some(mut absent) = self.absent.take() else {
            return Ok(());
        };
        let Some(words) = absent.look()? else {
            let note = "threads that were off the CPU all along are missing: somebody's memory does not answer";
            self.notes.push(note.into());
            return Ok(());
        };
        let samples: Vec<_> = absent::parse(&words)
            .filter_map(|sample| absent::until(sample, end_boottime_ns))
            .collect();
        self.intake
            .pythons
            .learn(samples.iter().copied(), &mut self.intake.profile);
        for sample in &samples {
            self.intake.store_last(sample);
        }
        self.absent_samples = samples.len() as u64;
        Ok(())
    }

    pub fn finish(&mut self, lines: bool) -> Result<Finished> {
        let stopped = match self.stopped.take() {
            Some(stopped) => stopped,
            None => self.stop()?,
        };
        self.intake.symbolize(lines)?;
        let triggers = self.intake.triggers.iter().map(|trigger| trigger.name.clone());
        let ending = Ending {
            counters: &stopped.counters,
            absent: self.absent_samples,
            held: self.intake.block_io.held(),
            triggers: triggers.collect(),
            end_boottime_ns: stopped.end_boottime_ns,
            idle_ns: stopped.idle_ns,
            collector_cpu_ns: stopped.status.collector_cpu_ns,
            resident_bytes: stopped.status.resident_bytes,
            unwind_bytes: stopped.unwind_bytes,
            python: self.intake.pythons.cost,
            notes: self.notes(),
        };
        let metadata = self.beginning.finish(&self.options, &ending).to_string();
        Ok(Finished {
            tables: self.intake.profile.tables(),
            metadata,
        })
    }

    /// Exact counts of page faults: of each process what the kernel has of its threads; of the whole machine the event's
    /// own, without the collector's.
    fn note_totals(&mut self, event_counts: &[u64]) -> Result<()> {
        let Some(faults) = self.programs.fault_totals.take() else {
            return Ok(());
        };
        let totals = faults.finish(|process| self.intake.processes.has_row(process))?;
        let own = if self.options.include_self {
            FaultCounts::default()
        } else {
            self.beginning.own_faults()
        };
        let has_targets = !self.options.pids.is_empty();
        for (event, trigger) in self.intake.triggers.iter().enumerate() {
            let Some(kind) = trigger.faults() else { continue };
            let whole = if has_targets {
                totals.all.of(kind)
            } else {
                event_counts[event].saturating_sub(own.of(kind))
            };
            for row in totals.rows(event as u16, kind, whole) {
                self.intake.profile.event_total(row);
            }
        }
        Ok(())
    }

    fn note_losses(&mut self, counters: &abi::Counters, unseen: u64) {
        let misses = self.programs.recursion_misses();
        let counted = [
            (
                "ring full",
                counters.lost_ring_full,
                "samples that found no room in the ring",
            ),
            (
                "nested",
                counters.lost_nested,
                "records of programs that interrupted each other",
            ),
            (
                "combined, ring full",
                counters.lost_ring_combined,
                "combined samples that found no room in the ring",
            ),
            (
                "process not visible",
                counters.lost_no_process,
                "samples of processes outside the recorder's PID namespace",
            ),
            (
                "filter full",
                counters.targets_full,
                "children that found no room in the filter",
            ),
            (
                "fault totals",
                counters.uncounted_faults,
                "threads whose page faults are in no total, for want of room",
            ),
            (
                "command lines",
                counters.untold_command_lines,
                "programs whose command lines or moves between cgroups found no room: /proc was asked of new ones",
            ),
            (
                "process records",
                self.sideband.lost(),
                "records of new processes and mappings that found no room",
            ),
        ];
        let profile = &mut self.intake.profile;
        for (cause, count, meaning) in counted {
            profile.loss(cause, count, false, meaning);
        }
        let meaning = "samples whose program the kernel did not run: nested in another program, or throttled";
        profile.loss("not run", unseen.max(misses), true, meaning);
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if let Some(error) = &self.failure {
            notes.push(format!("the recording was not whole: {error}"));
        }
        match self.intake.processes.gone() {
            0 => {}
            1 => notes.push("1 process ended before it could be looked at".into()),
            gone => notes.push(format!("{gone} processes ended before they could be looked at")),
        }
        notes.extend(self.intake.pythons.notes());
        if self.intake.changed_files {
            notes.push("a file was truncated while its symbols were read: some of its names are missing".into());
        }
        notes
    }
}
