//! Recordings: `Session` with the GIL released, options checked.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use stackhound_capture as capture;

use crate::errors::{from_capture, native};
use crate::tables::Tables;

/// One recording: created, started, finished.
#[pyclass(frozen, module = "stackhound._native")]
pub struct Session(Mutex<Stage>);

enum Stage {
    Created(Box<capture::Options>),
    Running(capture::Session),
    Over,
}

#[pymethods]
impl Session {
    #[new]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self(Mutex::new(Stage::Created(Box::new(parse_options(options)?)))))
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut stage = self.lock();
            match std::mem::replace(&mut *stage, Stage::Over) {
                Stage::Created(options) => *stage = Stage::Running(capture::Session::start(*options)?),
                other => *stage = other,
            }
            Ok(())
        })
        .map_err(from_capture)
    }

    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<&'static str> {
        let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).unwrap_or(Duration::MAX);
        self.running(py, |session| Ok(session.wait(timeout)))
            .map(|outcome| match outcome {
                capture::WaitOutcome::Timeout => "timeout",
                capture::WaitOutcome::TargetsExited => "targets-exited",
                capture::WaitOutcome::Failed => "failed",
            })
    }

    fn add_pid(&self, py: Python<'_>, pid: u32) -> PyResult<()> {
        self.running(py, |session| session.add_target(pid))
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.running(py, capture::Session::status)?;
        let dict = PyDict::new(py);
        for (name, value) in [
            ("samples", status.samples),
            ("lost", status.lost),
            ("entries", status.entries),
            ("bpf_ns", status.bpf_ns),
            ("bpf_runs", status.bpf_runs),
            ("collector_cpu_ns", status.collector_cpu_ns),
            ("resident_bytes", status.resident_bytes),
            ("elapsed_ns", status.elapsed_ns),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    fn take(&self, py: Python<'_>, lines: bool) -> PyResult<Tables> {
        self.running(py, |session| session.take(lines)).map(Tables::new)
    }

    fn stop(&self, py: Python<'_>, lines: bool) -> PyResult<Vec<(String, String)>> {
        let missing = self.running(py, |session| session.stop(lines))?;
        Ok(missing.into_iter().map(|file| (file.build_id, file.path)).collect())
    }

    fn finish(&self, py: Python<'_>, lines: bool) -> PyResult<(Tables, String)> {
        let finished = py.detach(|| match std::mem::replace(&mut *self.lock(), Stage::Over) {
            Stage::Running(session) => session.finish(lines).map(Some),
            _ => Ok(None),
        });
        let finished = finished.map_err(from_capture)?.ok_or_else(not_running)?;
        Ok((Tables::new(finished.tables), finished.metadata))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| *self.lock() = Stage::Over);
    }
}

impl Session {
    fn lock(&self) -> std::sync::MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the running recording, without the GIL.
    fn running<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&capture::Session) -> capture::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| match &*self.lock() {
            Stage::Running(session) => Some(work(session)),
            _ => None,
        });
        done.ok_or_else(not_running)?.map_err(from_capture)
    }
}

fn not_running() -> PyErr {
    native(
        "recording",
        "the recording does not run",
        "start it first, and finish it once",
    )
}

