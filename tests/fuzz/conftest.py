"""Hostile input against a broker in this process. `lib/fuzzing` makes the frames; the loop is the simulation's."""

import os
import sys
from pathlib import Path

import pytest

# Tests are imported by path, without packages, so the shared helpers come from folders of their own.
sys.path.insert(0, str(Path(__file__).parent / "lib"))
sys.path.insert(0, str(Path(__file__).parents[1] / "sim" / "lib"))
sys.path.insert(0, str(Path(__file__).parents[1] / "crash" / "lib"))


@pytest.fixture
def frame_count() -> int:
    """`OTTLA_FUZZ_FRAMES=1000000` for a long run."""
    return int(os.environ.get("OTTLA_FUZZ_FRAMES", "20000"))


@pytest.fixture
def fuzz_seed() -> int:
    return int(os.environ.get("OTTLA_FUZZ_SEED", "1"))
