"""``stackhound record``: from options to a file, with what it cost and lost."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.output import Target, choose_target, write_recording
from stackhound.cli.parameters import (
    Decorated,
    event_option,
    flatten,
    frequency_option,
    parse_duration,
    parse_size,
    pids_option,
    software_option,
    split_names,
)
from stackhound.cli.signals import Signals, held_signals
from stackhound.cli.verbosity import verbose_option, verbosity_of
from stackhound.cli.watch import wait_for_command, wait_for_end
from stackhound.errors import CommandNotRun, StackhoundError, UsageError
from stackhound.recording.invoker import Invoker, find_invoker
from stackhound.recording.launch import Command
from stackhound.recording.options import RecordOptions
from stackhound.recording.recorder import Recorder

if TYPE_CHECKING:
    from stackhound.profile import Profile

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
    ("999 samples a second for an hour, counted in the kernel", "sudo stackhound record -F 999 --aggregate -d 1h"),
    ("folded stacks into a pipe", "sudo stackhound record -d 5 --format folded -o - | flamegraph.pl > flame.svg"),
)


@dataclass(frozen=True)
class Request:
    """One call of ``record``."""

    options: RecordOptions
    command: tuple[str, ...]
    whole_system: bool
    duration_s: float | None
    target: Target
    event: str | None
    as_root: bool

    @classmethod
    def parse(cls, given: dict[str, Any], log_level: int) -> Request:
        """The request that the command line makes.

        Raises:
            UsageError: its options make no sense together.
        """
        if given["whole_system"] and given["pids"]:
            raise UsageError("-a and -p exclude each other", "drop one of them")
        options = RecordOptions(log_level=log_level, **{name: given[name] for name in _OPTION_NAMES})
        target = choose_target(given["output"], given["format_name"])
        _check_event(options, target, given["event"])
        return cls(
            options=options,
            command=given["command"],
            whole_system=given["whole_system"],
            duration_s=given["duration_s"],
            target=target,
            event=given["event"],
            as_root=given["as_root"],
        )


def _check_event(options: RecordOptions, target: Target, event: str | None) -> None:
    """See that the output can be drawn: after the recording it would be too late."""
    names = [one["name"] for one in options.native()["events"]]
    if event is None and target.format.single_event and len(names) > 1:
        raise UsageError(
            f"{target.format.name} shows one of the events {', '.join(names)}", "choose one with --event NAME"
        )
    if event is not None and event not in names:
        raise UsageError(f"no event {event!r} is recorded", f"choose one of {', '.join(names)}")


_OPTION_NAMES: Final = (
    "pids",
    "events",
    "frequency_hz",
    "period",
    "software_only",
    "inherit",
    "comm",
    "cgroup",
    "user_only",
    "kernel_only",
    "include_self",
    "aggregate",
    "lines",
    "ring_bytes",
    "debug_dirs",
)


def record_options(command: Decorated) -> Decorated:
    """Everything that says what to record and where to write it; ``run`` has the same."""
    options = (
        frequency_option("99"),
        click.option(
            "-c", "--period", type=int, metavar="N", help="A sample each N events (of cpu: each N nanoseconds)."
        ),
        pids_option,
        click.option("-a", "whole_system", is_flag=True, help="The whole machine: the default without -p or COMMAND."),
        click.option(
            "-e",
            "events",
            type=split_names,
            multiple=True,
            default=("cpu",),
            callback=flatten,
            metavar="EVENT,...",
            help="What to sample, see 'stackhound list'; repeatable.  [default: cpu]",
        ),
        software_option,
        click.option("-g", "call_graph", is_flag=True, help="Accepted for perf's sake: stacks are always recorded."),
        click.option(
            "-d", "--duration", "duration_s", type=parse_duration, metavar="TIME", help="End after 10, 500ms, 5m."
        ),
        click.option("--comm", default="", help="Only threads of this name."),
        click.option("--cgroup", default="", metavar="PATH", help="Only this cgroup (v2)."),
        click.option("--user-only", is_flag=True, help="Leave out the kernel."),
        click.option("--kernel-only", is_flag=True, help="Leave out user space."),
        click.option("--inherit/--no-inherit", default=True, help="Follow children.  [default: yes]"),
        click.option("--include-self", is_flag=True, help="Show stackhound itself, too."),
        click.option("--aggregate", is_flag=True, help="Count equal stacks in the kernel: for high rates, for hours."),
        click.option("--lines/--no-lines", default=True, help="Find lines and inlined functions.  [default: yes]"),
        click.option(
            "--debug-dir",
            "debug_dirs",
            type=click.Path(path_type=Path),
            multiple=True,
            help="Look for separate debug files here, too; repeatable.",
        ),
        click.option(
            "--ring-size", "ring_bytes", type=parse_size, default="0", metavar="SIZE", help="Kernel buffer, e.g. 4M."
        ),
        click.option("--as-root", is_flag=True, help="Under sudo, run COMMAND as root instead of as you."),
        click.option("-o", "--output", metavar="PATH", help="Where to, the format by its suffix; - is stdout."),
        click.option("--format", "format_name", metavar="FORMAT", help="The format, whatever the suffix."),
        event_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


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
    user = None if request.as_root else invoker
    with Command(request.command, user, stdout_to_stderr=request.target.path is None) as command:
        return _record_command(request, command, invoker)


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
    return replace(request, options=replace(request.options, pids=(command.pid,), held_pids=(command.pid,)))


def _record(request: Request, signals: Signals, command: Command | None, invoker: Invoker | None) -> None:
    with closing(Recorder(request.options)) as recorder:
        recorder.start()
        if command is not None:
            command.release()
        wait_for_end(recorder, signals, request.duration_s, command)
        profile = recorder.stop()
    write_recording(profile, request.target, request.event, invoker)
    _tell(profile, request)


def _tell(profile: Profile, request: Request) -> None:
    """What people want to know first, on stderr: stdout is COMMAND's, or the profile's."""
    from stackhound.cli.outcome import describe_outcome

    columns = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else None
    for line in describe_outcome(profile, request.target, request.event, columns):
        click.echo(line, err=True)
