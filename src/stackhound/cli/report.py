"""``stackhound report``: a profile in the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.pager import show
from stackhound.cli.parameters import event_option, input_argument, split_names
from stackhound.cli.selection import Selection, selection_options
from stackhound.cli.verbosity import verbose_option
from stackhound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from stackhound.cli.breakdown import Row
    from stackhound.profile import CallTree, Event, Profile
    from stackhound.profile.tree import Root

EXAMPLES: Final = (
    ("the functions with the most time of their own", "stackhound report"),
    ("by process; by thread; by file", "stackhound report --sort process"),
    ("by process and function, as perf has it", "stackhound report --sort comm,object,symbol"),
    ("who called what, in branches of 1% or more", "stackhound report --tree --least 1"),
    ("who called functions named malloc…", "stackhound report --tree --inverted --focus ^malloc"),
    ("which files' stacks are complete, and why others are not", "stackhound report --sort object,stack"),
    ("a source file with the time beside its lines", "stackhound report --lines app.py"),
    ("which Python functions hold the interpreter's lock", "stackhound report --gil"),
    ("where the time of the busiest process went: CPU, locks, disk, …", "stackhound report --why"),
    ("what its threads did when", "stackhound report --timeline"),
    ("how long requests to each disk took", "stackhound report --event block-io --latency"),
    ("who asked for the memory that was in use at the end", "stackhound report --leaks"),
    ("source lines of one process, for a script", "stackhound report -p 1234 --sort line --json"),
)

#: perf's names of the same keys
ALIASES: Final = {"dso": "object", "sym": "symbol", "function": "symbol", "srcline": "line", "srcfile": "file"}
#: Without --sort.
FUNCTIONS: Final = ("symbol", "object")
ROWS_OF_EACH: Final = 10  # where a profile has several events
CELL_WIDTH: Final = 60  # of all but the last column
VIEWS: Final = {
    "--tree": "as_tree",
    "--lines": "source",
    "--gil": "by_lock",
    "--latency": "by_latency",
    "--leaks": "leaks",
    "--why": "why",
    "--timeline": "timeline",
}
#: Views of time on the CPU and off it together.
VIEWS_OF_TIME: Final = {"--why": "why", "--timeline": "timeline"}
#: What --leaks is of.
HEAP: Final = "heap"
#: What such a view is of when it is not said.
BUSIEST: Final = ""
ROOTS: Final[dict[str, Root]] = {"process": "process", "thread": "thread"}


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@input_argument
@click.option(
    "-s",
    "--sort",
    "sort",
    type=split_names,
    metavar="KEY,...",
    help="By comm, pid, tid, process, thread, stack, state, reason, waker, device, operation, charged, memory, object, "
    "symbol, file, line. "
    "--tree: process or thread.",
)
@click.option("--tree", "as_tree", is_flag=True, help="The call tree.")
@click.option("--lines", "source", metavar="FILE", help="This source file, line by line; the end of its path will do.")
@click.option("--all", "everything", is_flag=True, help="With --lines: the whole file, not only around the time.")
@click.option(
    "--gil", "by_lock", is_flag=True, help="Python's functions by time with and without the interpreter's lock."
)
@click.option(
    "--latency", "by_latency", is_flag=True, help="How long requests to disks took, by device and operation, or by KEY."
)
@click.option("--leaks", is_flag=True, help="What was in use at the end, by who had asked for it (record -e heap).")
@click.option(
    "--why",
    is_flag=False,
    flag_value=BUSIEST,
    metavar="[PID]",
    help="Where the wall time of a process went, by id or name.  [default: the busiest]",
)
@click.option(
    "--timeline",
    is_flag=False,
    flag_value=BUSIEST,
    metavar="[THREAD]",
    help="What a thread did when, by id or name; of a PID all threads.  [default: of the busiest]",
)
@click.option("-n", "--limit", type=click.IntRange(min=0), default=40, help="So many rows; 0 is all.  [default: 40]")
@click.option(
    "--least",
    type=click.FloatRange(0, 100),
    default=0.5,
    metavar="PERCENT",
    help="Of the tree's branches, of lines.  [default: 0.5]",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: an object with event, total and rows.")
@event_option
@selection_options
@click.pass_context
@verbose_option
def command(
    context: click.Context,
    /,
    profile_path: Path,
    sort: tuple[str, ...] | None,
    as_tree: bool,
    source: str | None,
    everything: bool,
    by_lock: bool,
    why: str | None,
    timeline: str | None,
    by_latency: bool,
    leaks: bool,
    as_json: bool,
    event: str | None,
    limit: int,
    least: float,
    **_: object,
) -> None:
    """Show INPUT, by default stackhound.hound.

    Without --sort and --tree: the functions with the most time of their own (self), and with all that they called
    (total); of several events, a few of each. What is longer than the terminal goes through $PAGER.
    """
    from stackhound.profile import load

    _check_view(context.params)
    keys = _read_keys(sort, as_tree)
    selection = Selection.parse(context.params)
    profile = selection.apply(load(profile_path))
    if why is not None:
        show_why(profile, why, as_json)
    elif timeline is not None:
        show_timeline(profile, timeline, limit, as_json)
    elif source:
        show_lines(profile, profile.event(event), source, least, everything, as_json)
    elif by_lock:
        show_lock(profile, event, limit, as_json)
    elif by_latency:
        show_latency(profile, profile.event(event), keys, limit, as_json)
    elif leaks:
        show_leaks(profile, profile.event(event or HEAP), limit, as_json)
    elif as_tree:
        tree = profile.tree(event, root=_root(keys))
        show_tree(tree, profile, least, as_json)
    elif event is None and len(profile.events) > 1 and not as_json:
        of_each = limit if context.get_parameter_source("limit") == ParameterSource.COMMANDLINE else ROWS_OF_EACH
        show_each(profile, keys or FUNCTIONS, of_each)
    else:
        show_rows(profile, profile.event(event), keys or FUNCTIONS, limit, as_json)


def show_tree(tree: CallTree, profile: Profile, least_percent: float, as_json: bool) -> None:
    """Print the call tree."""
    from stackhound.cli.calltree import draw

    if as_json:
        _print_json(profile, tree.event, list(_tree_rows(tree)))
    else:
        show([*_head(profile, tree.event), *draw(tree, least_percent)])


def show_lines(
    profile: Profile, event: Event, source: str, least_percent: float, everything: bool, as_json: bool
) -> None:
    """Print a source file with the values of its lines."""
    from stackhound.cli.annotation import annotate, as_rows, draw

    annotation = annotate(profile, event, source)
    if as_json:
        lines = annotation.rows(0, everything) if everything else annotation.by_line
        known = {"file": annotation.path, "note": annotation.note}
        _print_json(profile, event, as_rows(annotation, lines), **known)
    else:
        whole = max(1, int(profile.samples_of(event).value.sum()))
        show([*_head(profile, event), *draw(annotation, event, whole, least_percent, everything)])


def show_lock(profile: Profile, event: str | None, limit: int, as_json: bool) -> None:
    """Print who holds the interpreter's lock."""
    from stackhound.cli.lock import as_rows, break_down_by_lock, draw

    report = break_down_by_lock(profile, event)
    if as_json:
        _print_json(profile, report.event, as_rows(report, limit), known=report.known, unknown=report.unknown)
    else:
        show([*_head(profile, report.event), *draw(report, limit)])


