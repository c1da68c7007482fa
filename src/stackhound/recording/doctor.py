"""What this kernel, these capabilities and these limits allow, and the command that mends the rest.

Nothing is changed: files are read, and the core loads empty BPF programs and opens disabled events.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from stackhound import _native
from stackhound.errors import StackhoundError
from stackhound.recording.events import KINDS, NAMED
from stackhound.recording.machine import INITIAL_PID_NAMESPACE, INITIAL_USER_NAMESPACE, Machine
from stackhound.recording.options import DEFAULT_HZ
from stackhound.recording.tracepoints import tracepoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

State = Literal["ok", "degraded", "missing"]

OLDEST_KERNEL: Final = (5, 10)
MAX_STACK_FRAMES: Final = 127  # bpf/abi.h
#: A held file for each mapped object of each process: some thousand on a desktop.
ENOUGH_FILES: Final = 4096
#: A busy minute at 999 Hz takes about 10 MB; leave room for the rest of the day.
ENOUGH_BYTES: Final = 100 << 20
#: What the core says of an event that exists and may not be opened.
PERMISSION_DENIED: Final = "permission denied"
BTF: Final = "/sys/kernel/btf/vmlinux"
PMU_REMEDY: Final = "in a virtual machine, let its host give it a virtual PMU"
DEBUG_DIRECTORY: Final = "/usr/lib/debug"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report. ``remedy`` is a command, or a sentence where no command mends it."""

    subject: str
    state: State
    detail: str
    remedy: str = ""


def examine(machine: Machine) -> list[Finding]:
    """Look at everything that a recording depends on, the most important first."""
    return [finding for check in CHECKS for finding in check(machine)]


def check_kernel(machine: Machine) -> Iterator[Finding]:
    oldest = ".".join(map(str, OLDEST_KERNEL))
    if machine.version >= OLDEST_KERNEL:
        yield Finding("kernel", "ok", machine.release)
    else:
        yield Finding("kernel", "missing", f"{machine.release} is too old", f"boot Linux {oldest} or newer")


def check_btf(machine: Machine) -> Iterator[Finding]:
    if machine.path(BTF).exists():
        yield Finding("BTF", "ok", BTF)
    else:
        yield Finding("BTF", "missing", f"no {BTF}", "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y")


#: What goes without each capability, and how bad that is.
CAPABILITY_LOSSES: Final[dict[str, tuple[State, str]]] = {
    "CAP_BPF": ("missing", "no BPF program can be loaded"),
    "CAP_PERFMON": ("missing", "no event of the whole machine can be opened"),
    "CAP_SYS_PTRACE": ("degraded", "processes of other users have no names"),
    "CAP_DAC_READ_SEARCH": ("degraded", "programs that only others may read have no names"),
    "CAP_CHECKPOINT_RESTORE": ("degraded", "deleted and replaced programs have no names"),
    "CAP_SYSLOG": ("degraded", "kernel functions may have no names"),
    "CAP_SYS_ADMIN": ("degraded", "no tracepoint events"),
}


def check_capabilities(machine: Machine) -> Iterator[Finding]:
    for name, (state, loss) in CAPABILITY_LOSSES.items():
        if name in machine.capabilities:
            yield Finding(name, "ok", "in effect")
        else:
            yield Finding(name, state, loss, "run with sudo, or give a container --cap-add")


def check_namespaces(machine: Machine) -> Iterator[Finding]:
    if machine.in_initial_namespace("user", INITIAL_USER_NAMESPACE):
        yield Finding("user namespace", "ok", "the initial one")
    else:
        yield Finding(
            "user namespace",
            "missing",
            "capabilities of an inner user namespace do not count for BPF",
            "run outside of it, or in a container that is not rootless",
        )
    if machine.in_initial_namespace("pid", INITIAL_PID_NAMESPACE):
        yield Finding("PID namespace", "ok", "the initial one")
    else:
        yield Finding(
            "PID namespace",
            "degraded",
            "only processes of this namespace are seen",
            "run on the host, or in a container with --pid=host",
        )


def check_paranoid(machine: Machine) -> Iterator[Finding]:
    level = machine.sysctl("perf_event_paranoid")
    if level is None:
        yield Finding(
            "perf_event_paranoid", "missing", "this kernel has no perf events", "boot one with CONFIG_PERF_EVENTS=y"
        )
    elif level <= -1 or "CAP_PERFMON" in machine.capabilities:
        yield Finding(
            "perf_event_paranoid", "ok", f"{level}; CAP_PERFMON stands above it" if level > -1 else str(level)
        )
    else:
        remedy = "run with sudo, or 'sudo sysctl kernel.perf_event_paranoid=-1'"
        yield Finding("perf_event_paranoid", "missing", f"{level} forbids events of the whole machine", remedy)


