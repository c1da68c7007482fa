//! Stacks of every kind, recorded on the spot from programs made for it: the walker finds what gimli finds.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stackhound_replay::{Comparison, End, Oracle, Replay, Stack, Traced, Walker};

/// Stops of a program, and single instructions at each.
const STOPS: usize = 60;
const STEPS: usize = 12;
/// A kind of stack that was not seen by then does not come. No test expects to take any part of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers of stops, for as long as that.
fn patiently() -> impl Iterator<Item = usize> {
    let deadline = Instant::now() + PATIENCE;
    (0..).take_while(move |_| Instant::now() < deadline)
}

fn compile(compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
    let program = tempfile::Builder::new()
        .prefix("program-")
        .tempfile_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap()
        .into_temp_path();
    let output = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program.keep().unwrap()
}

/// A program at work, until this is dropped.
struct Running {
    child: Child,
    program: PathBuf,
}

impl Running {
    /// Of `programs/frames.c`: it has come to its own code.
    fn begun(program: PathBuf, kind: &str) -> Self {
        let mut command = Command::new(&program);
        let command = command.arg(kind).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let sign = child.stdout.as_mut().unwrap().read_exact(&mut [0]);
        let running = Self { child, program };
        sign.unwrap();
        running
    }

    fn start(program: PathBuf, arguments: &[&str]) -> Self {
        let child = Command::new(&program)
            .args(arguments)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, program }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_file(&self.program).unwrap();
    }
}

/// What was seen of a program.
#[derive(Default)]
struct Seen {
    stacks: usize,
    rooted: usize,
    /// Stacks with the function that makes the kind.
    of_kind: usize,
    /// Those that reached their root.
    of_kind_rooted: usize,
    different: Vec<(Stack, Stack)>,
    /// One that did not reach its root, with what its frames are called.
    unrooted: Option<(Stack, Vec<String>)>,
}

/// Stops a program until a kind of stack, one with this function as a caller, was seen often enough.
fn watch(running: &Running, function: &str) -> Seen {
    let pid = running.child.id();
    let mut replay = Replay::new(|_| ()).unwrap();
    let (mut walker, mut oracle, mut seen) = (Walker::default(), Oracle::default(), Seen::default());
    let mut traced = Traced::new(pid, pid);
    for stop in patiently() {
        if stop >= STOPS && seen.of_kind_rooted > 0 {
            break;
        }
        let mut stopped = traced.stop().unwrap().expect("it works until it is told to end");
        let mut case = stopped.case(&mut replay).unwrap();
        for _ in 0..STEPS {
            let (theirs, certain) = oracle.walk(&replay, &mut case);
            let ours = walker.walk(&replay, &mut case);
            let callers = theirs.addresses.iter().skip(1);
            let is_of_kind = callers
                .clone()
                .any(|at| oracle.describe(&replay, &case, at - 1).2.contains(function));
            let is_rooted = ours.end == End::Root;
            seen.stacks += 1;
            seen.rooted += usize::from(is_rooted);
            if !is_rooted && seen.unrooted.is_none() {
                let name = |at: &u64| oracle.describe(&replay, &case, *at).2;
                let names = ours.addresses.iter().map(name).collect();
                seen.unrooted = Some((ours.clone(), names));
            }
            seen.of_kind += usize::from(is_of_kind);
            seen.of_kind_rooted += usize::from(is_of_kind && is_rooted);
            if Comparison::new(&ours, &theirs, certain).difference.is_some() {
                seen.different.push((ours, theirs));
            }
            if stopped.is_at_system_call() || !stopped.step().unwrap() {
                break;
            }
            case = stopped.same_code().unwrap();
        }
    }
    seen
}

fn assert_equal(seen: &Seen) {
    assert!(seen.different.is_empty(), "{:x?}", seen.different[0]);
    assert!(seen.of_kind > 0, "no stack of this kind in {}", seen.stacks);
}

/// A kind of `programs/frames.c`.
fn check(kind: &str, function: &str) -> Seen {
    let flags = ["-O2", "-fomit-frame-pointer", "-mstackrealign", "-pthread"];
    let flags = if cfg!(target_arch = "x86_64") {
        &flags[..]
    } else {
        &flags[..2]
    };
    let seen = watch(&Running::begun(compile("gcc", "frames.c", flags), kind), function);
    assert_equal(&seen);
    seen
}

