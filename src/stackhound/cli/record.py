"""``stackhound record``: from options to a file, with what it cost and lost."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.output import write_recording
from stackhound.cli.request import Request, record_options
from stackhound.cli.signals import Signals, held_signals
from stackhound.cli.verbosity import verbose_option, verbosity_of
from stackhound.cli.watch import stderr_columns, wait_for_command, wait_for_end
from stackhound.errors import CommandNotRun, StackhoundError
from stackhound.recording.invoker import Invoker, find_invoker
from stackhound.recording.recorder import Recorder, import_meanwhile

if TYPE_CHECKING:
    from threading import Thread

    from stackhound.cli.output import Target
    from stackhound.profile import Profile
    from stackhound.recording.launch import Command

#: The status when COMMAND could run and the recording could not, as of `timeout` and `env`.
RECORDING_FAILED: Final = 125

EXAMPLES: Final = (
    ("ten seconds of the whole machine, into stackhound.hound", "sudo stackhound record -d 10"),
    (
        "two processes and their children until Ctrl-C, as a flame graph",
        "sudo stackhound record -p 1234,5678 -o flame.html",
    ),
    ("a command from its first instruction, run as you", "sudo stackhound record -- make -j8"),
    ("the whole machine while a command runs", "sudo stackhound record -a -- sleep 10"),
    ("page faults, each thousandth", "sudo stackhound record -e page-faults -c 1000 -p 1234"),
    ("why a program takes longer than it computes", "sudo stackhound record -e cpu,off-cpu -- ./program"),
    ("who allocates memory, and who does not give it back", "sudo stackhound record -e heap -- ./program"),
    ("999 samples a second for an hour, counted in the kernel", "sudo stackhound record -F 999 --aggregate -d 1h"),
    ("folded stacks into a pipe", "sudo stackhound record -d 5 --format folded -o - | flamegraph.pl > flame.svg"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES, context_settings={"allow_interspersed_args": False})
@record_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
@verbose_option
def command(context: click.Context, /, **_: object) -> int:
    """Record this machine, some processes, or COMMAND with its children.

    Without -d it goes on until Ctrl-C, or until COMMAND or every process of -p has ended. The profile is
    stackhound.hound if -o says nothing else; one that is there is kept as stackhound.hound.old.
    """
    return run_record(Request.parse(context.params, verbosity_of(context).level))


def run_record(request: Request) -> int:
    """Record, write and tell.

    Returns:
        0, or COMMAND's status.

    Raises:
        StackhoundError: it failed; ``exit_code`` is 125 where there is a COMMAND.
    """
    request.options.check_machine()
    request.target.check()
    invoker = find_invoker()
    if not request.command:
        with held_signals() as signals:
            _record(request, signals, None, invoker)
        return 0
    from stackhound.recording.launch import Command

    user = None if request.as_root else invoker
    request, environment = _reach_heap(request, user)
    to_stderr = request.target.path is None
    with Command(request.command, user, stdout_to_stderr=to_stderr, environment=environment) as command:
        return _record_command(request, command, invoker)


def _reach_heap(request: Request, user: Invoker | None) -> tuple[Request, dict[str, str]]:
    """Let COMMAND follow its allocations, if they are to be recorded: the request, and variables for COMMAND."""
    if not request.options.records_heap:
        return request, {}
    from stackhound.recording import heap_library

    if request.options.pids:
        return request, {}
    if request.heap_uprobes:
        return _expect_files(request, user), {}
    if reason := heap_library.why_out_of_reach(request.command[0]):
        note = f"the library that chooses allocations cannot be loaded: {reason}"
        request = request._replace(options=replace(request.options, heap_note=note))
        return _expect_files(request, user), {}
    library = heap_library.install()
    environment = heap_library.environment(library, request.options.heap_interval_bytes)
    return request._replace(options=replace(request.options, heap_library=library)), environment


def _expect_files(request: Request, user: Invoker | None) -> Request:
    """Let COMMAND be watched from its first instruction on."""
    from stackhound.recording.executable import find_executable

    executable = find_executable(request.command[0])
    if executable is None:
        return request
    files = executable.files(user.environment() if user else os.environ, user)
    return request._replace(options=replace(request.options, heap_files=files))


def _record_command(request: Request, command: Command, invoker: Invoker | None) -> int:
    """Record COMMAND, and wait for its end whatever becomes of the recording."""
    with held_signals() as signals:
        try:
            _record(_aim_at(request, command), signals, command, invoker)
        except CommandNotRun:
            raise
        except StackhoundError as error:
            error.exit_code = RECORDING_FAILED
            if command.released:
                wait_for_command(command, signals)
            raise
        return wait_for_command(command, signals)


def _aim_at(request: Request, command: Command) -> Request:
    """As perf has it: with -a or -p, COMMAND only says how long."""
    if request.whole_system or request.options.pids:
        return request
    options = replace(request.options, pids=(command.pid,), held_pids=(command.pid,))
    return request._replace(options=options)


def _record(request: Request, signals: Signals, command: Command | None, invoker: Invoker | None) -> None:
    with closing(Recorder(request.options)) as recorder:
        recorder.start()
        if command is not None:
            command.release()
        imports = _import_what_follows(request.target)
        wait_for_end(recorder, signals, request.duration_s, command)
        if request.options.debuginfod:
            click.echo("fetching debug files; Ctrl-C goes on without the rest", err=True)
        profile = recorder.stop()
        imports.join()
    write_recording(profile, request.target, request.event, invoker)
    _tell(profile, request)


def _import_what_follows(target: Target) -> Thread:
    """Before the first sample it would be too long (130 ms), after the last one somebody waits for the result."""
    modules = (f"stackhound.formats.{target.format.name}", "stackhound.cli.outcome", "stackhound.profile.top")
    return import_meanwhile("stackhound.profile.profile", "stackhound.profile.output", "stackhound.transform", *modules)


def _tell(profile: Profile, request: Request) -> None:
    """What people want to know first, on stderr: stdout is COMMAND's, or the profile's."""
    from stackhound.cli.outcome import describe_outcome

    for line in describe_outcome(profile, request.target, request.event, stderr_columns()):
        click.echo(line, err=True)
