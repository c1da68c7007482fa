"""``stackhound record`` around the recording itself, which a stand-in plays: no privileges, no BPF."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fixtures.profiles import CPU, FAULTS, build_profile
from fixtures.terminal import read_to_end
from stackhound import _native
from stackhound.cli.main import main
from stackhound.profile import load

PARENT = os.getppid()
ROW = ("app", 7, 7, 0, 1_000, ["main", "work", "k:vfs_read"], 10_101_010, 1)
METADATA = {
    "cost": {
        "bpf_ns_per_run": 4100.0,
        "interrupt_ns_per_sample": 4000.0,
        "collector_cpu_ns": 20_000_000,
        "elapsed_ns": 10_000_000_000,
        "resident_bytes": 41_000_000,
    }
}


class Tables:
    """What `_native.Session.finish` hands over."""

    def __init__(self, profile):
        self._tables = dict(profile.tables)

    def names(self):
        return list(self._tables)

    def take(self, name):
        return self._tables.pop(name)


class Session:
    """Plays `_native.Session`; tests change its class attributes."""

    profile = None
    state = "timeout"
    start_error = None
    finish_error = None
    missing = ()
    made = None

    def __init__(self, options):
        self.options = options
        self.closed = False
        type(self).made = self

    def start(self):
        if self.start_error:
            raise self.start_error

    def wait(self, _timeout_s):
        Path("waiting").touch()
        return self.state

    def status(self):
        names = ("samples", "lost", "entries", "bpf_ns", "bpf_runs", "collector_cpu_ns", "resident_bytes", "elapsed_ns")
        return dict.fromkeys(names, 1)

    def stop(self, _lines):
        return list(self.missing)

    def finish(self, lines):
        if self.finish_error:
            raise self.finish_error
        return Tables(self.profile), json.dumps({**METADATA, "options": {"lines": lines}})

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def session(monkeypatch, tmp_path):
    made = type("Session", (Session,), {"profile": build_profile([ROW])})
    monkeypatch.setattr(_native, "Session", made)
    monkeypatch.chdir(tmp_path)
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_it_writes_stackhound_hound_and_says_what_it_cost_and_what_to_do_next(capsys):
    assert main(["record", "-d", "10ms"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "vfs_read" in shown.err
    assert (
        "1 sample · 0 lost · 4.1 µs each + 4.0 µs interrupt (calibrated) · collector 0.2% of a CPU, 41 MB\n"
        in shown.err
    )
    last = shown.err.splitlines()[-1]
    assert re.fullmatch(
        r"wrote stackhound\.hound \([\d.]+ KiB\); next: stackhound report, or stackhound export -o flame\.html", last
    )
    assert load("stackhound.hound").table("samples").num_rows == 1


def test_of_several_events_the_next_step_names_one(session, capsys):
    faults = ("app", 7, 7, 0, 2_000, ["main", "touch"], 3, 3, "page-faults")
    session.profile = build_profile([ROW, faults], events=[CPU, FAULTS])
    assert main(["record", "-d", "10ms", "-e", "cpu,page-faults"]) == 0
    report, export = capsys.readouterr().err.partition("; next: stackhound ")[2].split(", or stackhound ")
    assert main(report.split()) == 0
    assert main(export.split()) == 0
    assert Path("flame.html").exists()


@pytest.mark.parametrize(("jump_ns", "told"), [(3_200_000_000, "forward by 3.20 s"), (-50_000_000, "back by 50.0 ms")])
def test_a_clock_that_is_set_meanwhile_is_told(jump_ns, told, monkeypatch, capsys):
    start_ns = 1_763_718_191_000_000_000
    clock = {"boot_to_unix_ns_start": start_ns, "boot_to_unix_ns_end": start_ns + jump_ns}
    monkeypatch.setitem(METADATA, "clock", clock)
    assert main(["record", "-d", "10ms"]) == 0
    assert f"note: the clock was set {told} meanwhile" in capsys.readouterr().err


def test_a_clock_that_is_slewed_is_nothing_to_tell(monkeypatch, capsys):
    hour_ns = 3600 * 10**9
    clock = {"start_boottime_ns": 0, "end_boottime_ns": hour_ns, "boot_to_unix_ns_start": hour_ns}
    monkeypatch.setitem(METADATA, "clock", clock | {"boot_to_unix_ns_end": hour_ns + hour_ns // 2000})
    assert main(["record", "-d", "10ms"]) == 0
    assert "note:" not in capsys.readouterr().err


def test_an_older_recording_is_kept(session):
    assert main(["record", "-d", "10ms"]) == 0
    session.profile = build_profile([ROW, ROW])
    assert main(["record", "-d", "10ms"]) == 0
    assert load("stackhound.hound").table("samples").num_rows == 2
    assert load("stackhound.hound.old").table("samples").num_rows == 1


@pytest.mark.parametrize(
    ("arguments", "name", "start"),
    [
        (["-o", "a.folded"], "a.folded", "app;main;"),
        (["-o", "a.svg"], "a.svg", "<svg"),
        (["-o", "a.txt", "--format", "folded"], "a.txt", "app;main;"),
        (["--format", "folded"], "stackhound.folded", "app;main;"),
    ],
)
def test_the_suffix_says_the_format_and_the_option_overrides_it(arguments, name, start):
    assert main(["record", "-d", "10ms", *arguments]) == 0
    assert Path(name).read_text().startswith(start)


def test_stdout_has_the_profile_and_nothing_else(capfdbinary):
    assert main(["record", "-d", "10ms", "--format", "folded", "-o", "-"]) == 0
    assert capfdbinary.readouterr().out == b"app;main;work;vfs_read_[k] 1\n"


def test_stdout_has_nothing_of_commands_output_either(capfdbinary):
    assert main(["record", "--format", "folded", "-o", "-", "--", "echo", "hello"]) == 0
    shown = capfdbinary.readouterr()
    assert shown.out == b"app;main;work;vfs_read_[k] 1\n"
    assert b"hello\n" in shown.err


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["-F", "0"], 2, "0 Hz"),
        (["-F", "-3"], 2, "-3 Hz"),
        (["-F", "99999999"], 2, "kernel.perf_event_max_sample_rate"),
        (["-c", "0"], 2, "period of 0"),
        (["-F", "9", "-c", "9"], 2, "exclude each other"),
        (["-p", "abc"], 2, "'abc' is not a process id"),
        (["-p", "0"], 2, "'0' is not a process id"),
        (["-p", "1,,x"], 2, "'x' is not a process id"),
        (["-p", "99999999999"], 2, "not a process id"),
        (["-p", "4194303"], 1, "there is no process 4194303"),
        (["-a", "-p", "1"], 2, "-a and -p exclude each other"),
        (["-d", "0"], 2, "'0' is not a duration"),
        (["-d", "-1"], 2, "'-1' is not a duration"),
        (["-d", "soon"], 2, "'soon' is not a duration"),
        (["-d", "nan"], 2, "'nan' is not a duration"),
        (["-d", "1e400"], 2, "'1e400' is not a duration"),
        (["-d", "999999999999"], 2, "too long"),
        (["-e", "cyclse"], 2, "did you mean"),
        (["--user-only", "--kernel-only"], 2, "exclude each other"),
        (["--cgroup", "none/such"], 2, "cgroup"),
        (["--debug-dir", "none/such"], 2, "debug directory"),
        (["--debuginfod-size", "big"], 2, "'big' is not a size"),
        (["--debuginfod-time", "soon"], 2, "'soon' is not a duration"),
        (["--ring-size", "5000"], 2, "power of two"),
        (["--ring-size", "big"], 2, "'big' is not a size"),
        (["--format", "gif"], 2, "no format is called 'gif'"),
        (["-o", "x.gif"], 2, "says no format"),
        (["-o", "none/x.hound"], 1, "create its directory first"),
        (["-o", "/proc/x.hound"], 1, "cannot write /proc/x.hound"),
        (["-o", "."], 1, "is a directory"),
        (["-e", "cpu,page-faults", "-o", "x.svg"], 2, "choose one with --event"),
        (
            ["--event", "cpu", "-e", "page-faults", "-o", "x.svg"],
            2,
            "no event 'cpu' is recorded: choose one of page-faults",
        ),
    ],
)
def test_bad_input_is_one_line_before_anything_is_recorded(arguments, status, told, session, capsys):
    assert main(["record", "-d", "10ms", *arguments]) == status
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.startswith("stackhound: ")
    assert shown.count("\n") == 1
    assert session.made is None
    assert not list(Path.cwd().iterdir())


def test_a_directory_named_like_a_profile_is_refused(session, capsys):
    Path("x.hound").mkdir()
    assert main(["record", "-d", "10ms", "-o", "x.hound"]) == 1
    assert "is a directory" in capsys.readouterr().err
    assert session.made is None


def test_a_picture_of_one_of_several_events_is_chosen_by_name(session):
    faults = ("app", 7, 7, 0, 2_000, ["main", "touch"], 3, 3, "page-faults")
    session.profile = build_profile([ROW, faults], events=[CPU, FAULTS])
    assert main(["record", "-d", "10ms", "-e", "cpu,page-faults", "--event", "page-faults", "-o", "x.folded"]) == 0
    assert Path("x.folded").read_text() == "app;main;touch 3\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-f", "49"], {"rate": 49, "mode": "frequency"}),
        (["-F", "49"], {"rate": 49}),
        (["--freq", "49"], {"rate": 49}),
        (["-c", "5000", "-e", "cycles"], {"rate": 5000, "mode": "period", "name": "cycles"}),
        (["-e", "cycles:u"], {"exclude_kernel": True}),
    ],
)
def test_options_of_the_event_reach_the_core(arguments, expected, session):
    assert main(["record", "-d", "10ms", *arguments]) == 0
    (event,) = session.made.options["events"]
    assert {name: event[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"pids": [], "inherit": True, "include_self": False, "log_level": 0}),
        (["-a", "-g"], {"pids": []}),
        (["-p", str(PARENT), "-p", f"{PARENT},{os.getpid()}"], {"pids": [PARENT, os.getpid()]}),
        (["--no-inherit"], {"inherit": False}),
        (["--comm", "nginx"], {"comm": "nginx"}),
        (["--user-only"], {"user_only": True}),
        (["--kernel-only"], {"kernel_only": True}),
        (["--include-self"], {"include_self": True}),
        (["--async"], {"asyncio": True}),
        (["--aggregate"], {"aggregate": True}),
        (["--sw-event"], {"software_only": True}),
        (["--ring-size", "4M"], {"ring_bytes": 4 << 20}),
        (["--debug-dir", "/usr"], {"debug_dirs": ["/usr"]}),
        ([], {"debuginfod_cache": ""}),
        (["-vvv"], {"log_level": 3}),
        (["-vvvvvv"], {"log_level": 4}),
    ],
)
def test_options_reach_the_core(arguments, expected, session):
    assert main(["record", "-d", "10ms", *arguments]) == 0
    assert {name: session.made.options[name] for name in expected} == expected


def test_debuginfod_without_a_server_is_told_before_anything_is_recorded(session, capsys, monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_URLS", "")
    assert main(["record", "-d", "10ms", "--debuginfod"]) == 2
    assert "no debuginfod server is known: set DEBUGINFOD_URLS" in capsys.readouterr().err
    assert session.made is None


def test_what_became_of_debug_files_is_one_line_and_stays_in_the_profile(session, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    session.missing = (("ab" * 20, "/usr/bin/app"), ("cd" * 20, "/usr/lib/libx.so"))
    assert main(["record", "-d", "10ms", "--debuginfod"]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("note: "))
    assert re.fullmatch(r"note: debuginfod: 0 of 2 debug files in \d+\.\d s; 2 not given", line)
    assert load("stackhound.hound").metadata["notes"] == [line.removeprefix("note: ")]
    assert session.made.options["debuginfod_cache"] == str(tmp_path / "cache")


def test_nothing_is_said_of_debug_files_when_all_are_here(capsys, monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    assert main(["record", "-d", "10ms", "--debuginfod"]) == 0
    assert "note:" not in capsys.readouterr().err


@pytest.mark.parametrize(("option", "lines"), [("--lines", True), ("--no-lines", False)])
def test_lines_are_looked_up_when_asked_for(option, lines):
    assert main(["record", "-d", "10ms", option]) == 0
    assert load("stackhound.hound").metadata["options"]["lines"] is lines


def test_a_command_is_the_target_and_its_status_is_passed_on(session):
    assert main(["record", "--", "sh", "-c", "echo $$ > pid; exit 7"]) == 7
    assert session.made.options["pids"] == session.made.options["held_pids"] == [int(Path("pid").read_text())]
    assert load("stackhound.hound").table("samples").num_rows == 1


def test_a_command_ended_by_a_signal_gives_128_more():
    assert main(["record", "sh", "-c", "kill -TERM $$"]) == 128 + signal.SIGTERM


def test_options_after_the_command_are_the_commands(session):
    assert main(["record", "-F", "19", "sh", "-c", "exit 0"]) == 0
    assert session.made.options["events"][0]["rate"] == 19


@pytest.mark.parametrize(("arguments", "pids"), [(["-a"], []), (["-p", str(PARENT)], [PARENT])])
def test_with_a_or_p_the_command_only_says_how_long(arguments, pids, session):
    assert main(["record", *arguments, "--", "true"]) == 0
    assert (session.made.options["pids"], session.made.options["held_pids"]) == (pids, [])


def test_a_command_that_cannot_be_run_is_127_and_records_nothing(session, capsys):
    assert main(["record", "--", "no-such-program"]) == 127
    assert capsys.readouterr().err == (
        "stackhound: cannot run 'no-such-program': No such file or directory: check its spelling and PATH\n"
    )
    assert session.made.closed
    assert not list(Path.cwd().iterdir())


def test_a_recording_that_cannot_start_is_125_and_the_command_does_not_run(session, capsys):
    session.start_error = _native.NativeError("permission", "BPF may not be used", "run with sudo")
    assert main(["record", "--", "touch", "mark"]) == 125
    assert capsys.readouterr().err == "stackhound: BPF may not be used: run with sudo\n"
    assert not Path("mark").exists()


def test_without_a_command_a_recording_that_cannot_start_is_1(session, capsys):
    session.start_error = _native.NativeError("permission", "BPF may not be used", "run with sudo")
    assert main(["record"]) == 1
    assert capsys.readouterr().err == "stackhound: BPF may not be used: run with sudo\n"


def test_a_recording_that_breaks_off_is_125_and_the_command_goes_on_to_its_end(session):
    session.state = "failed"
    session.finish_error = _native.NativeError("recording", "it broke off", "")
    assert main(["record", "--", "sh", "-c", "sleep 0.6; touch mark; exit 7"]) == 125
    assert Path("mark").exists()


def test_after_the_duration_the_command_goes_on_and_its_status_is_passed_on():
    assert main(["record", "-d", "10ms", "--", "sh", "-c", "sleep 0.5; touch mark; exit 7"]) == 7
    assert Path("mark").exists()


def test_it_ends_with_its_targets(session):
    session.state = "targets-exited"
    assert main(["record", "-p", str(PARENT)]) == 0
    assert Path("stackhound.hound").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_recording_and_writes_it(number):
    ended = in_process(["record"], number)
    assert ended.returncode == 0
    assert load("stackhound.hound").table("samples").num_rows == 1


def test_a_second_impatient_signal_changes_nothing():
    ended = in_process(["record"], signal.SIGINT, signal.SIGINT)
    assert ended.returncode == 0
    assert Path("stackhound.hound").exists()


def test_a_command_gets_the_signal_that_was_sent_to_us_alone():
    script = "trap 'touch mark; exit 9' INT; touch ready; while :; do sleep 0.05; done"
    ended = in_process(["record", "--", "sh", "-c", script], signal.SIGINT)
    assert ended.returncode == 9
    assert Path("mark").exists()
    assert Path("stackhound.hound").exists()


def test_a_command_that_ignores_the_signal_is_waited_for_and_the_recording_written_meanwhile():
    script = "trap '' TERM; touch ready; while [ ! -e stackhound.hound ]; do sleep 0.05; done; exit 3"
    assert in_process(["record", "--", "sh", "-c", script], signal.SIGTERM).returncode == 3


def test_ctrl_c_on_a_terminal_reaches_the_command_once():
    """A terminal sends it to both; passed on as well, the command would get two."""
    script = (
        "n=0; trap 'n=$((n+1))' INT; touch ready; i=0; while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; exit $n"
    )
    parent, child = os.openpty()
    process = start_stand_in(["record", "--", "sh", "-c", script], stdin=child, start_new_session=True, terminal=True)
    wait_for(process, "waiting", "ready")
    os.write(parent, b"\x03")
    process.communicate()
    assert process.returncode == 1
    os.close(parent)
    os.close(child)
    assert Path("stackhound.hound").exists()


def test_numpy_is_held_to_one_thread_here_and_not_in_command(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert main(["record", "--", "sh", "-c", "echo ${OPENBLAS_NUM_THREADS-none} > seen"]) == 0
    assert Path("seen").read_text() == "none\n"


def test_a_terminal_that_does_not_say_its_width_shows_the_whole_table(monkeypatch):
    parent, child = os.openpty()  # of 0 columns
    with os.fdopen(child, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["record", "-d", "10ms"]) == 0
    assert b"vfs_read" in read_to_end(parent)
    os.close(parent)


STAND_IN = """
import fcntl, sys, termios
sys.path[:0] = {paths!r}
if {terminal!r}:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from unit import test_cli_record as here
here.Session.profile = here.build_profile([here.ROW])
here._native.Session = here.Session
sys.exit(here.main({arguments!r}))
"""


def start_stand_in(arguments, *, terminal=False, **options):
    tests = Path(__file__).parents[1]
    script = STAND_IN.format(paths=[str(tests)], arguments=arguments, terminal=terminal)
    return subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, **options)


def in_process(arguments, *signals):
    """Record in a process of its own, and send it signals once it waits and COMMAND, if any, is ready."""
    process = start_stand_in(arguments)
    wait_for(process, *(["waiting", "ready"] if "--" in arguments else ["waiting"]))
    for number in signals:
        process.send_signal(number)
    process.communicate()
    return process


def wait_for(process, *names):
    while not all(Path(name).exists() for name in names):
        assert process.poll() is None
        time.sleep(0.01)


def test_when_the_output_cannot_be_written_the_recording_is_kept_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert main(["record", "-d", "10ms", "-o", "/dev/full", "--format", "folded"]) == 1
    kept, failed = capsys.readouterr().err.splitlines()
    path = kept.removeprefix("stackhound: the recording is kept in ")
    assert Path(path).parent == tmp_path / "temporary"
    assert load(path).table("samples").num_rows == 1
    assert (
        failed
        == "stackhound: cannot write /dev/full: no space left on device: free some space, or write to another disk"
    )


def test_with_a_command_an_output_that_cannot_be_written_is_125(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["record", "-o", "/dev/full", "--format", "folded", "--", "true"]) == 125


def test_when_a_format_fails_the_recording_is_kept_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("stackhound.formats.folded.write", fail)
    with pytest.raises(ZeroDivisionError):
        main(["record", "-d", "10ms", "--format", "folded", "-o", "x.folded"])
    assert "the recording is kept in" in capsys.readouterr().err
    assert not Path("x.folded").exists()


def test_where_not_even_the_temporary_directory_has_room_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/none")
    assert main(["record", "-d", "10ms", "-o", "/dev/full", "--format", "folded"]) == 1
    assert "the recording is lost" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
@pytest.mark.parametrize("name", ["x.hound", "x.svg"])
def test_under_sudo_files_belong_to_the_invoking_user(name, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    assert main(["record", "-d", "10ms", "-o", name]) == 0
    assert (Path(name).stat().st_uid, Path(name).stat().st_gid) == (65534, 65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_under_sudo_a_directory_of_tables_belongs_to_the_invoking_user(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    Path("tables").mkdir()
    Path("tables/link").symlink_to("/etc/hostname")
    assert main(["record", "-d", "10ms", "--format", "parquet", "-o", "tables"]) == 0
    assert {path.lstat().st_uid for path in (Path("tables"), *Path("tables").iterdir())} == {65534}
    assert Path("/etc/hostname").stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize(("option", "uid"), [([], 65534), (["--as-root"], 0)])
def test_under_sudo_the_command_runs_as_the_invoking_user_or_as_root(option, uid, monkeypatch, capfd):
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    assert main(["record", *option, "--", "id", "-u"]) == 0
    assert int(capfd.readouterr().out) == uid


def test_a_recording_without_samples_is_written_and_says_so(session, capsys):
    session.profile = build_profile([])
    assert main(["record", "-d", "10ms"]) == 0
    assert "no sample" in capsys.readouterr().err
    assert Path("stackhound.hound").exists()


def test_losses_are_told_by_cause_and_estimates_apart(session, capsys):
    losses = [("ring-full", 12, False, ""), ("ring-busy", 0, False, ""), ("throttled", 40, True, "")]
    session.profile = build_profile([ROW], losses=losses)
    assert main(["record", "-d", "10ms"]) == 0
    assert "1 sample · 12 lost (12 ring-full) · estimated: ~40 throttled · " in capsys.readouterr().err


def test_a_hostile_name_reaches_no_terminal(session, capsys):
    session.profile = build_profile([("a\x1b[2J", 7, 7, 0, 1_000, ["ma\x1b]0;x\x07in"], 10, 1)])
    assert main(["record", "-d", "10ms"]) == 0
    shown = capsys.readouterr().err
    assert r"ma\x1b]0;x\x07in" in shown
    assert "\x1b" not in shown


def test_a_script_is_run_by_this_python(session, capfd):
    Path("script.py").write_text("import sys; print(sys.executable, *sys.argv); sys.exit(5)")
    assert main(["run", "-F", "199", "script.py", "--epochs", "3"]) == 5
    assert capfd.readouterr().out == f"{sys.executable} script.py --epochs 3\n"
    assert session.made.options["events"][0]["rate"] == 199


@pytest.mark.usefixtures("session")
def test_a_module_is_run_as_python_does_it(capfd):
    Path("module.py").write_text("import sys; print(__name__, sys.argv[1:])")
    assert main(["run", "-m", "module", "-m", "x"]) == 0
    assert capfd.readouterr().out == "__main__ ['-m', 'x']\n"
