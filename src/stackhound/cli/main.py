"""``stackhound``: subcommands by name, each imported when it is asked for, and the one map from errors to exits.

0 done · 1 failed · 2 usage · 130 Ctrl-C before anything was recorded · 141 the reader of our output has gone
bench gate: 3 regression · 4 inconclusive (--strict) · bpf bench: 4 inconclusive
record -- COMMAND: COMMAND's own (128 + signal) · 125 the recording failed · 126, 127 COMMAND could not be run
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.entry import INTERRUPTED
from stackhound.cli.subcommands import Subcommands
from stackhound.cli.verbosity import Verbosity, verbose_option
from stackhound.errors import OutputError, StackhoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

READER_GONE: Final = 141  # 128 + SIGPIPE

OPENBLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"
COMPLETION_VARIABLE: Final = "_STACKHOUND_COMPLETE"

#: Each subcommand's file in this package, and what it does: ``--help`` imports none of them.
SUBCOMMANDS: Final = {
    "record": "Record this machine, some processes, or a command.",
    "run": "Record a Python script.",
    "stream": "Print each sample as it happens.",
    "dump": "Print what every thread of a process does now.",
    "report": "Show a profile in the terminal.",
    "export": "Write a profile in another format.",
    "view": "Show a profile in the browser.",
    "bench": "Measure programs again and again, and stop regressions.",
    "bpf": "Measure eBPF programs, whoever loaded them.",
    "list": "List the events that this machine has.",
    "doctor": "Say what this machine allows, and how to mend the rest.",
    "completion": "Print the completion script of a shell.",
}


EXAMPLES: Final = (
    ("ten seconds of the whole machine", "sudo stackhound record -d 10"),
    ("a command, from its first instruction", "sudo stackhound record -- make -j8"),
    ("what was recorded, in the terminal", "stackhound report"),
    ("the same as a flame graph", "stackhound export -o flame.html"),
    ("what this machine allows", "stackhound doctor"),
)


@click.group(
    cls=Subcommands,
    subcommands=SUBCOMMANDS,
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="stackhound", message="stackhound %(version)s")
@verbose_option
def stackhound() -> None:
    """See where a Linux machine's time goes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and give its exit status.

    Args:
        arguments: without the program's name; None means those of this process.
    """
    verbosity = Verbosity()
    sys.excepthook = partial(_report_bug, verbosity)
    try:
        verbosity.read_environment()
        _keep_numpy_single()
        return _run(list(sys.argv[1:] if arguments is None else arguments), verbosity)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _fail(_usage_error(error), verbosity)
    except StackhoundError as error:
        return _fail(error, verbosity)
    except BrokenPipeError:
        return _leave_quietly()
    except OSError as error:
        remedy = "see that it can be written to, and has room"
        return _fail(OutputError(f"{error.filename or 'output'}: {error.strerror}", remedy), verbosity)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED


def _keep_numpy_single() -> None:
    """Let numpy, once imported, start no thread a CPU for algebra that is never asked for (60 ms).

    Only C's environment is changed: COMMAND gets that of `os.environ`.
    """
    if OPENBLAS_THREADS not in os.environ:
        os.putenv(OPENBLAS_THREADS, "1")


def _run(arguments: list[str], verbosity: Verbosity) -> int:
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(stackhound, {}, "stackhound", COMPLETION_VARIABLE, instruction)
    color = False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
    with stackhound.make_context("stackhound", arguments, obj=verbosity, color=color) as context:
        status: int | None = stackhound.invoke(context)
    sys.stdout.flush()  # here, where a reader that has gone is met quietly
    return status or 0


def _fail(error: StackhoundError, verbosity: Verbosity) -> int:
    from stackhound.profile.escape import printable

    if verbosity.level > 0:
        _print_traceback(error)
    click.echo(printable(f"stackhound: {error}"), err=True)
    return error.exit_code


def _usage_error(error: click.ClickException) -> UsageError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = " ".join(error.format_message().split()).rstrip(".")
    return UsageError(message, f"see '{context.command_path if context else 'stackhound'} --help'")


def _leave_quietly() -> int:
    """End without a word when the reader of our output has gone, also when Python flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE


def _report_bug(verbosity: Verbosity, kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """What nobody caught is a mistake of ours."""
    if verbosity.level > 0:
        _print_traceback(error)
    remedy = "this is a bug in stackhound; -v shows where"
    click.echo(f"stackhound: {kind.__name__}: {str(error)!a}: {remedy}", err=True)


def _print_traceback(error: BaseException) -> None:
    import traceback  # 10 ms that only a failure pays

    traceback.print_exception(error)
