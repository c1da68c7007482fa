"""A real recording in the Firefox Profiler's own code: down to the source line and the instruction."""

from __future__ import annotations

import json

import pytest

from fixtures.front_end import open_in_front_end, serving
from stackhound.server.firefox import make_server
from support_recordings import record_some
from support_workloads import FOR_EVER, Program, build, line_of

pytestmark = pytest.mark.ebpf

SAMPLES = 300


def test_a_recording_is_shown_down_to_its_lines_and_instructions():
    with Program(build("busy.c"), FOR_EVER) as program:
        profile = record_some(SAMPLES, program, frequency_hz=999)
    with serving(make_server(profile)) as server, open_in_front_end(server.profile_url) as front_end:
        shown = front_end.annotate(server, "stir")
        lines = {line["lineNumber"]: line for line in shown["srcAnnotation"]["lines"]}
        hottest = max(lines, key=lambda number: lines[number]["selfSamples"])
        assert abs(hottest - line_of("busy.c", "stir")) <= 1  # the loop, or what is in it
        assert "x >> 13" in lines[line_of("busy.c", "stir")]["sourceText"]
        (assembly,) = shown["asmAnnotations"]
        assert assembly["symbolName"] == "churn"
        hits = sum(one["selfSamples"] for one in assembly["instructions"])
        assert hits >= 0.9 * shown["totalSelfSamples"] > 0
        assert front_end.complaints() == [], json.dumps(front_end.complaints())
