"""Page faults: exact numbers from the kernel, shares by sampling, and never more samples than were asked for."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from stackhound.profile.memory import memory_names, touched_memory
from stackhound.profile.schema import SampleFlag
from stackhound.profile.totals import exact_total, exact_totals
from support_kernels import needs
from support_profiles import DEVIATIONS, assert_accounted_for, margin, samples_of, where
from support_recordings import ended, record_some, recorder, run_stackhound, wait_for
from support_workloads import FOR_EVER, Program, build, cpu_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound import Profile
    from support_profiles import Sample

pytestmark = pytest.mark.ebpf

#: Faults of a program's own beginning and end, whose number nobody knows.
SOME = 300


class Faults(NamedTuple):
    """The kernel's own numbers of a process, its reaped children included."""

    minor: int
    major: int

    @classmethod
    def of(cls, pid: int) -> Faults:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        minor, children_minor, major, children_major = map(int, fields[7:11])
        return cls(minor + children_minor, major + children_major)

    def since(self, before: Faults) -> Faults:
        return Faults(self.minor - before.minor, self.major - before.major)


def record_faults(*arguments: str | Path, events: Sequence[str], **options: Any) -> tuple[Profile, Faults]:
    """The workload from its first work to its end, and the kernel's numbers: a zombie still has them."""
    with Program(build("faults.c"), *arguments) as program:
        before = Faults.of(program.pid)
        with recorder(pids=(program.pid,), events=events, **options) as recording:
            program.go()
            wait_for(lambda: ended(recording), "the end of the workload")
        return recording.profile, Faults.of(program.pid).since(before)