def check_kernel_symbols(machine: Machine) -> Iterator[Finding]:
    restrict = machine.sysctl("kptr_restrict")
    if machine.kernel_addresses_shown():
        yield Finding("kptr_restrict", "ok", f"{restrict}; kernel symbols can be read")
    else:
        # 0 and 1 hide nothing from CAP_SYSLOG, 2 and more everything from everybody.
        remedy = "run with sudo" if restrict in (0, 1) else "sudo sysctl kernel.kptr_restrict=1"
        detail = f"{restrict}; kernel symbols are hidden from this user"
        yield Finding("kptr_restrict", "degraded", detail, remedy)


def check_sample_rate(machine: Machine) -> Iterator[Finding]:
    rate_hz = machine.sysctl("perf_event_max_sample_rate")
    if rate_hz is None or rate_hz >= DEFAULT_HZ:
        yield Finding("perf_event_max_sample_rate", "ok", f"up to -F {rate_hz}")
    else:
        remedy = "sudo sysctl kernel.perf_event_max_sample_rate=100000"
        yield Finding("perf_event_max_sample_rate", "degraded", f"only up to -F {rate_hz}", remedy)
    percent = machine.sysctl("perf_cpu_time_max_percent")
    lowers = percent is not None and 0 < percent < 100
    detail = f"{percent}; the kernel lowers the rate when samples take more" if lowers else f"{percent}; never lowered"
    yield Finding("perf_cpu_time_max_percent", "ok", detail)


def check_stack_depth(machine: Machine) -> Iterator[Finding]:
    frames = machine.sysctl("perf_event_max_stack")
    if frames is None or frames >= MAX_STACK_FRAMES:
        yield Finding("perf_event_max_stack", "ok", f"stacks of {MAX_STACK_FRAMES} frames")
    else:
        remedy = f"sudo sysctl kernel.perf_event_max_stack={MAX_STACK_FRAMES}"
        yield Finding("perf_event_max_stack", "degraded", f"stacks are cut after {frames} frames", remedy)


def check_lockdown(machine: Machine) -> Iterator[Finding]:
    text = machine.read("/sys/kernel/security/lockdown")
    if text is None:
        yield Finding("lockdown", "ok", "this kernel has none, or does not say so")
    elif "[confidentiality]" in text:
        remedy = "boot with lockdown=integrity, or without Secure Boot"
        yield Finding("lockdown", "missing", "confidentiality forbids BPF to read memory", remedy)
    else:
        yield Finding("lockdown", "ok", text)


def check_unprivileged_bpf(machine: Machine) -> Iterator[Finding]:
    value = machine.sysctl("unprivileged_bpf_disabled")
    detail = "BPF is open to all users" if value == 0 else "BPF needs CAP_BPF"
    yield Finding("unprivileged_bpf_disabled", "ok", f"{value}; {detail}")


def check_tracefs(machine: Machine) -> Iterator[Finding]:
    where = machine.mounted("tracefs")
    try:
        found = f"{len(tracepoints()):,} tracepoints"
    except StackhoundError as error:
        yield Finding("tracefs", "degraded", f"no tracepoint events: {error.message}", error.remedy)
        return
    yield Finding("tracefs", "ok", f"{where}, {found}" if where else f"not mounted, read without; {found}")


def check_cgroups(machine: Machine) -> Iterator[Finding]:
    where = machine.mounted("cgroup2")
    if where:
        yield Finding("cgroup v2", "ok", where)
    else:
        yield Finding("cgroup v2", "degraded", "no --cgroup", "sudo mount -t cgroup2 none /sys/fs/cgroup")


def check_limits(machine: Machine) -> Iterator[Finding]:
    locked = machine.locked_bytes_limit()
    if machine.version >= (5, 11) or locked == -1:
        yield Finding("memlock limit", "ok", "BPF memory does not count here" if locked != -1 else "none")
    else:
        yield Finding("memlock limit", "degraded", f"{locked:,} bytes for BPF before Linux 5.11", "ulimit -l unlimited")
    soft, hard = machine.open_files_limit()
    if hard == -1 or hard >= ENOUGH_FILES:
        yield Finding("open files limit", "ok", f"{soft:,}, at most {'any' if hard == -1 else f'{hard:,}'}")
    else:
        detail = f"{hard:,} held files: processes beyond have no names once they exit"
        yield Finding("open files limit", "degraded", detail, f"sudo prlimit --pid $$ --nofile={ENOUGH_FILES * 16}")


