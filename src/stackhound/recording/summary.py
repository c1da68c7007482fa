"""What a recording cost and lost, in one line. Each profile says it.

2,970 samples · 0 lost · 4.1 µs each + 4.0 µs interrupt (calibrated) · collector 0.2% of a CPU, 41 MB
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackhound.profile import Event, Loss, Profile
    from stackhound.profile.metadata import Cost
    from stackhound.recording.recorder import Status


def status_line(status: Status) -> str:
    """How a recording goes."""
    parts = [f"{status.elapsed_ns / 1e9:.1f} s", _samples(status.samples), f"{status.lost:,} lost"]
    if status.bpf_runs:
        parts.append(f"{status.bpf_ns / status.bpf_runs / 1e3:.1f} µs each")
    if status.elapsed_ns:
        parts.append(_collector(status.collector_cpu_ns, status.elapsed_ns, status.resident_bytes))
    return " · ".join(parts)


def describe_event(profile: Profile, event: Event) -> str:
    """What was sampled, by which trigger, how much: ``cpu by cpu-clock at 99 Hz: 2,970 samples, 30.0 s``."""
    from stackhound.profile.units import format_value

    samples = profile.samples_of(event)
    rate = f"at {event.rate:,} Hz" if event.mode == "frequency" else f"every {format_value(event.rate, event.unit)}"
    trigger = f" by {event.trigger}" if event.trigger != event.name else ""
    amount = format_value(int(samples.value.sum()), event.unit)
    return f"{event.name}{trigger} {rate}: {_samples(int(samples.count.sum()))}, {amount}"


def cost_and_loss(profile: Profile) -> str:
    """What it cost and lost, once it has ended."""
    samples = int(profile.numbers("samples", "count").sum())
    parts = [_samples(samples), *_losses(profile.losses), *_costs(profile.metadata.get("cost", {}))]
    return " · ".join(parts)


def _samples(count: int) -> str:
    return f"{count:,} sample{'' if count == 1 else 's'}"


def _losses(losses: list[Loss]) -> list[str]:
    """The exact ones with their causes; the estimated ones apart."""
    counted = [loss for loss in losses if loss.count and not loss.estimated]
    estimated = [loss for loss in losses if loss.count and loss.estimated]
    total = f"{sum(loss.count for loss in counted):,} lost"
    causes = ", ".join(f"{loss.cause} {loss.count:,}" for loss in counted)
    guesses = ", ".join(f"{loss.cause} about {loss.count:,}" for loss in estimated)
    return [f"{total} ({causes})" if causes else total, *([f"estimated: {guesses}"] if guesses else [])]


def _costs(cost: Cost) -> list[str]:
    parts = []
    if cost.get("bpf_ns_per_run"):
        each = f"{cost['bpf_ns_per_run'] / 1e3:.1f} µs each"
        if cost.get("interrupt_ns_per_sample"):
            each += f" + {cost['interrupt_ns_per_sample'] / 1e3:.1f} µs interrupt (calibrated)"
        parts.append(each)
    if cost.get("elapsed_ns"):
        parts.append(_collector(cost["collector_cpu_ns"], cost["elapsed_ns"], cost["resident_bytes"]))
    return parts


def _collector(cpu_ns: int, elapsed_ns: int, resident_bytes: int) -> str:
    return f"collector {100 * cpu_ns / elapsed_ns:.1f}% of a CPU, {resident_bytes / 1e6:.0f} MB"
