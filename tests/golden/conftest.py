"""A browser, for tests that look at our pages as people do."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """The path of a Chromium that shows files of ours; Ubuntu's may only say that it wants a snap."""
    found = [path for name in NAMES if (path := shutil.which(name))]
    directory = tmp_path_factory.mktemp("chromium")
    for path in found:
        if shows_a_page(path, directory):
            return path
    return pytest.skip(f"no browser shows a file here, tried: {', '.join(found or NAMES)}")


def shows_a_page(path, directory):
    page = directory / "page.html"
    page.write_text("<p>shown</p>")
    command = [path, "--headless", *FLAGS, f"--user-data-dir={directory}/user", "--dump-dom", page.as_uri()]
    try:
        return "<p>shown</p>" in subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except subprocess.TimeoutExpired:
        return False


@pytest.fixture(scope="module")
def browser(chromium):
    """Chromium, remote-controlled; its pages know nothing of each other."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()