fn check_complete(kind: &str, function: &str) {
    let seen = check(kind, function);
    assert_eq!(seen.rooted, seen.stacks, "{:x?}", seen.unrooted);
}

#[test]
fn deep_recursion_is_walked_to_its_root() {
    check_complete("deep", "recurse");
}

#[test]
fn frames_of_dynamic_size_are_walked() {
    check_complete("dynamic", "allocate");
}

#[test]
fn realigned_stacks_are_walked() {
    check_complete("realigned", "realign");
}

#[test]
fn functions_that_the_c_library_calls_are_walked() {
    check_complete("sorted", "qsort");
}

#[test]
fn string_functions_and_plt_entries_are_walked() {
    check_complete("strings", "main");
}

#[test]
fn signal_handlers_are_walked_to_what_they_interrupted() {
    check_complete("signals", "handle");
}

#[test]
fn signal_handlers_on_a_stack_of_their_own_are_walked() {
    check_complete("alternate", "handle");
}

#[test]
fn what_a_timer_interrupts_anywhere_is_walked() {
    check_complete("ticked", "handle");
}

#[test]
fn the_vdso_is_walked() {
    check_complete("clocks", "clock_gettime");
}

/// The loader's entry counts from rbx, which the functions that it calls have stored.
#[test]
#[cfg(target_arch = "x86_64")]
fn lazy_binding_is_walked() {
    let flags = ["-O2", "-fomit-frame-pointer", "-no-pie", "-Wl,-z,lazy", "-pthread"];
    let seen = watch(&Running::begun(compile("gcc", "frames.c", &flags), "bound"), "main");
    assert_equal(&seen);
    assert_eq!(seen.rooted, seen.stacks, "{:x?}", seen.unrooted);
}

#[test]
fn endless_recursion_is_cut_and_says_so() {
    let flags = ["-O2", "-fomit-frame-pointer", "-pthread"];
    let pid = Running::begun(compile("gcc", "frames.c", &flags), "endless");
    let mut replay = Replay::new(|_| ()).unwrap();
    let mut walker = Walker::default();
    let mut traced = Traced::new(pid.child.id(), pid.child.id());
    let is_cut = |_| {
        let mut case = traced.stop().unwrap().unwrap().case(&mut replay).unwrap();
        let stack = walker.walk(&replay, &mut case);
        stack.end == End::Truncated && stack.addresses.len() == 127
    };
    assert!(patiently().any(is_cut));
}

/// The few instructions that resume after a destructor, on another stack frame than their function's, are one case in
/// thousands; all others are equal.
#[test]
fn exceptions_are_walked() {
    if Command::new("g++").arg("--version").output().is_err() {
        eprintln!("skipped: there is no g++ here");
        return;
    }
    let program = compile("g++", "exceptions.cpp", &["-O2", "-fomit-frame-pointer"]);
    let seen = watch(&Running::start(program, &[]), "__cxa_throw");
    assert!(seen.of_kind_rooted > 0);
    assert!(seen.different.len() * 100 < seen.stacks, "{:x?}", seen.different[0]);
}

/// The comparison finds out a rule that is wrong.
#[test]
fn one_wrong_rule_is_found_out() {
    use stackhound_core::unwind::Cfa;
    let running = Running::start(
        compile("gcc", "frames.c", &["-O2", "-fomit-frame-pointer", "-pthread"]),
        &["deep"],
    );
    let pid = running.child.id();
    let mut replay = Replay::new(|rule| {
        rule.cfa_offset += if rule.cfa == Cfa::SP && rule.cfa_offset > 16 {
            8
        } else {
            0
        };
    })
    .unwrap();
    let (mut walker, mut oracle, mut traced) = (Walker::default(), Oracle::default(), Traced::new(pid, pid));
    let differs = |_| {
        let mut case = traced.stop().unwrap().unwrap().case(&mut replay).unwrap();
        let (theirs, certain) = oracle.walk(&replay, &mut case);
        let ours = walker.walk(&replay, &mut case);
        Comparison::new(&ours, &theirs, certain).difference.is_some()
    };
    assert!(patiently().any(differs));
}
