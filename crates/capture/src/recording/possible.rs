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

/// Where the programs cannot be loaded: leaves out the events whose own programs cannot be, each alone, and returns a note
/// for each. Empty where that is not why, or nothing would be left.
pub fn leave_out_failing(options: &mut Options, load: impl Fn(&Options) -> Result<()>) -> Vec<String> {
    let hooked = |event: &EventSpec| !event.is_perf_event();
    let fails = |event: &EventSpec| {
        let mut alone = options.clone();
        alone.events = vec![event.clone()];
        alone.wakers &= alone.off_cpu_event().is_some();
        load(&alone).err()
    };
    let failing = options.events.iter().enumerate().filter(|(_, event)| hooked(event));
    let failing: Vec<_> = failing
        .filter_map(|(at, event)| Some((at, note(event, &fails(event)?))))
        .collect();
    if failing.len() == options.events.len() {
        return Vec::new();
    }
    for (event, _) in failing.iter().rev() {
        leave_out(options, *event);
    }
    failing.into_iter().map(|(_, note)| note).collect()
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
