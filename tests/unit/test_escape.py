"""Names that programs gave themselves reach neither a terminal nor a line-based tool as anything but text."""

from __future__ import annotations

import unicodedata

import pytest

from fixtures.hostile import hostile_names
from stackhound.formats import escape

ATTACKS = [
    ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
    ("\x9b31mred", r"\x9b31mred"),
    ("two\nlines\r\ttab", r"two\nlines\r\ttab"),
    ("safe\u202egpj.exe", r"safe\u202egpj.exe"),
    ("\u2066isolate\u2069", r"\u2066isolate\u2069"),
    ("line\u2028separator", r"line\u2028separator"),
    ("lone \udc80 surrogate", r"lone \udc80 surrogate"),
    ("no character \uffff", r"no character \uffff"),
    ("tag \U000e0041", r"tag \U000e0041"),
]


@pytest.mark.parametrize(("name", "shown"), ATTACKS)
def test_what_a_terminal_would_act_on_is_shown_as_python_writes_it(name, shown):
    assert escape.terminal(name) == shown


@pytest.mark.parametrize("name", ["std::vector<int>::push_back", "naïve", "日本語", "🔥", "a b", r"App\Kernel"])
def test_names_in_any_script_stay_as_they_are(name):
    assert escape.terminal(name) == name


def test_no_name_breaks_its_line_or_turns_the_terminal():
    for name in hostile_names(10_000):
        shown = escape.terminal(name)
        assert len(f"{shown}.".splitlines()) == 1
        assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
        shown.encode()


def test_a_folded_frame_has_no_separator_in_it():
    assert escape.folded("<[u8; 4]>::map") == r"<[u8\x3b 4]>::map"
    assert not any(";" in escape.folded(name) for name in hostile_names(10_000))