def check_events(_: Machine) -> Iterator[Finding]:
    """One event of each kind but hardware, which the core probes; ``stackhound list`` looks at all."""
    for name, state, remedy in (
        ("cpu-clock", "missing", "run with sudo"),
        ("page-faults", "missing", "run with sudo"),
        ("L1-dcache-load-misses", "degraded", PMU_REMEDY),
    ):
        source = NAMED[name]
        reason = _native.probe_event(source.type, source.config)
        subject = f"{KINDS[source.type]} events ({name})"
        if reason == PERMISSION_DENIED:
            remedy = "run with sudo"
        yield Finding(subject, _state(state), reason, remedy) if reason else Finding(subject, "ok", "can be opened")


#: Those of the core's probes that open events and load nothing.
EVENT_PROBES: Final = frozenset({"process records", "hardware counters"})
#: How to come by what the core probes, by its names. The versions are those of ARCHITECTURE.md.
PROBE_REMEDIES: Final = {
    "sampling programs": "mend what is missing above; 'stackhound record -vvv -d 1' shows what the kernel says",
    "process records": "mend what is missing above",
    "hardware counters": PMU_REMEDY,
    "bpf_get_attach_cookie": "boot Linux 5.15 or newer",
    "bpf_task_pt_regs": "boot Linux 5.15 or newer",
    "bpf_loop": "boot Linux 5.17 or newer",
    "bpf_snprintf": "boot Linux 5.14 or newer",
    "task storage": "boot Linux 5.13 or newer",
    "kernel stacks": "boot Linux 5.17 or newer, built with CONFIG_UNWINDER_ORC=y and CONFIG_KALLSYMS_ALL=y",
    "block requests": "boot Linux 6.5 or newer",
    "functions of programs": "boot Linux 5.13 or newer, built with CONFIG_UPROBE_EVENTS=y",
    "task iterator": "boot Linux 6.1 or newer",
}


#: The kernel refuses these alike where they are missing and where they are forbidden; libbpf takes either for "there".
HELPER_PROBES: Final = frozenset({"bpf_get_attach_cookie", "bpf_task_pt_regs", "bpf_loop", "bpf_snprintf"})


def check_programs(machine: Machine) -> Iterator[Finding]:
    for name, state, detail in _native.probe():
        needed = "CAP_PERFMON" if name in EVENT_PROBES else "CAP_BPF"
        is_proved = state == "ok" and name not in HELPER_PROBES
        if needed not in machine.capabilities and not is_proved:
            yield Finding(name, _state(state), f"cannot be tried without {needed}", "run with sudo")
        else:
            yield Finding(name, _state(state), detail, "" if state == "ok" else PROBE_REMEDIES.get(name, ""))


def check_wake_tracepoint(machine: Machine) -> Iterator[Finding]:
    """A bare tracepoint: only BTF names it."""
    try:
        found = b"\0btf_trace_sched_exit_tp\0" in machine.path(BTF).read_bytes()
    except OSError:
        return  # `check_btf` says it
    if found:
        yield Finding("sched_exit_tp", "ok", "off-cpu sees threads where they come back")
    else:
        detail = "not in this kernel: off-cpu sees threads where they leave (sched_switch)"
        yield Finding("sched_exit_tp", "degraded", detail, "boot Linux 6.15 or newer")


def check_debug_files(machine: Machine) -> Iterator[Finding]:
    root = machine.path(DEBUG_DIRECTORY)
    if any((root / ".build-id").glob("*/*.debug")):
        yield Finding("debug files", "ok", DEBUG_DIRECTORY)
    else:
        detail = f"none below {DEBUG_DIRECTORY}: stripped programs show no lines"
        remedy = "sudo apt install libc6-dbg, or your distribution's like; or 'stackhound record --debuginfod'"
        yield Finding("debug files", "degraded", detail, remedy)


def check_directories(machine: Machine) -> Iterator[Finding]:
    for subject, path in (("this directory", Path.cwd()), ("temporary directory", Path(tempfile.gettempdir()))):
        free = machine.free_bytes(path)
        if not os.access(path, os.W_OK | os.X_OK):
            yield Finding(subject, "degraded", f"{path} cannot be written", "write elsewhere with -o")
        elif free < ENOUGH_BYTES:
            yield Finding(subject, "degraded", f"{path} has {free / 1e6:,.0f} MB left", "free some, or write elsewhere")
        else:
            yield Finding(subject, "ok", f"{path}, {free / 1e9:,.1f} GB free")


def _state(text: str) -> State:
    states: dict[str, State] = {"ok": "ok", "degraded": "degraded", "missing": "missing"}
    return states[text]


CHECKS: Final[tuple[Callable[[Machine], Iterator[Finding]], ...]] = (
    check_kernel,
    check_btf,
    check_capabilities,
    check_namespaces,
    check_paranoid,
    check_lockdown,
    check_unprivileged_bpf,
    check_programs,
    check_wake_tracepoint,
    check_events,
    check_tracefs,
    check_cgroups,
    check_sample_rate,
    check_stack_depth,
    check_kernel_symbols,
    check_limits,
    check_debug_files,
    check_directories,
)
