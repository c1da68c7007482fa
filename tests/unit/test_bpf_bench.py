"""What a measurement makes of statistics that do not have what was run."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from stackhound.bpf import bench as measurement
from stackhound.bpf.bench import CALLS_A_LOAD, Plan
from stackhound.bpf.monitor import Overhead, Rate, Reading
from stackhound.errors import RecordingError

OWN, EMPTY = 7, 8
BATCHES = 4
CALLS = CALLS_A_LOAD // BATCHES


class Statistics:
    """Stands for the kernel's, which say that each run took so long."""

    overhead = Overhead(30.0, 100.0)

    def __init__(self, runs):
        self.rates = {id_: Rate(id_, count, 50.0 * count, 0) for id_, count in runs.items()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self):
        return Reading(1_000_000, self.rates, 0.0)


def measure(monkeypatch, runs):
    native = SimpleNamespace(
        id=lambda _: OWN,
        empty_id=lambda *_: EMPTY,
        run=lambda *_: (1, 1_000, 0),
        run_empty=lambda *_: (0, 1_000, 0),
    )
    rings = SimpleNamespace(empty=lambda: None)
    monkeypatch.setattr(measurement, "Monitor", lambda: Statistics(runs))
    monkeypatch.setattr(measurement, "open_rings", lambda _: nullcontext(rings))
    loaded = SimpleNamespace(native=native, program="compare")
    return measurement._run_calls(loaded, Plan(batches=BATCHES), set())


def test_runs_that_the_statistics_have_are_timed_by_them(monkeypatch):
    assert measure(monkeypatch, {OWN: CALLS, EMPTY: CALLS}) == (50.0, 50.0)


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ({OWN: 0, EMPTY: 0}, f"have 0 of {CALLS} runs of compare"),
        ({}, f"have 0 of {CALLS} runs of compare"),
        ({OWN: CALLS - 1, EMPTY: CALLS}, f"have {CALLS - 1} of {CALLS} runs of compare"),
        ({OWN: CALLS, EMPTY: 0}, f"have 0 of {CALLS} runs of an empty program"),
    ],
)
def test_runs_that_they_lack_never_become_no_time_at_all(monkeypatch, runs, told):
    with pytest.raises(RecordingError, match=told):
        measure(monkeypatch, runs)
