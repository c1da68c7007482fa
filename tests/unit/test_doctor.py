"""What the doctor says of machines that lack something: each time with what mends it."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from stackhound import _native
from stackhound.cli.main import main
from stackhound.recording import doctor
from stackhound.recording.doctor import Finding, examine
from stackhound.recording.machine import CAPABILITIES, Machine

PROBES = [
    ("sampling programs", "ok", "perf_event and tp_btf programs load and attach"),
    ("bpf_loop", "degraded", "not in this kernel"),
    ("task storage", "missing", "not in this kernel"),
]


@pytest.fixture(autouse=True)
def core(monkeypatch):
    """A core that finds software events, and no hardware."""
    monkeypatch.setattr(_native, "probe", lambda: PROBES)
    monkeypatch.setattr(_native, "probe_event", lambda kind, _: "" if kind == 1 else "no such counter")
    names = [("sched:sched_switch", "tracepoint", "")]
    monkeypatch.setattr(_native, "list_events", lambda: names)


def make_machine(root, **files):
    """A healthy machine below ``root``, with some files changed; None takes one away."""
    bits = sum(1 << bit for bit in CAPABILITIES.values())
    healthy = {
        "/proc/sys/kernel/osrelease": "6.1.0-25-amd64\n",
        "/proc/sys/kernel/perf_event_paranoid": "2\n",
        "/proc/sys/kernel/kptr_restrict": "0\n",
        "/proc/sys/kernel/perf_event_max_sample_rate": "100000\n",
        "/proc/sys/kernel/perf_cpu_time_max_percent": "25\n",
        "/proc/sys/kernel/perf_event_max_stack": "127\n",
        "/proc/sys/kernel/unprivileged_bpf_disabled": "2\n",
        "/proc/self/status": f"Name:\tpython\nCapEff:\t{bits:016x}\n",
        "/proc/self/mounts": "tracefs /sys/kernel/tracing tracefs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "/proc/kallsyms": "0000000000000000 A per_cpu_start\nffffffff81000000 T _stext\n",
        "/sys/kernel/btf/vmlinux": "\0btf_trace_sched_exit_tp\0",
        "/sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
        "/usr/lib/debug/.build-id/ab/cdef.debug": "",
    }
    for name, text in {**healthy, **files}.items():
        if text is not None:
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return Machine(root)


def find(machine, subject):
    (found,) = [finding for finding in examine(machine) if finding.subject == subject]
    return found


CAPABILITY_FREE = {"/proc/self/status": "CapEff:\t0000000000000000\n"}
KERNEL_HIDDEN = {"/proc/kallsyms": "0000000000000000 T _stext\n"}


@pytest.mark.parametrize(
    ("subject", "files", "state", "remedy"),
    [
        ("kernel", {"/proc/sys/kernel/osrelease": "5.4.0-1"}, "missing", "boot Linux 5.10 or newer"),
        ("kernel", {"/proc/sys/kernel/osrelease": "strange"}, "missing", "boot Linux 5.10"),
        ("BTF", {"/sys/kernel/btf/vmlinux": None}, "missing", "CONFIG_DEBUG_INFO_BTF=y"),
        ("CAP_BPF", CAPABILITY_FREE, "missing", "sudo"),
        ("CAP_PERFMON", CAPABILITY_FREE, "missing", "sudo"),
        ("CAP_SYS_PTRACE", CAPABILITY_FREE, "degraded", "sudo"),
        ("CAP_SYSLOG", CAPABILITY_FREE, "degraded", "sudo"),
        ("perf_event_paranoid", CAPABILITY_FREE, "missing", "kernel.perf_event_paranoid=-1"),
        ("perf_event_paranoid", {"/proc/sys/kernel/perf_event_paranoid": None}, "missing", "CONFIG_PERF_EVENTS"),
        ("kptr_restrict", KERNEL_HIDDEN, "degraded", "run with sudo"),
        ("kptr_restrict", KERNEL_HIDDEN | {"/proc/sys/kernel/kptr_restrict": "2"}, "degraded", "kptr_restrict=1"),
        ("bpf_loop", CAPABILITY_FREE, "degraded", "run with sudo"),
        ("task storage", CAPABILITY_FREE, "missing", "run with sudo"),
        ("perf_event_max_sample_rate", {"/proc/sys/kernel/perf_event_max_sample_rate": "50"}, "degraded", "=100000"),
        ("perf_event_max_stack", {"/proc/sys/kernel/perf_event_max_stack": "64"}, "degraded", "max_stack=127"),
        ("lockdown", {"/sys/kernel/security/lockdown": "none integrity [confidentiality]"}, "missing", "lockdown="),
        ("cgroup v2", {"/proc/self/mounts": ""}, "degraded", "mount -t cgroup2"),
        ("sched_exit_tp", {"/sys/kernel/btf/vmlinux": "\0btf_trace_sched_switch\0"}, "degraded", "Linux 6.15"),
        ("debug files", {"/usr/lib/debug/.build-id/ab/cdef.debug": None}, "degraded", "libc6-dbg"),
        ("bpf_loop", {}, "degraded", "Linux 5.17"),
        ("task storage", {}, "missing", "Linux 5.13"),
        ("cache events (L1-dcache-load-misses)", {}, "degraded", "virtual PMU"),
    ],
)  # fmt: skip
def test_what_is_not_as_it_should_be_comes_with_what_mends_it(subject, files, state, remedy, tmp_path):
    found = find(make_machine(tmp_path, **files), subject)
    assert found.state == state
    assert remedy in found.remedy


@pytest.mark.parametrize(
    "subject",
    [
        "kernel", "BTF", "CAP_BPF", "CAP_SYS_ADMIN", "perf_event_paranoid", "kptr_restrict", "lockdown", "tracefs",
        "cgroup v2", "perf_event_max_sample_rate", "perf_event_max_stack", "sched_exit_tp", "debug files",
        "sampling programs", "software events (page-faults)", "memlock limit",
    ],
)  # fmt: skip
def test_a_healthy_machine_is_ok_and_needs_no_remedy(subject, tmp_path):
    found = find(make_machine(tmp_path), subject)
    assert (found.state, found.remedy) == ("ok", "")


def test_cap_sys_admin_stands_for_what_was_split_from_it(tmp_path):
    status = f"CapEff:\t{1 << CAPABILITIES['CAP_SYS_ADMIN']:016x}\n"
    machine = make_machine(tmp_path, **{"/proc/self/status": status})
    assert find(machine, "CAP_BPF").state == "ok"
    assert find(machine, "CAP_PERFMON").state == "ok"
    assert find(machine, "CAP_SYS_PTRACE").state == "degraded"


def test_before_5_11_locked_memory_limits_bpf(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, 65536))
    machine = make_machine(tmp_path, **{"/proc/sys/kernel/osrelease": "5.10.0-30-amd64"})
    found = find(machine, "memlock limit")
    assert (found.state, found.remedy) == ("degraded", "ulimit -l unlimited")


def test_few_open_files_are_degraded(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    found = find(make_machine(tmp_path), "open files limit")
    assert found.state == "degraded"
    assert "--nofile=" in found.remedy


def test_an_inner_user_namespace_is_missing_and_an_inner_pid_namespace_degraded(tmp_path):
    machine = make_machine(tmp_path)  # below tmp_path there is no /proc/self/ns at all
    assert find(machine, "user namespace").state == "missing"
    assert find(machine, "PID namespace").state == "degraded"


def test_tracefs_that_cannot_be_read_is_degraded(tmp_path, monkeypatch):
    unreadable = [("tracepoints", "tracepoint", "tracefs cannot be read: permission denied")]
    monkeypatch.setattr(_native, "list_events", lambda: unreadable)
    found = find(make_machine(tmp_path), "tracefs")
    assert found.state == "degraded"
    assert "permission denied" in found.detail
    assert found.remedy


def test_with_all_capabilities_a_program_that_does_not_load_is_not_mended_by_sudo(tmp_path, monkeypatch):
    monkeypatch.setattr(_native, "probe", lambda: [("sampling programs", "missing", "this kernel has no BTF")])
    found = find(make_machine(tmp_path), "sampling programs")
    assert found.detail == "this kernel has no BTF"
    assert "sudo" not in found.remedy


def test_an_event_that_may_not_be_opened_needs_no_other_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(_native, "probe_event", lambda *_: "permission denied")
    found = find(make_machine(tmp_path), "cache events (L1-dcache-load-misses)")
    assert (found.state, found.remedy) == ("degraded", "run with sudo")


def test_a_full_disk_is_degraded(tmp_path, monkeypatch):
    monkeypatch.setattr(Machine, "free_bytes", lambda *_: 5_000_000)
    found = find(make_machine(tmp_path), "this directory")
    assert found.state == "degraded"
    assert "5 MB left" in found.detail


def test_everything_that_is_not_ok_has_a_remedy(tmp_path):
    empty = Machine(tmp_path)
    assert [finding for finding in examine(empty) if finding.state != "ok" and not finding.remedy] == []


def test_each_finding_is_one_line_and_the_last_one_counts_them(capsys):
    assert main(["doctor"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    states = [line.split()[0] for line in lines]
    assert set(states) <= {"ok", "degraded", "missing"}
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("ok", "degraded", "missing"))
    assert last == counts


def test_a_remedy_stands_on_its_line(capsys):
    main(["doctor"])
    shown = capsys.readouterr().out
    assert "missing   task storage" in shown
    assert " → boot Linux 5.13 or newer\n" in shown


def test_json_has_the_same_findings(capsys):
    assert main(["doctor", "--json"]) == 0
    findings = [Finding(**finding) for finding in json.loads(capsys.readouterr().out)]
    assert Finding("task storage", "missing", "not in this kernel", "boot Linux 5.13 or newer") in findings


def test_it_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = settings()
    assert main(["doctor"]) == 0
    assert settings() == before
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def settings():
    names = ("perf_event_paranoid", "kptr_restrict", "perf_event_max_sample_rate", "perf_event_max_stack")
    return [Path("/proc/sys/kernel", name).read_text() for name in names], Path("/proc/self/mounts").read_text()


def test_every_check_says_something_of_this_machine():
    for check in doctor.CHECKS:
        assert list(check(Machine())), check.__name__