/// What every thread of the processes `pids` does now. Takes the options of a `Session`; its events are not used.
#[pyfunction]
pub fn dump(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<(Tables, String)> {
    let options = parse_options(options)?;
    let finished = py.detach(|| capture::dump(options)).map_err(from_capture)?;
    Ok((Tables::new(finished.tables), finished.metadata))
}

/// Events this machine could have, beyond those that every kernel has: (name, kind, why not).
#[pyfunction]
pub fn list_events(py: Python<'_>) -> Vec<(String, &'static str, String)> {
    let (names, reason) = py.detach(capture::list_events);
    let unreadable = reason.map(|reason| ("tracepoints".to_string(), "tracepoint", reason));
    names
        .into_iter()
        .map(|name| (name, "tracepoint", String::new()))
        .chain(unreadable)
        .collect()
}

/// What this kernel lets us do: (name, state, detail), state one of `ok`, `degraded`, `missing`.
#[pyfunction]
pub fn probe(py: Python<'_>) -> Vec<(&'static str, &'static str, String)> {
    let probes = py.detach(capture::probe::probe);
    probes
        .into_iter()
        .map(|probe| (probe.name, probe.state, probe.detail))
        .collect()
}

/// The build-id of an ELF file, in hexadecimal digits; empty when it has none, or is no ELF file.
#[pyfunction]
pub fn build_id(py: Python<'_>, path: PathBuf) -> String {
    py.detach(|| stackhound_core::symbolize::build_id(&path))
        .unwrap_or_default()
}

/// Why time off the CPU cannot be recorded here; empty when it can.
#[pyfunction]
pub fn probe_off_cpu(py: Python<'_>) -> &'static str {
    py.detach(capture::probe::probe_off_cpu).unwrap_or_default()
}

/// Why requests to block devices cannot be recorded here; empty when they can.
#[pyfunction]
pub fn probe_block_io(py: Python<'_>) -> &'static str {
    py.detach(capture::probe::probe_block_io).unwrap_or_default()
}

/// The library in which programs choose samples of their allocations, as a file.
#[pyfunction]
pub fn heap_library(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, capture::HEAP_LIBRARY)
}

/// Why allocations cannot be followed here; empty when they can.
#[pyfunction]
pub fn probe_heap(py: Python<'_>) -> &'static str {
    py.detach(capture::probe::probe_heap).unwrap_or_default()
}

/// Why an event cannot be counted here; empty when it can.
#[pyfunction]
#[pyo3(signature = (r#type, config))]
pub fn probe_event(py: Python<'_>, r#type: u32, config: u64) -> String {
    py.detach(|| capture::probe::probe_event(r#type, config))
        .unwrap_or_default()
}

fn parse_options(options: &Bound<'_, PyDict>) -> PyResult<capture::Options> {
    let events: Vec<Bound<'_, PyDict>> = required(options, "events")?;
    if events.is_empty() || events.len() > capture::probe::MAX_EVENTS {
        return Err(native("usage", format!("{} events", events.len()), "give 1 to 32"));
    }
    let text = |key| required::<String>(options, key).map(|text| (!text.is_empty()).then_some(text));
    let ring_bytes: usize = required(options, "ring_bytes")?;
    let drain_interval_ms: u64 = required(options, "drain_interval_ms")?;
    Ok(capture::Options {
        events: events.iter().map(parse_event).collect::<PyResult<_>>()?,
        software_only: required(options, "software_only")?,
        pids: required(options, "pids")?,
        held_pids: required(options, "held_pids")?,
        inherit: required(options, "inherit")?,
        comm: text("comm")?,
        cgroup: text("cgroup")?.map(PathBuf::from),
        user_only: required(options, "user_only")?,
        kernel_only: required(options, "kernel_only")?,
        unwind: required(options, "unwind")?,
        kernel_walk: parse_kernel_walk(&required::<String>(options, "kernel_walk")?)?,
        python: required(options, "python")?,
        asyncio: required(options, "asyncio")?,
        include_self: required(options, "include_self")?,
        aggregate: required(options, "aggregate")?,
        off_cpu_min: Duration::from_micros(required(options, "off_cpu_min_us")?),
        off_cpu_max: Duration::from_micros(required(options, "off_cpu_max_us")?),
        off_cpu_exact: required(options, "off_cpu_exact")?,
        wakers: required(options, "wakers")?,
        off_cpu_at_departure: required(options, "off_cpu_at_departure")?,
        heap_library: text("heap_library")?.map(PathBuf::from),
        heap_uprobes: required(options, "heap_uprobes")?,
        heap_files: required::<Vec<PathBuf>>(options, "heap_files")?,
        heap_max_slowdown_percent: required(options, "heap_max_slowdown_percent")?,
        ring_bytes: (ring_bytes > 0).then_some(ring_bytes),
        raw_addresses: required(options, "raw_addresses")?,
        drain_interval: (drain_interval_ms > 0).then(|| Duration::from_millis(drain_interval_ms)),
        debug_dirs: required::<Vec<String>>(options, "debug_dirs")?
            .into_iter()
            .map(PathBuf::from)
            .collect(),
        debuginfod_cache: text("debuginfod_cache")?.map(PathBuf::from),
        log_level: required(options, "log_level")?,
    })
}

fn parse_kernel_walk(name: &str) -> PyResult<capture::KernelWalk> {
    match name {
        "tables" => Ok(capture::KernelWalk::Tables),
        "kernel" => Ok(capture::KernelWalk::Kernel),
        "compared" => Ok(capture::KernelWalk::Compared),
        _ => Err(native(
            "usage",
            format!("no way to walk kernel stacks: {name}"),
            "give tables, kernel or compared",
        )),
    }
}

/// As `src/stackhound/recording/events.py` has it.
const OFF_CPU: i64 = -2;
const BLOCK_IO: i64 = -3;
const HEAP: i64 = -4;

fn parse_event(event: &Bound<'_, PyDict>) -> PyResult<capture::EventSpec> {
    let rate: u64 = required(event, "rate")?;
    let sampling = match required::<String>(event, "mode")?.as_str() {
        "frequency" => capture::Sampling::Frequency(rate),
        "period" => capture::Sampling::Period(rate),
        other => {
            return Err(native(
                "usage",
                format!("no sampling mode {other}"),
                "frequency or period",
            ));
        }
    };
    let kind: i64 = required(event, "type")?;
    let tracepoint: String = required(event, "tracepoint")?;
    let flag = |key| event.get_item(key)?.map_or(Ok(false), |value| value.extract());
    Ok(capture::EventSpec {
        name: required(event, "name")?,
        unit: required(event, "unit")?,
        kind: match u32::try_from(kind) {
            Ok(kind) => capture::EventKind::Perf(kind),
            Err(_) if kind == OFF_CPU => capture::EventKind::OffCpu,
            Err(_) if kind == BLOCK_IO => capture::EventKind::BlockIo,
            Err(_) if kind == HEAP => capture::EventKind::Heap,
            Err(_) => capture::EventKind::CpuTime,
        },
        config: [
            required(event, "config")?,
            required(event, "config1")?,
            required(event, "config2")?,
        ],
        sampling,
        tracepoint: (!tracepoint.is_empty()).then_some(tracepoint),
        exclude_kernel: flag("exclude_kernel")?,
        exclude_user: flag("exclude_user")?,
    })
}

fn required<'py, T>(options: &Bound<'py, PyDict>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
    for<'a> <T as FromPyObject<'a, 'py>>::Error: Into<PyErr>,
{
    let value = options
        .get_item(key)?
        .ok_or_else(|| native("usage", format!("no option {key}"), ""))?;
    value.extract().map_err(Into::into)
}
