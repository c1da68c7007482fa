//! Runs one BPF design on a timer of each CPU, for benchmarks that compare designs (see benches/).
//!
//! ```text
//! attach OBJECT HZ
//! ```
//!
//! OBJECT has a perf_event program `sample`, and perhaps a ring `records`, which is read whenever the program wakes its
//! reader, and at least each 100 ms. Prints `ready` once it samples, ends with its standard input, and prints how many records it has read.

use std::error::Error;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, RingBuffer, RingBufferBuilder, num_possible_cpus};
use libbpf_sys::perf_event_attr;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long records without a wake-up wait, and how late the end of the standard input may be noticed.
const POLL: Duration = Duration::from_millis(100);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, hz] = arguments.as_slice() else {
        return Err("usage: attach OBJECT HZ".into());
    };
    let mut object = ObjectBuilder::default().open_file(path)?.load()?;
    let links = attach(&mut object, 1_000_000_000 / hz.parse::<u64>()?)?;
    println!("ready");
    let records = AtomicU64::new(0);
    drain_until_told(&object, &records)?;
    drop(links);
    println!("{} records", records.into_inner());
    Ok(())
}

fn attach(object: &mut Object, period_ns: u64) -> Result<Vec<Link>> {
    let program = object
        .progs_mut()
        .find(|program| program.name() == "sample")
        .ok_or("no program `sample`")?;
    let mut links = Vec::new();
    for cpu in 0..num_possible_cpus()? {
        if let Some(event) = cpu_clock(period_ns, cpu)? {
            links.push(program.attach_perf_event(event.as_raw_fd())?);
            std::mem::forget(event); // the link closes it
        }
    }
    Ok(links)
}

/// The timer of one CPU for every process; None where the CPU is offline.
fn cpu_clock(period_ns: u64, cpu: usize) -> Result<Option<OwnedFd>> {
    const PERF_TYPE_SOFTWARE: u32 = 1; // its config 0 is the CPU clock
    const PERF_FLAG_FD_CLOEXEC: u64 = 8;
    let mut attributes = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        ..Default::default()
    };
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.__bindgen_anon_1.sample_period = period_ns;
    // SAFETY: the attributes live through the call, which reads `size` bytes of them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            -1,
            cpu as i32,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let error = std::io::Error::last_os_error();
    match fd {
        // SAFETY: a new descriptor that nobody else owns.
        0.. => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as i32) })),
        _ if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        _ => Err(error.into()),
    }
}

fn drain_until_told(object: &Object, records: &AtomicU64) -> Result<()> {
    let told = Arc::new(AtomicBool::new(false));
    let teller = Arc::clone(&told);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new()); // an error is an end, too
        teller.store(true, Ordering::Relaxed);
    });
    let ring = ring(object, records)?;
    while !told.load(Ordering::Relaxed) {
        match &ring {
            Some(ring) => {
                ring.poll(POLL)?;
                ring.consume()?;
            }
            None => std::thread::sleep(POLL),
        }
    }
    Ok(())
}

fn ring<'a>(object: &'a Object, records: &'a AtomicU64) -> Result<Option<RingBuffer<'a>>> {
    let Some(map) = object.maps().find(|map| map.name() == "records") else {
        return Ok(None);
    };
    let mut builder = RingBufferBuilder::new();
    builder.add(&map, |_| {
        records.fetch_add(1, Ordering::Relaxed);
        0
    })?;
    Ok(Some(builder.build()?))
}
