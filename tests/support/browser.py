"""Chromium for tests: the system's browser, installed with the package manager where tests may do that."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str:
    """The path of a Chromium. Under CI it is installed if it is missing; elsewhere the test is skipped."""
    found = _known()
    if found is None and os.environ.get("CI") == "true":
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]):
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            )
        found = _known()
        assert found is not None, "chromium was installed but cannot be found"
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found


def _known() -> str | None:
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=_OPTIONS)
        try:
            yield browser
        finally:
            browser.close()