def state(pid: int) -> str:
    """``Z``: it has ended, and its parent has not looked."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def values(samples: Sequence[Sample], function: str) -> int:
    return sum(sample.value for sample in samples if function in sample.names)


def effective_number(samples: Sequence[Sample]) -> float:
    """How many equally weighted samples tell as much (Kish)."""
    weights = [sample.value for sample in samples]
    return sum(weights) ** 2 / sum(weight**2 for weight in weights)


def file_faults(profile: Profile, path: str) -> list[tuple[int, int]]:
    """Where in a file the faults were of which that is known, and how many nanoseconds each took."""
    paths = profile.texts("objects", "path")
    columns = (profile.numbers("faults", name).tolist() for name in ("object", "offset", "ns"))
    return [(offset, time_ns) for number, offset, time_ns in zip(*columns, strict=True) if paths[number] == path]


def may_look_at(function: str) -> bool:
    """Whether the kernel has prepared one of its functions for others to look at (ftrace, and so fentry)."""
    try:
        functions = Path("/sys/kernel/tracing/available_filter_functions").read_text()
    except OSError:
        return False
    return function in functions.split()


@pytest.mark.kernel_guest
def test_the_total_of_a_process_is_the_kernels_own() -> None:
    needs("task storage")
    profile, truth = record_faults("sites", "3000", "9000", events=("minor-faults",), period=100)
    event = profile.event()
    assert exact_total(profile, event) == truth.minor >= 12_000
    (of_process,) = exact_totals(profile, event).values()
    assert of_process == truth.minor
    assert_accounted_for(profile)


@pytest.mark.kernel_guest
def test_children_that_come_and_go_are_counted_to_the_last_fault() -> None:
    needs("task storage")
    profile, truth = record_faults("children", "40", "250", events=("minor-faults",))
    assert exact_total(profile, profile.event()) == truth.minor >= 10_000


def test_children_are_left_out_of_the_total_where_they_are_not_recorded() -> None:
    profile, truth = record_faults("children", "4", "2500", events=("minor-faults",), inherit=False)
    total = exact_total(profile, profile.event())
    assert total is not None
    assert total < truth.minor - 10_000


def test_copies_of_pages_that_a_parent_shares_are_the_childs_faults() -> None:
    profile, truth = record_faults("copies", "5000", events=("minor-faults",), period=10)
    assert exact_total(profile, profile.event()) == truth.minor >= 5000
    samples = where(samples_of(profile), lambda sample: "copy_pages" in sample.names)
    found = values(samples, "copy_pages")
    assert abs(found - 5000) <= DEVIATIONS * 10 * (len(samples) ** 0.5 + 1)


@pytest.mark.kernel_guest
def test_each_fault_is_a_sample_where_that_is_asked_for() -> None:
    profile, truth = record_faults("sites", "1000", "3000", events=("minor-faults",), period=1)
    samples = samples_of(profile)
    assert (values(samples, "touch_few"), values(samples, "touch_many")) == (1000, 3000)
    assert sum(sample.value for sample in samples) <= truth.minor  # which has what the kernel took for the process


def test_two_functions_have_their_shares_of_the_faults() -> None:
    profile, _ = record_faults("sites", "50000", "150000", events=("minor-faults",), frequency_hz=1999)
    samples = where(samples_of(profile), lambda sample: bool({"touch_few", "touch_many"} & set(sample.names)))
    share = values(samples, "touch_few") / sum(sample.value for sample in samples)
    assert abs(share - 0.25) <= margin(0.25, ceil(effective_number(samples)))


def test_values_add_up_to_the_total_within_sampling_error() -> None:
    profile, truth = record_faults("storm", "1000", "300", "700", events=("minor-faults",), frequency_hz=999)
    samples = samples_of(profile)
    total = sum(sample.value for sample in samples)
    by_chance = DEVIATIONS / effective_number(samples) ** 0.5
    assert total == pytest.approx(truth.minor, rel=by_chance)
    assert total == pytest.approx(exact_total(profile, profile.event()), rel=by_chance)


def test_a_storm_makes_no_more_samples_than_were_asked_for() -> None:
    profile, truth = record_faults("storm", "1000", "300", "700", events=("minor-faults",))
    asked = 99 * profile.duration_ns / 1e9 * cpu_count()
    assert sum(sample.count for sample in samples_of(profile)) <= 2 * asked + 50 * cpu_count()
    assert truth.minor > 50 * asked
    assert_accounted_for(profile)


def test_samples_that_are_combined_in_the_kernel_stand_for_as_many() -> None:
    options = {"events": ("minor-faults",), "frequency_hz": 999, "aggregate": True}
    profile, truth = record_faults("storm", "1000", "300", "700", **options)
    total = sum(sample.value for sample in samples_of(profile))
    assert total == pytest.approx(truth.minor, rel=0.2)
    assert exact_total(profile, profile.event()) == truth.minor
    assert_accounted_for(profile)


@pytest.mark.kernel_guest
def test_pages_that_are_on_the_disk_only_are_major_faults(tmp_path: Path) -> None:
    needs("bpf_get_attach_cookie")  # two events
    path = Path.cwd() / "target" / f"cold-{tmp_path.name}"  # a temporary directory may be in memory
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(4096) * 500)
    with Program(build("faults.c"), "cold", path) as program:
        path.unlink()
        before = Faults.of(program.pid)
        with recorder(pids=(program.pid,), events=("major-faults", "minor-faults"), period=1) as recording:
            program.go()
            read_ns = program.wait_until_ready()["read_ns"]
        profile, truth = recording.profile, Faults.of(program.pid).since(before)
    if truth.major < 250:
        pytest.skip("this file system keeps what it was asked to forget")
    major, minor = profile.events
    assert exact_total(profile, major) == truth.major
    assert exact_total(profile, minor) == truth.minor
    samples = where(samples_of(profile), lambda sample: sample.event == "major-faults")
    assert values(samples, "read_cold") == pytest.approx(truth.major, abs=3)
    faults = file_faults(profile, str(path))
    assert len(faults) >= 0.9 * truth.major
    assert {offset // 4096 for offset, _ in faults} <= set(range(500))
    check_times(profile, [time_ns for _, time_ns in faults], read_ns)


def check_times(profile: Profile, times_ns: Sequence[int], read_ns: int) -> None:
    """Faults are timed where the kernel lets programs look at its functions; elsewhere the profile says so.

    A program that does nothing else has them for most of its time, and never for more. Under emulation, taking samples
    takes some of it, too.
    """
    (trigger,) = {event.trigger for event in profile.events if event.name == "major-faults"}
    assert ("fentry" in trigger) == may_look_at("handle_mm_fault")
    if "fentry" in trigger:
        assert sum(time_ns > 0 for time_ns in times_ns) >= 0.9 * len(times_ns)
        assert 0.1 * read_ns < sum(times_ns) <= read_ns
    else:
        assert not any(times_ns)
        assert [note for note in profile.metadata["notes"] if "page faults are not timed" in note]


def test_a_fault_shows_the_function_that_touched_the_page() -> None:
    profile, _ = record_faults("sites", "1000", "1000", events=("minor-faults",), period=1)
    samples = where(samples_of(profile), lambda sample: "touch_few" in sample.names)
    assert {sample.leaf for sample in samples} == {"touch_few"}
    assert not any(sample.flags & SampleFlag.IN_KERNEL for sample in samples)


def test_a_fault_tells_what_kind_of_memory_was_touched() -> None:
    with Program(build("faults.c"), "storm", FOR_EVER, "300", "700") as program:
        profile = record_some(200, program, events=("minor-faults",), frequency_hz=999)
    event = profile.event()
    names, touched = memory_names(profile), touched_memory(profile, event)
    of_pages = [names[one] for one in touched.tolist()].count("[anonymous memory]")
    assert of_pages >= 0.9 * len(touched)


def test_time_and_faults_are_recorded_at_once() -> None:
    profile, truth = record_faults("storm", "500", "300", "700", events=("cpu", "minor-faults"))
    assert [event.name for event in profile.events] == ["cpu", "minor-faults"]
    cpu, faults = profile.events
    assert exact_total(profile, cpu) is None
    assert exact_total(profile, faults) == truth.minor
    time_ns = int(profile.samples_of(cpu).value.sum())
    assert time_ns == pytest.approx(500e6, rel=0.3)


def test_the_machines_total_is_what_the_event_has_counted_on_all_cpus() -> None:
    with Program(build("faults.c"), "sites", "30000", "90000") as program:
        before = Faults.of(program.pid)
        with recorder(events=("minor-faults",)) as recording:
            program.go()
            wait_for(lambda: state(program.pid) == "Z", "the end of the workload")
        truth = Faults.of(program.pid).since(before)
    profile = recording.profile
    total = exact_total(profile, profile.event())
    assert total is not None
    assert total >= truth.minor - SOME
    assert exact_totals(profile, profile.event())[program.pid] == truth.minor
    samples = samples_of(profile)
    by_chance = DEVIATIONS / effective_number(samples) ** 0.5
    assert sum(sample.value for sample in samples) == pytest.approx(total, rel=by_chance)


def test_a_name_or_a_part_of_the_faults_has_no_exact_total() -> None:
    for options in ({"events": ("minor-faults",), "comm": "faults"}, {"events": ("minor-faults:u",)}):
        profile, _ = record_faults("sites", "1000", "1000", **options)
        assert exact_total(profile, profile.event()) is None


def test_a_command_is_counted_from_its_first_instruction(tmp_path: Path) -> None:
    path = tmp_path / "a.hound"
    workload = (build("faults.c"), "alone", "20000")
    done = run_stackhound("record", "-e", "minor-faults", "-o", path, "--as-root", "--", *workload)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.decode().splitlines() if line.startswith("minor-faults at"))
    counted = int(line.split(" of ")[1].split()[0].replace(",", ""))
    since_fork = int(done.stdout.split()[1])
    assert 20_000 < counted <= since_fork + SOME
    assert b"touch_many" in run_stackhound("export", path, "-o", "-", "--format", "folded").stdout
