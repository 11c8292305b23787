"""Crashes of a real process, and what disks do. Helpers are in `lib/crashing`; frames come from the interop tests."""

import os
import sys
from pathlib import Path

import pytest

# Tests are imported by path, without packages, so the shared helpers come from folders of their own.
sys.path.insert(0, str(Path(__file__).parent / "lib"))
sys.path.insert(0, str(Path(__file__).parents[1] / "interop" / "lib"))
sys.path.insert(0, str(Path(__file__).parents[1] / "sim" / "lib"))


@pytest.fixture
def rounds() -> int:
    """How often to crash: a few times by default, `OTTLA_CRASH_ROUNDS=200` for a long run."""
    return int(os.environ.get("OTTLA_CRASH_ROUNDS", "8"))


@pytest.fixture
def seed() -> int:
    """`OTTLA_CRASH_SEED` chooses other moments to kill at."""
    return int(os.environ.get("OTTLA_CRASH_SEED", "1"))
