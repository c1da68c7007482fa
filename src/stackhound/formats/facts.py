"""What stands above a picture or a text: where and how it was recorded, what that cost and what it lost."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from stackhound.formats.escape import terminal
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from stackhound.profile import Event, Loss, Profile
    from stackhound.profile.metadata import Metadata


def title(profile: Profile, event: Event) -> str:
    """What was sampled, and where."""
    host = profile.metadata.get("host", {}).get("name")
    return terminal(f"{event.name} on {host}" if host else event.name)


def facts(profile: Profile, event: Event) -> list[tuple[str, str]]:
    """(label, text) of everything that is known; what is not known is left out."""
    metadata = profile.metadata
    samples = profile.samples_of(event)
    count = int(samples.count.sum())
    known = [
        ("Duration", format_value(profile.duration_ns, "nanoseconds")),
        ("Samples", f"{count:,}"),
        ("Total", format_value(int(samples.value.sum()), event.unit)),
        ("Event", f"{event.name} ({event.unit}), {_trigger(event)}"),
        ("Lost", _lost(profile.losses)),
        ("Cost", _cost(metadata)),
        ("System", _system(metadata)),
        ("Recorded", _recorded(metadata)),
    ]
    return [(label, terminal(text)) for label, text in known if text]


def percent(part: float, whole: float) -> str:
    """A share: ``12.3%``, ``1.23%``, ``<0.01%``, ``0%``."""
    share = 100 * part / whole
    if share < 0.01:
        return "<0.01%" if part else "0%"
    return f"{share:.{2 if share < 10 else 1}f}%"


def _trigger(event: Event) -> str:
    if event.mode == "frequency":
        return f"by {event.trigger} at {event.rate:,} Hz"
    return "one sample each" if event.rate == 1 else f"one sample every {event.rate:,}"


def _lost(losses: list[Loss]) -> str:
    """Every cause that took something; an estimate is marked with ``~``."""
    return ", ".join(f"{'~' * loss.estimated}{loss.count:,} {loss.cause}" for loss in losses if loss.count) or "0"


def _cost(metadata: Metadata) -> str:
    """As in ``4.1 µs a sample + 4.0 µs interrupt (calibrated), collector 0.2% of a CPU, 41 MB``."""
    cost = metadata.get("cost", {})
    sample = []
    if cost.get("bpf_ns_per_run"):
        sample.append(f"{format_value(round(cost['bpf_ns_per_run']), 'nanoseconds')} a sample")
    if cost.get("interrupt_ns_per_sample"):
        sample.append(f"{format_value(round(cost['interrupt_ns_per_sample']), 'nanoseconds')} interrupt (calibrated)")
    parts = [" + ".join(sample)]
    if cost.get("elapsed_ns"):
        parts.append(f"collector {percent(cost.get('collector_cpu_ns', 0), cost['elapsed_ns'])} of a CPU")
    if cost.get("resident_bytes"):
        parts.append(f"{cost['resident_bytes'] / 1e6:,.0f} MB")
    return ", ".join(part for part in parts if part)


def _system(metadata: Metadata) -> str:
    host = metadata.get("host", {})
    kernel = f"Linux {host['kernel']}" if "kernel" in host else ""
    cpus = f"{host['cpus_online']} CPUs" if "cpus_online" in host else ""
    return ", ".join(part for part in (kernel, host.get("architecture", ""), cpus) if part)


def _recorded(metadata: Metadata) -> str:
    """In UTC, so that the same profile makes the same picture everywhere."""
    created_ns = metadata.get("created_unix_ns")
    if not created_ns:
        return ""
    return datetime.fromtimestamp(created_ns // 10**9, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
