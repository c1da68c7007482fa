"""COMMAND: held before its exec, run as the user who called sudo, its status as shells say it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stackhound.errors import CommandNotRun
from stackhound.recording.invoker import Invoker, find_invoker
from stackhound.recording.launch import Command

NOBODY = 65534


def run(*arguments, **options):
    with Command(arguments, **options) as command:
        command.release()
        return command.wait()


def test_a_command_does_not_run_before_it_is_released(tmp_path):
    mark = tmp_path / "mark"
    with Command(["touch", str(mark)]) as command:
        time.sleep(0.1)
        assert not mark.exists()
        command.release()
        assert command.wait() == 0
    assert mark.exists()


def test_a_command_that_is_never_released_never_runs(tmp_path):
    mark = tmp_path / "mark"
    with Command(["touch", str(mark)]) as command:
        pid = command.pid
    os.waitpid(pid, 0) if command.exit_status() is None else None
    assert not mark.exists()


def test_a_command_whose_recorder_is_killed_before_the_release_never_runs(tmp_path):
    mark = tmp_path / "mark"
    script = f"""
import os, signal
from stackhound.recording.launch import Command
command = Command(["touch", {str(mark)!r}])
print(command.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid = int(shown.stdout)
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(pid)
    assert not mark.exists()


def is_alive(pid):
    """Whether the process still runs: nobody may have reaped it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_pid_stays_the_same_through_the_exec(capfd):
    with Command(["sh", "-c", "echo $$"]) as command:
        command.release()
        command.wait()
    assert int(capfd.readouterr().out) == command.pid


@pytest.mark.parametrize("status", [0, 1, 3, 125, 255])
def test_the_status_is_the_commands_own(status):
    assert run("sh", "-c", f"exit {status}") == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_command_ended_by_a_signal_has_128_more(number):
    assert run("sh", "-c", f"ulimit -c 0; kill -{number.value} $$") == 128 + number


def test_a_program_that_is_not_there_is_127():
    with pytest.raises(CommandNotRun, match="cannot run 'no-such-program'") as refused:
        run("no-such-program", "--option")
    assert refused.value.exit_code == 127
    assert refused.value.remedy


def test_a_file_that_is_not_executable_is_126(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    with pytest.raises(CommandNotRun, match="Permission denied") as refused:
        run(str(script))
    assert refused.value.exit_code == 126
    assert "chmod" in refused.value.remedy


def test_a_script_without_its_first_line_is_126_and_names_its_interpreter(tmp_path):
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    with pytest.raises(CommandNotRun, match="Exec format error") as refused:
        run(str(script))
    assert refused.value.exit_code == 126
    assert "sh SCRIPT" in refused.value.remedy


def test_a_command_has_the_signal_actions_of_a_shell(capfd):
    assert run("grep", "SigIgn", "/proc/self/status") == 0
    ignored = int(capfd.readouterr().out.split()[1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1
    assert not ignored >> (signal.SIGXFSZ - 1) & 1


def test_a_held_command_that_is_killed_has_that_status():
    with Command(["true"]) as command:
        os.kill(command.pid, signal.SIGTERM)
        assert command.wait() == 128 + signal.SIGTERM
        command.release()


def test_its_output_goes_to_stderr_where_stdout_is_for_the_profile(capfd):
    assert run("echo", "hello", stdout_to_stderr=True) == 0
    assert capfd.readouterr() == ("", "hello\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_under_sudo_it_runs_as_the_invoking_user_with_their_home(monkeypatch, capfd):
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    monkeypatch.setenv("SUDO_USER", "nobody")
    user = find_invoker()
    assert user is not None
    script = 'id -u; id -g; id -G; echo "$USER $LOGNAME $HOME [$SUDO_USER]"; grep CapEff /proc/self/status'
    assert run("sh", "-c", script, user=user) == 0
    uid, gid, groups, names, capabilities = capfd.readouterr().out.splitlines()
    assert (int(uid), int(gid), groups) == (NOBODY, NOBODY, str(NOBODY))
    assert names == f"nobody nobody {user.home} []"
    assert int(capabilities.split()[1], 16) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_user_whom_the_database_does_not_know_is_known_by_number(monkeypatch, capfd):
    monkeypatch.setenv("SUDO_UID", "54321")
    monkeypatch.setenv("SUDO_GID", "54322")
    user = find_invoker()
    assert user == Invoker(54321, 54322, "", "")
    assert run("sh", "-c", "id -u; id -G", user=user) == 0
    assert capfd.readouterr().out.split() == ["54321", "54322"]


@pytest.mark.parametrize("variables", [{}, {"SUDO_UID": "0", "SUDO_GID": "0"}, {"SUDO_UID": "x", "SUDO_GID": "1"}])
def test_without_sudo_there_is_no_invoking_user(variables, monkeypatch):
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_invoker() is None
