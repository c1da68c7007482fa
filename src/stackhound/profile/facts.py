"""What a profile says of its recording: what was sampled where and how, what that cost and what it lost.

Everything is safe to print: names come from the recorded machine.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.profile.absences import absences_by
from stackhound.profile.completeness import COMPLETE, OF_PYTHON, count_ends
from stackhound.profile.escape import printable
from stackhound.profile.metadata import MAX_NUMBER, read_amount, read_int, read_text
from stackhound.profile.totals import exact_total
from stackhound.profile.units import format_collector_cost, format_sample_cost, format_samples, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackhound.profile.metadata import Metadata
    from stackhound.profile.profile import Profile, Samples
    from stackhound.profile.rows import Event, Loss


#: Of what threads waited for, in one line.
MOST_REASONS: Final = 5
#: NTP slews a clock by 500 µs a second at most; what is more was set. Two readings agree within less than 10 ms.
SLEWED_PART: Final = 2000
READING_ERROR_NS: Final = 10_000_000


def title(profile: Profile, event: Event) -> str:
    """What was sampled, and where: ``cpu on web-1``."""
    host = read_text(profile.metadata, "host", "name")
    return printable(f"{event.name} on {host}" if host else event.name)


def facts(profile: Profile, event: Event) -> list[tuple[str, str]]:
    """(label, text) of everything that is known; what is not known is left out."""
    metadata = profile.metadata
    samples = profile.samples_of(event)
    counted = exact_total(profile, event)
    known = [
        ("Duration", format_value(profile.duration_ns, "nanoseconds")),
        ("Samples", f"{int(samples.count.sum()):,}"),
        ("Total", format_value(int(samples.value.sum()), event.unit)),
        ("Counted", "" if counted is None else f"{format_value(counted, event.unit)}, exactly"),
        ("Event", f"{event.name} ({event.unit}), by {event.trigger} {_rate(profile, event)}"),
        ("Stacks", _completeness(samples)),
        ("Lost", _causes(profile.losses) or "0"),
        ("Cost", ", ".join(_costs(metadata))),
        ("System", _system(metadata)),
        ("Recorded", _recorded(metadata)),
    ]
    return [(label, printable(text)) for label, text in known if text]


def describe_event(profile: Profile, event: Event) -> str:
    """What was sampled, by which trigger, how much: ``cpu by cpu-clock at 99 Hz: 2,970 samples, 30.0 s``.

    With the exact number where the kernel has one: ``minor-faults at 99 Hz: 1,234 samples, 12,300 of 12,345 counted``;
    with what was waited for: ``off-cpu by sched_exit_tp every 1.00 ms: 2,524 samples, 2.84 s (futex 61%, sleep 39%)``.
    """
    samples = profile.samples_of(event)
    counted = exact_total(profile, event)
    trigger = f" by {event.trigger}" if event.trigger != event.name else ""
    amount = f"{format_samples(int(samples.count.sum()))}, {format_value(int(samples.value.sum()), event.unit)}"
    whole = "" if counted is None else f" of {format_value(counted, event.unit)} counted"
    return printable(
        f"{event.name}{trigger} {_rate(profile, event)}: {amount}{whole}{_reasons(profile, event, samples)}"
    )


def _reasons(profile: Profile, event: Event, samples: Samples) -> str:
    """What most of the time off the CPU was for, in brackets; empty for other events."""
    whole = int(samples.value.sum())
    if event.name != "off-cpu" or not whole:
        return ""
    names, reason = absences_by(profile, event, "reason")
    values = np.bincount(reason, samples.value, len(names))
    most = [at for at in np.argsort(-values, kind="stable")[:MOST_REASONS].tolist() if values[at] >= whole / 100]
    return f" ({', '.join(f'{names[at]} {100 * values[at] / whole:.0f}%' for at in most)})"


def cost_and_loss(profile: Profile) -> str:
    """The line that every recording ends with.

    ``2,970 samples · 0 lost · 4.1 µs each + 4.0 µs interrupt (calibrated) · collector 0.2% of a CPU, 41 MB``
    """
    counted = [loss for loss in profile.losses if not loss.estimated]
    causes, guesses = _causes(counted), _causes(loss for loss in profile.losses if loss.estimated)
    parts = [
        format_samples(int(profile.numbers("samples", "count").sum())),
        f"{sum(loss.count for loss in counted):,} lost{f' ({causes})' if causes else ''}",
        f"estimated: {guesses}" if guesses else "",
        *_costs(profile.metadata),
    ]
    return printable(" · ".join(part for part in parts if part))


def notes(profile: Profile) -> list[str]:
    """What else one should know of the recording, a line each."""
    said = profile.metadata.get("notes", [])
    jump_ns = _clock_jump_ns(profile.metadata)
    if abs(jump_ns) > READING_ERROR_NS + profile.duration_ns // SLEWED_PART:
        amount = format_value(abs(jump_ns), "nanoseconds")
        ahead = "forward" if jump_ns > 0 else "back"
        said = [*said, f"the clock was set {ahead} by {amount} meanwhile: times of day are those of the start"]
    return [printable(str(note)) for note in said]


def _clock_jump_ns(metadata: Metadata) -> int:
    """How far Unix time moved against the time since boot, which goes on while the machine is suspended."""
    start, end = (read_int(metadata, "clock", f"boot_to_unix_ns_{when}") for when in ("start", "end"))
    return 0 if start is None or end is None else end - start


def _rate(profile: Profile, event: Event) -> str:
    if event.mode == "frequency":
        return f"at {event.rate:,} Hz"
    unit = read_text(profile.metadata, "sampled_units", event.name) or event.unit
    return "each time" if event.rate == 1 else f"every {format_value(event.rate, unit)}"


def _causes(losses: Iterable[Loss]) -> str:
    """Every cause that took something, as in ``12 ring-full, ~3 nested``: ``~`` marks an estimate."""
    return ", ".join(f"{'~' * loss.estimated}{loss.count:,} {loss.cause}" for loss in losses if loss.count)


def _completeness(samples: Samples) -> str:
    """Of the user stacks: ``99.2% complete; 12 no rule, 3 outside code``."""
    counts = count_ends(samples)
    is_unwound = not counts.keys() <= OF_PYTHON
    whole = counts.pop(COMPLETE, 0)
    others = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    percent = [f"{100 * whole / (whole + sum(counts.values())):.1f}% complete"] if is_unwound else []
    return "; ".join(percent + [others] * bool(others))


def _costs(metadata: Metadata) -> list[str]:
    run_ns, interrupt_ns, cpu_ns, elapsed_ns, resident_bytes = (
        read_amount(metadata, "cost", key)
        for key in ("bpf_ns_per_run", "interrupt_ns_per_sample", "collector_cpu_ns", "elapsed_ns", "resident_bytes")
    )
    sample = [format_sample_cost(run_ns, interrupt_ns)] if run_ns else []
    return sample + ([format_collector_cost(cpu_ns, elapsed_ns, resident_bytes)] if elapsed_ns else [])


def _system(metadata: Metadata) -> str:
    kernel, cpus = read_text(metadata, "host", "kernel"), read_int(metadata, "host", "cpus_online")
    architecture = read_text(metadata, "host", "architecture")
    known = (f"Linux {kernel}" if kernel else "", architecture, f"{cpus} CPUs" if cpus else "")
    return ", ".join(part for part in known if part)


def _recorded(metadata: Metadata) -> str:
    """In UTC, so that the same profile makes the same picture everywhere."""
    created_ns = metadata.get("created_unix_ns")
    if not isinstance(created_ns, int) or not 0 < created_ns < MAX_NUMBER:
        return ""
    return datetime.fromtimestamp(created_ns // 10**9, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
