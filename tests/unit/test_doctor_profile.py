"""What the doctor says of a profile: through which files its stacks went, and why those broke that did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fixtures.profiles import Frame, build_profile
from stackhound.cli.main import main
from stackhound.errors import EmptyProfile, UsageError
from stackhound.profile import Profile
from stackhound.profile.columns import with_columns
from stackhound.profile.schema import USER_ENDS, SampleFlag
from stackhound.recording.profile_doctor import WalkFinding, examine_profile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def flag(end: str) -> int:
    return USER_ENDS.index(end) << SampleFlag.USER_END_SHIFT


def profile_of(*samples: tuple[Sequence[str], int, int]) -> Profile:
    """A profile of (stack, flags, observations)."""
    rows = [("app", 7, 7, 0, time, list(frames), 10, count) for time, (frames, _, count) in enumerate(samples)]
    profile = build_profile(rows)
    flags = np.array([flags for _, flags, _ in samples], np.uint32)
    return Profile({**profile.tables, "samples": with_columns(profile.table("samples"), flags=flags)}, {})


@pytest.fixture
def mixed() -> Profile:
    return profile_of(
        (["_start", "main"], flag("complete"), 90),
        (["?odd.so+0x10", "main", "k:vfs_read"], flag("no rule"), 10),
        (["k:kthread"], SampleFlag.KERNEL_THREAD, 5),
    )


def by_subject(profile: Profile) -> dict[str, WalkFinding]:
    return {found.subject: found for found in examine_profile(profile)}


def test_each_file_tells_how_many_stacks_went_through_it(mixed: Profile) -> None:
    found = by_subject(mixed)
    assert {path: (one.samples, one.complete) for path, one in found.items()} == {
        "/usr/bin/app": (100, 90),
        "/usr/lib/odd.so": (10, 0),
        "[kernel]": (15, 5),
    }
    assert found["/usr/bin/app"].broken == {"no rule": 10}


def test_the_file_where_stacks_broke_is_told_from_those_they_went_through(mixed: Profile) -> None:
    found = by_subject(mixed)
    assert found["/usr/lib/odd.so"].broken_here == {"no rule": 10}
    assert "100.0% broke here: no rule 10" in found["/usr/lib/odd.so"].detail
    assert "-fasynchronous-unwind-tables" in found["/usr/lib/odd.so"].remedy
    assert (found["/usr/bin/app"].state, found["/usr/bin/app"].broken_here) == ("ok", {})


def test_frames_without_names_say_why_and_what_mends_it(mixed: Profile) -> None:
    odd = by_subject(mixed)["/usr/lib/odd.so"]
    assert odd.misses == {"no symbol table": 10}
    assert "100.0% of its frames have no name: no symbol table 10" in odd.detail
    assert "debug symbols" in odd.remedy


def test_made_code_without_names_says_how_the_runtime_of_its_process_writes_them() -> None:
    def unnamed(comm: str, pid: int) -> tuple[object, ...]:
        made = Frame(None, kind="jit", path=f"[code of {comm} {pid}@99]", reason="code without a file, and no perf map")
        return (comm, pid, pid, 0, pid, ["main", made], 10, 1)

    found = by_subject(build_profile([unnamed("node", 7), unnamed("ruby", 8), unnamed("other] 7@9", 9)]))
    assert "--perf-basic-prof" in found["[code of node 7@99]"].remedy
    assert "--yjit-perf" in found["[code of ruby 8@99]"].remedy
    assert "perf map" in found["[code of other] 7@9 9@99]"].remedy


def test_the_most_used_file_comes_first(mixed: Profile) -> None:
    assert [found.subject for found in examine_profile(mixed)] == ["/usr/bin/app", "[kernel]", "/usr/lib/odd.so"]


def test_a_recursive_stack_counts_once() -> None:
    (found,) = examine_profile(profile_of((["_start", "f", "f", "f"], flag("complete"), 3)))
    assert (found.samples, found.frames) == (3, 12)


def test_what_is_rare_needs_no_remedy() -> None:
    whole, broken = (["_start", "main"], flag("complete"), 995), (["main"], flag("stack unreadable"), 5)
    (found,) = examine_profile(profile_of(whole, broken))
    assert (found.state, found.remedy) == ("ok", "")
    assert found.broken_here == {"stack unreadable": 5}


def test_a_profile_without_samples_is_an_error() -> None:
    with pytest.raises(EmptyProfile):
        examine_profile(profile_of())


def test_an_inverted_profile_is_refused(mixed: Profile) -> None:
    with pytest.raises(UsageError, match="inverted"):
        examine_profile(mixed.invert())


def test_the_command_line_reads_a_profile(mixed: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed.save(tmp_path / "mixed.hound")
    assert main(["doctor", str(tmp_path / "mixed.hound")]) == 0
    output = capsys.readouterr().out
    assert "/usr/lib/odd.so" in output
    assert "2 ok, 1 degraded, 0 missing" in output
    assert main(["doctor", str(tmp_path / "mixed.hound"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[2]["broken_here"] == {"no rule": 10}