def show_why(profile: Profile, asked: str, as_json: bool) -> None:
    """Print where the wall time of a process went."""
    from stackhound.cli.why import TOP, as_document, draw
    from stackhound.profile.portions import find_missing
    from stackhound.profile.targets import find_process
    from stackhound.profile.wall_time import account_for

    find_missing(profile)
    time = account_for(profile, find_process(profile, asked), TOP)
    if as_json:
        click.echo(json.dumps(as_document(profile, time), indent=1))
    else:
        show(list(draw(profile, time)))


def show_timeline(profile: Profile, asked: str, limit: int, as_json: bool) -> None:
    """Print what threads did when."""
    from stackhound.cli.timeline import as_documents, draw
    from stackhound.profile.portions import find_missing
    from stackhound.profile.targets import find_threads
    from stackhound.profile.timeline import draw_timelines

    find_missing(profile)
    timelines = draw_timelines(profile, find_threads(profile, asked))
    if as_json:
        document = {"start_boottime_ns": profile.start_boottime_ns, "duration_ns": profile.duration_ns}
        click.echo(json.dumps({**document, "threads": as_documents(timelines[: limit or None])}))
    else:
        show(list(draw(profile, timelines, limit)))


def show_latency(profile: Profile, event: Event, keys: Sequence[str], limit: int, as_json: bool) -> None:
    """Print how long what the samples stand for took."""
    from stackhound.cli.latency import DEFAULT_KEYS, as_rows, draw, measure

    chosen = keys or DEFAULT_KEYS.get(event.name, ("comm",))
    rows = measure(profile, event, chosen)
    if as_json:
        _print_json(profile, event, as_rows(rows, chosen, limit))
    else:
        show([*_head(profile, event), *draw(rows, chosen, limit)])


def show_leaks(profile: Profile, event: Event, limit: int, as_json: bool) -> None:
    """Print what was in use at the end."""
    from stackhound.cli.leaks import as_rows, draw, live_sites

    sites = live_sites(profile, event)
    if as_json:
        _print_json(profile, event, as_rows(sites, limit))
    else:
        show([*_head(profile, event), *draw(profile, event, sites, limit)])


def show_rows(profile: Profile, event: Event, keys: Sequence[str], limit: int, as_json: bool) -> None:
    """Print what the samples have in common, a row a group."""
    from stackhound.cli.breakdown import break_down

    rows = break_down(profile, event, keys)[: limit or None]
    if as_json:
        named = [
            dict(zip(keys, row.keys, strict=True)) | {"self": row.self_value, "total": row.total_value} for row in rows
        ]
        _print_json(profile, event, named)
    else:
        show([*_head(profile, event), *_table(profile, event, keys, rows)])


