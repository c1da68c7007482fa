//! Which of the wanted events this machine can record. The others are said in a line each, and left out.

use crate::error::{Error, ErrorKind, Result};
use crate::kernel_features::{kernel_has_cookies, lack_of};
use crate::options::{EventSpec, Options};
use crate::perf_event::Trigger;
use crate::programs::open_error;
use crate::tracefs::Tracefs;

/// Leaves out what is known to be missing, and returns a note for each.
///
/// # Errors
/// Nothing would be left: why the first one is missing. Or a permission is.
pub fn leave_out_missing(options: &mut Options, cpu: u32) -> Result<Vec<String>> {
    let lacks = find_lacks(options, cpu)?;
    if lacks.len() == options.events.len() {
        return lacks.into_iter().next().map_or(Ok(Vec::new()), |(_, error)| Err(error));
    }
    let notes = lacks.iter().map(|(event, error)| note(&options.events[*event], error));
    let notes = notes.collect();
    for (event, _) in lacks.iter().rev() {
        leave_out(options, *event);
    }
    Ok(notes)
}

/// What is left to try where the programs cannot be loaded: without each event that has programs of its own, then without
/// all of these.
pub fn fewer(options: &Options) -> Vec<Options> {
    let hooked = || [Options::off_cpu_event, Options::block_io_event, Options::heap_event].into_iter();
    let mut tries: Vec<Options> = hooked()
        .filter_map(|find| find(options))
        .map(|event| {
            let mut one = options.clone();
            leave_out(&mut one, event);
            one
        })
        .collect();
    let mut none = options.clone();
    for find in hooked() {
        if let Some(event) = find(&none) {
            leave_out(&mut none, event);
        }
    }
    tries.push(none);
    tries.retain(|fewer| !fewer.events.is_empty() && fewer.events.len() < options.events.len());
    tries
}

/// What is to be said of the events that are not among fewer ones.
pub fn notes_of_missing(options: &Options, fewer: &Options, error: &Error) -> Vec<String> {
    let is_left_out = |event: &&EventSpec| fewer.events.iter().all(|other| other.name != event.name);
    let left_out = options.events.iter().filter(is_left_out);
    left_out.map(|event| note(event, error)).collect()
}

/// An error of one event is a note where there are others.
pub fn unless_alone(options: &Options, event: usize, tried: Result<()>, notes: &mut Vec<String>) -> Result<()> {
    match tried {
        Err(error) if options.events.len() > 1 && error.kind == ErrorKind::Kernel => {
            notes.push(note(&options.events[event], &error));
            Ok(())
        }
        tried => tried,
    }
}

fn note(event: &EventSpec, error: &Error) -> String {
    format!("{} is not recorded: {error}", event.name)
}

fn leave_out(options: &mut Options, event: usize) {
    options.events.remove(event);
    options.wakers &= options.off_cpu_event().is_some();
    if options.heap_event().is_none() {
        options.heap_uprobes = false;
        options.heap_library = None;
    }
}

fn find_lacks(options: &mut Options, cpu: u32) -> Result<Vec<(usize, Error)>> {
    let mut tracefs = None;
    let mut lacks = Vec::new();
    let mut told_by_perf = 0;
    for event in 0..options.events.len() {
        let missing = match resolve_tracepoint(&mut options.events[event], &mut tracefs) {
            Ok(()) => lack_of(&options.events[event], options).or_else(|| cannot_open(event, options, cpu)),
            Err(error) if error.kind == ErrorKind::Permission => return Err(error),
            Err(error) => Some(error),
        };
        let is_perf_event = options.events[event].is_perf_event();
        let missing = missing.or_else(|| (is_perf_event && told_by_perf > 0).then(one_at_a_time).flatten());
        match missing {
            Some(error) => lacks.push((event, error)),
            None => told_by_perf += u32::from(is_perf_event),
        }
    }
    Ok(lacks)
}

/// Tracepoints have numbers of their own on every machine.
fn resolve_tracepoint(event: &mut EventSpec, tracefs: &mut Option<Tracefs>) -> Result<()> {
    let Some(name) = &event.tracepoint else { return Ok(()) };
    if tracefs.is_none() {
        *tracefs = Some(Tracefs::open().map_err(|error| Error::system("tracefs cannot be read", &error))?);
    }
    let id = tracefs.as_ref().and_then(|tracefs| tracefs.id(name).ok());
    event.config[0] = id.ok_or_else(|| {
        let message = format!("this machine has no tracepoint {name}");
        Error::new(ErrorKind::Event, message, "'stackhound list' shows what there is")
    })?;
    Ok(())
}

/// A counter that is not there, among others; one that is alone says so when it is attached.
fn cannot_open(event: usize, options: &Options, cpu: u32) -> Option<Error> {
    if options.events.len() == 1 || !options.events[event].is_perf_event() {
        return None;
    }
    let trigger = Trigger::settle(&options.events[event], options, cpu);
    let error = open_error(&trigger, &trigger.open(cpu).err()?);
    (error.kind == ErrorKind::Event).then_some(error)
}

fn one_at_a_time() -> Option<Error> {
    (!kernel_has_cookies()).then(|| {
        Error::new(
            ErrorKind::Kernel,
            "this kernel can record one event of perf's at a time (several need Linux 5.15)",
            "give one -e",
        )
    })
}
