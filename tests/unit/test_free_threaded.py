"""Importing stackhound where its native module cannot be loaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stackhound

PACKAGE = Path(stackhound.__file__).parent


@pytest.fixture
def without_module(tmp_path):
    """The package as a free-threaded Python sees it: a file that ends in .abi3.so is no module there."""
    shutil.copytree(PACKAGE, tmp_path / "stackhound", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def import_in(folder, flags):
    script = f"import sys; sys.abiflags = {flags!r}; sys.path.insert(0, {str(folder)!r}); import stackhound"
    return subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=False)


def test_a_free_threaded_python_is_told_to_record_from_outside(without_module):
    done = import_in(without_module, "t")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("stackhound.errors.FreeThreadedPython: this stackhound cannot be imported")
    assert "stackhound record -- PROGRAM" in last


def test_programs_may_catch_it_as_an_import_error():
    assert issubclass(stackhound.errors.FreeThreadedPython, ImportError)


def test_other_pythons_and_wheels_of_its_own_are_not_refused(without_module):
    assert import_in(without_module, "").returncode == 0
    (without_module / "stackhound" / "_native.py").touch()
    assert import_in(without_module, "t").returncode == 0