def show_each(profile: Profile, keys: Sequence[str], limit: int) -> None:
    """Print the same of each event, one after the other."""
    from stackhound.cli.breakdown import break_down
    from stackhound.profile.facts import cost_and_loss, describe_event

    lines = [cost_and_loss(profile)]
    for event in profile.events:
        rows = break_down(profile, event, keys)[: limit or None]
        lines += ["", describe_event(profile, event)]
        lines += _table(profile, event, keys, rows) if rows else ["no sample: it did not run, or was filtered out"]
    show(lines)


def _check_view(given: dict[str, Any]) -> None:
    """See that what is asked for is one view."""
    views = [option for option, name in VIEWS.items() if given[name] not in (None, False)]
    if len(views) > 1:
        raise UsageError(f"{' and '.join(views)} are views of their own", f"keep one, for example {views[0]}")
    if given["sort"] and views and not (given["as_tree"] or given["by_latency"]):
        raise UsageError(f"{views[0]} has an order of its own", "drop --sort")
    _check_view_of_time(given)
    if given["everything"] and not given["source"]:
        raise UsageError("--all is of the lines of a file", "add --lines FILE")
    if given["inverted"] and not given["as_tree"]:
        raise UsageError("--inverted turns a call tree around", "add --tree")


def _check_view_of_time(given: dict[str, Any]) -> None:
    for option, name in VIEWS_OF_TIME.items():
        if given[name] is None:
            continue
        if given["event"]:
            raise UsageError(f"{option} is of cpu and off-cpu together", "drop --event")
        if given["by"]:
            raise UsageError(f"{option} is about times", "drop --by")
        if given["off_wake"]:
            raise UsageError(f"{option} shows who sleeps", "drop --off-wake")
        if given[name].endswith(".hound"):  # INPUT where the option's own argument would be
            raise UsageError(f"{option} {given[name]} says no process", f"write report {given[name]} {option}")


def _read_keys(sort: tuple[str, ...] | None, as_tree: bool) -> tuple[str, ...]:
    from stackhound.cli.breakdown import KEYS

    keys = tuple(dict.fromkeys(ALIASES.get(key, key) for key in sort or ()))
    known = ROOTS if as_tree else KEYS
    for key in keys:
        if key not in known:
            raise UsageError(f"cannot sort {'a tree ' if as_tree else ''}by {key!r}", f"use {', '.join(known)}")
    return keys


def _root(keys: tuple[str, ...]) -> Root:
    if len(keys) > 1:
        raise UsageError("a tree has one first level", f"use --sort {keys[0]}")
    return ROOTS[keys[0]] if keys else None


def _head(profile: Profile, event: Event) -> list[str]:
    from stackhound.profile.facts import cost_and_loss, describe_event

    return [describe_event(profile, event), cost_and_loss(profile), ""]


def _table(profile: Profile, event: Event, keys: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    from stackhound.profile.escape import printable
    from stackhound.profile.units import format_value

    whole = max(1, int(profile.samples_of(event).value.sum()))
    limits = [CELL_WIDTH] * (len(keys) - 1) + [None]
    texts = [[printable(str(cell), limit) for cell, limit in zip(row.keys, limits, strict=True)] for row in rows]
    widths = [max(map(len, column)) for column in zip(keys, *texts, strict=True)]
    yield click.style(f"{'self':>7}  {'total':>7}  {'self':>9}  {'total':>9}  {_align(keys, widths)}", bold=True)
    for row, cells in zip(rows, texts, strict=True):
        shares = (f"{100 * value / whole:6.1f}%" for value in (row.self_value, row.total_value))
        values = (f"{format_value(value, event.unit):>9}" for value in (row.self_value, row.total_value))
        yield f"{'  '.join((*shares, *values))}  {_align(cells, widths)}"


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _tree_rows(tree: CallTree) -> Iterator[dict[str, Any]]:
    """Every node, flat: ``parent`` is the row of another one."""
    nodes = zip(tree.parent.tolist(), tree.self_value.tolist(), tree.total_value.tolist(), strict=True)
    for node, (parent, own, total) in enumerate(nodes):
        yield {"name": tree.name(node), "parent": parent if node else None, "self": own, "total": total}


def _print_json(profile: Profile, event: Event, rows: list[dict[str, Any]], **more: str | int) -> None:
    from stackhound.profile.totals import exact_total

    samples = profile.samples_of(event)
    counted = exact_total(profile, event)
    document = {
        "event": event.name,
        "unit": event.unit,
        "samples": int(samples.count.sum()),
        "total": int(samples.value.sum()),
        **({} if counted is None else {"counted": counted}),
        "losses": {loss.cause: loss.count for loss in profile.losses},
        **more,
        "rows": rows,
    }
    click.echo(json.dumps(document, indent=1))
