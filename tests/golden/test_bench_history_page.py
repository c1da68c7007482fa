"""Benchmarks over time as a page, as a person with a browser and no network meets it."""

from __future__ import annotations

import pytest

from stackhound.bench import page as page_module
from stackhound.bench.history import Series
from stackhound.bench.page import ASSETS, UPLOT, write_page
from stackhound.errors import OutputError

HOSTILE = "</script><img src=x onerror=window.hacked=1>"
STEP = [100.0e6] * 10 + [150.0e6] * 10


def series(name="parse", values=STEP, unit="nanoseconds", branch="main"):
    runs = range(len(values))
    commits, times = (
        [f"{run:02x}".ljust(40, "0") for run in runs],
        [f"2026-11-{1 + run:02}T03:00:00+00:00" for run in runs],
    )
    return Series(name, "wall", unit, branch, "ci-3", list(values), commits, times)


@pytest.fixture
def open_page(browser, tmp_path):
    if not all((ASSETS / name).is_file() for name in UPLOT):
        pytest.skip("needs uPlot, which make build fetches where there is npm")
    contexts, complaints, requests = [], [], []

    def open_it(*found):
        path = tmp_path / "history.html"
        path.write_text(write_page(found))
        context = browser.new_context(viewport={"width": 1000, "height": 800})
        context.set_offline(True)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(path.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
    assert set(requests) <= {(tmp_path / "history.html").as_uri()}


def headings(page):
    return page.locator("section:visible h2").all_inner_texts()


def test_each_series_has_a_curve_with_its_changes(open_page):
    page = open_page(series(), series("draw", [3.0, 4.0], "count"))
    assert headings(page) == ["parse · wall main · ci-3", "draw · wall main · ci-3"]
    assert page.locator("canvas").count() == 2
    assert page.locator(".changes").first.inner_text() == "100 ms → 150 ms, +50% since run 11, 0a0000000000"
    assert page.locator(".changes").nth(1).inner_text() == ""


def test_the_pointer_tells_value_run_and_commit(open_page):
    page = open_page(series(values=[100.0e6, 150.0e6, 200.0e6]))
    box = page.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("document.querySelector('.u-legend').innerText.includes('150 ms')")
    assert "2 · 010000000000 · 2026-11-02 03:00" in page.locator(".u-legend").inner_text()


def test_the_filter_leaves_what_has_its_text(open_page):
    page = open_page(series(), series("draw"), series("parse", branch="topic"))
    page.fill("#filter", "TOPIC")
    assert headings(page) == ["parse · wall topic · ci-3"]
    page.fill("#filter", "")
    assert len(headings(page)) == 3


def test_names_are_text_and_nothing_else(open_page):
    page = open_page(series(HOSTILE, unit=HOSTILE, branch="\x1b[31m"))
    assert page.evaluate("window.hacked") is None
    assert headings(page) == [f"{HOSTILE} · wall \\x1b[31m · ci-3"]


def test_an_empty_history_says_so(open_page):
    assert "Nothing was added yet." in open_page().inner_text("main")


def test_a_build_without_uplot_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(page_module, "ASSETS", tmp_path)
    with pytest.raises(OutputError, match="no uPlot to draw with: build it where there is npm"):
        write_page([series()])
