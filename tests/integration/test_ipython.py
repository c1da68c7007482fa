"""``%%stackhound`` in a real IPython."""

from __future__ import annotations

import asyncio
import html
import re
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from stackhound import Profile, load
from support_profiles import samples_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.ebpf, pytest.mark.filterwarnings("default")]  # IPython's own are not ours

WORK = """
import threading, time
def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))
"""


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext stackhound")
    shell.run_cell("%colors nocolor")
    shell.run_cell(WORK)
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


def run(shell: InteractiveShell, text: str) -> Any:
    """What a cell prints and shows; `error` is what ended it."""
    with capture_output() as shown:
        result = shell.run_cell(text)
    shown.error = result.error_in_exec
    return shown


def test_a_cell_is_recorded_and_its_functions_are_shown(shell: InteractiveShell) -> None:
    shown = run(shell, "%%stackhound -F 499 -n 1000\nbusy(0.3)\nanswer = 42")
    assert shown.error is None
    assert shell.user_ns["answer"] == 42
    (view,) = shown.outputs
    text = view.data["text/plain"]
    assert text.startswith("cpu by ")
    assert " In[1].busy " in text
    assert "0 lost" in text


def test_a_notebook_gets_the_flame_graph_in_a_frame_that_reaches_nothing(shell: InteractiveShell) -> None:
    (view,) = run(shell, "%%stackhound -F 499\nbusy(0.3)").outputs
    (page,) = re.findall(r'<iframe sandbox="allow-scripts" [^>]*srcdoc="([^"]*)">', view.data["text/html"])
    assert html.unescape(page).startswith("<!")
    assert "busy" in page


def test_the_table_alone_has_no_script(shell: InteractiveShell) -> None:
    (view,) = run(shell, "%%stackhound -F 499 --table -n 3\nbusy(0.3)").outputs
    assert "<table>" in view.data["text/html"]
    assert "<iframe" not in view.data["text/html"]
    assert view.data["text/html"].count("<tr>") == 1 + 3


def test_stacks_begin_with_the_cell_and_have_nothing_of_ipythons_preparations(shell: InteractiveShell) -> None:
    run(shell, "%%stackhound -F 999 --as profile\nbusy(0.3)")
    profile = shell.user_ns["profile"]
    assert isinstance(profile, Profile)
    roots = {sample.frames[0].name.rpartition(".")[2] for sample in samples_of(profile) if sample.frames}
    assert roots == {"run_code"}


def test_threads_of_a_cell_are_recorded_with_their_whole_stacks(shell: InteractiveShell) -> None:
    cell = "thread = threading.Thread(target=busy, args=(0.3,))\nthread.start()\nthread.join()"
    run(shell, f"%%stackhound -F 499 --as profile\n{cell}")
    of_thread = [one for one in samples_of(shell.user_ns["profile"]) if one.tid == shell.user_ns["thread"].native_id]
    assert any("In[1].busy" in one.names for one in of_thread)
    assert all("run_code" not in name for one in of_thread for name in one.names)


def test_the_profile_is_written_in_the_format_of_the_suffix(shell: InteractiveShell, tmp_path: Path) -> None:
    for name in ("cell.hound", "cell.folded"):
        run(shell, f"%%stackhound -F 499 -o {tmp_path / name}\nbusy(0.2)")
    assert load(tmp_path / "cell.hound").table("samples").num_rows
    assert "busy" in (tmp_path / "cell.folded").read_text()


def test_a_cell_that_fails_shows_its_error_once_and_what_was_recorded(shell: InteractiveShell) -> None:
    shown = run(shell, "%%stackhound -F 499 -n 1000\nbusy(0.2)\nraise LookupError('gone')")
    assert shown.stdout.count("LookupError: gone") == 1
    assert " In[1].busy " in shown.outputs[-1].data["text/plain"]


def test_a_cell_that_only_sleeps_says_why_nothing_is_shown(shell: InteractiveShell) -> None:
    (view,) = run(shell, "%%stackhound -F 1\npass").outputs
    assert "no sample" in view.data["text/plain"]
    assert "no sample" in view.data["text/html"]


@pytest.mark.parametrize(
    ("options", "told"),
    [("--bogus", "unrecognized arguments: --bogus"), ("-e nonsense", "there is no event"), ("-F 0", "0 Hz")],
)
def test_a_mistake_is_told_in_one_line(options: str, told: str, shell: InteractiveShell) -> None:
    shown = run(shell, f"%%stackhound {options}\nran = True")
    assert "ran" not in shell.user_ns
    (line,) = (shown.stdout + shown.stderr).splitlines()
    assert told in line


def test_a_cell_that_awaits_is_recorded_in_a_terminal(shell: InteractiveShell) -> None:
    shown = run(shell, "%%stackhound -F 499 -n 1000\nimport asyncio\nawait asyncio.sleep(0)\nbusy(0.2)")
    assert shown.error is None
    assert " In[1].busy " in shown.outputs[-1].data["text/plain"]


def test_in_a_notebooks_event_loop_it_is_told_what_to_do_instead(shell: InteractiveShell) -> None:
    async def notebook() -> Any:
        return run(shell, "%%stackhound\nimport asyncio\nawait asyncio.sleep(0)")

    shown = asyncio.run(notebook())
    assert "with stackhound.record()" in str(shown.error)
    assert not shown.outputs
