"""The example project passes, both directly and with the commands of its README."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "examples" / "pytest-project"


@pytest.mark.parametrize("options", [[], ["-n", "2"]])
def test_the_example_project_passes(options: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
