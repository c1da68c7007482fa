"""A file is whole or not there."""

from __future__ import annotations

import os
import resource
import stat
import threading
from pathlib import Path

import pytest

from stackhound.errors import OutputError
from stackhound.profile.output import open_output


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(path, text=b"new", **options):
    with open_output(path, **options) as out:
        out.write(text)


def left_here():
    return sorted(path.name for path in Path().iterdir())


def test_a_file_appears_when_it_is_complete():
    with open_output("x") as out:
        out.write(b"new")
        assert not Path("x").exists()
    assert Path("x").read_bytes() == b"new"
    assert left_here() == ["x"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_what_was_there_stays_when_writing_breaks_off(failure):
    def break_off():
        with open_output("x") as out:
            out.write(b"half")
            raise failure

    Path("x").write_bytes(b"old")
    with pytest.raises(failure):
        break_off()
    assert Path("x").read_bytes() == b"old"
    assert left_here() == ["x"]


def test_the_old_file_is_kept_when_asked():
    for text in (b"first", b"second", b"third"):
        write("x", text, keep_old=True)
    assert (Path("x").read_bytes(), Path("x.old").read_bytes()) == (b"third", b"second")


def test_the_old_file_is_replaced_otherwise():
    write("x", b"first")
    write("x", b"second")
    assert left_here() == ["x"]


def test_a_new_file_has_the_mode_asked_for_less_the_umask_and_an_old_one_keeps_its_own():
    old_mask = os.umask(0o027)
    try:
        write("shared")
        write("private", mode=0o600)
    finally:
        os.umask(old_mask)
    Path("private").chmod(0o604)
    write("private", mode=0o600)
    assert [stat.S_IMODE(Path(name).stat().st_mode) for name in ("shared", "private")] == [0o640, 0o604]


def test_the_file_is_given_to_its_owner():
    write("x", owner=(os.getuid(), os.getgid()))
    assert Path("x").stat().st_uid == os.getuid()


def test_a_full_disk_is_one_line_with_a_remedy_and_leaves_nothing_behind():
    """A limit on the size of files stands for the disk: the write fails in the same place."""
    Path("x").write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"^cannot write x: file too large: choose a file system"):
            write("x", b"0" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Path("x").read_bytes() == b"old"
    assert left_here() == ["x"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/dev/full", "cannot write /dev/full: no space left on device: free some space, or write to another disk"),
        (".", "cannot write .: is a directory: name a file, not a directory"),
        ("no/such/x", "cannot write no/such/x: no such file or directory: create its directory first"),
        ("x" * 300, f"cannot write {'x' * 300}: file name too long: choose a shorter name"),
        ("/proc/x", "cannot write /proc/x: no such file or directory: create its directory first"),
    ],
)
def test_what_cannot_be_written_is_one_line_with_a_remedy(path, message):
    with pytest.raises(OutputError) as caught:
        write(path)
    assert str(caught.value) == message
    assert left_here() == []


def test_a_name_as_long_as_names_may_be_is_fine():
    write("x" * 255)
    assert left_here() == ["x" * 255]


def test_a_symbolic_link_is_replaced_and_what_it_points_at_stays():
    Path("secret").write_bytes(b"old")
    Path("x").symlink_to("secret")
    write("x")
    assert not Path("x").is_symlink()
    assert Path("secret").read_bytes() == b"old"


def test_a_pipe_is_written_to_and_stays_a_pipe():
    os.mkfifo("pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append(Path("pipe").read_bytes()))
    reader.start()
    write("pipe")
    reader.join()
    assert received == [b"new"]
    assert Path("pipe").is_fifo()


def test_the_path_of_an_open_file_is_written_to_directly():
    with Path("x").open("wb") as file:
        write(f"/proc/self/fd/{file.fileno()}")
    assert Path("x").read_bytes() == b"new"


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_after(monkeypatch):
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append((Path(f"/proc/self/fd/{file}").readlink().name, left_here()))
    )
    write("x")
    (first, before), (second, after) = synced
    assert first.endswith(".tmp")
    assert before == [first]
    assert (second, after) == (Path.cwd().name, ["x"])
