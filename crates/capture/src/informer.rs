//! What the walker in the kernel is told while a recording runs: mappings, tables, interpreters of Python.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::intake::Intake;
use crate::options::Options;
use crate::processes::Known;
use crate::sigbus::Guard;
use crate::unwind::{self, Unwinder};
use crate::waker::Waker;

/// The first sample may wait so long for the tables of the processes that are recorded; without them it is marked.
const PREPARATION: Duration = Duration::from_secs(2);
/// The same for those that are running when the system is recorded.
const PREPARATION_OF_SYSTEM: Duration = Duration::from_millis(100);

/// The processes that were read have their tables, mostly, when this returns.
pub fn begin_unwinding(options: &Options, maps: unwind::Maps, intake: &mut Intake, waker: Waker) -> Result<Unwinder> {
    let mut unwinder = Unwinder::new(maps, waker)?;
    publish(&mut unwinder, intake, true)?;
    unwinder.wait_for_tables(if options.pids.is_empty() {
        PREPARATION_OF_SYSTEM
    } else {
        PREPARATION
    });
    if options.python {
        find_pythons(&mut unwinder, intake);
    }
    Ok(unwinder)
}

/// Tells the walker what is new since the last time.
pub fn inform(unwinder: &mut Unwinder, intake: &mut Intake, options: &Options) -> Result<()> {
    unwinder.serve(&intake.files);
    publish(unwinder, intake, !options.walks_all())?;
    if options.python {
        find_pythons(unwinder, intake);
    }
    Ok(())
}

/// Gives back what is not used any more, and reads on what processes tell of the code that they make.
pub fn keep_up(unwinder: &mut Unwinder, intake: &mut Intake) -> Result<()> {
    unwinder.keep_up();
    let _guard = guard()?;
    for pid in unwinder.read_made_code(&intake.files) {
        intake.processes.mark_changed(pid);
    }
    Ok(())
}

fn guard() -> Result<Guard> {
    Guard::new().map_err(|error| Error::system("SIGBUS cannot be caught", &error))
}

/// Tells the walker what changed in the mappings of processes. `with_tables`: has their tables made, too, before the
/// walker misses them.
fn publish(unwinder: &mut Unwinder, intake: &mut Intake, with_tables: bool) -> Result<()> {
    let Intake {
        processes,
        files,
        pythons,
        ..
    } = intake;
    let mut changed = processes.take_changed().peekable();
    if changed.peek().is_none() {
        return Ok(());
    }
    let _guard = guard()?;
    for (pid, became_other, known) in changed {
        if became_other && !matches!(known, Known::Ended(_)) {
            unwinder.clear(pid);
            pythons.forget(pid);
        }
        match known {
            Known::Mappings(mappings) => {
                if with_tables {
                    unwinder.prepare(mappings, files);
                }
                unwinder.publish(pid, mappings, files);
                pythons.follow(pid, mappings);
            }
            Known::Ended(mappings) => unwinder.expect_again(pid, mappings, files),
            Known::Gone => {
                unwinder.forget(pid);
                pythons.forget(pid);
            }
        }
    }
    Ok(())
}

/// Tells the walker of the interpreters of Python that are there by now.
fn find_pythons(unwinder: &mut Unwinder, intake: &mut Intake) {
    let Intake { processes, pythons, .. } = intake;
    let found = unwinder.take_interpreters();
    if !found.is_empty() {
        for (file, found) in found {
            pythons.add(file, found);
        }
        processes.each(|pid, mappings| pythons.follow(pid, mappings));
    }
    pythons.attach(unwinder);
}
