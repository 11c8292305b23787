"""Hostile input against a broker in this process. `support.fuzzing` makes the frames; the loop is the simulation's."""

import os

import pytest


@pytest.fixture
def frame_count() -> int:
    """`OTTLA_FUZZ_FRAMES=1000000` for a long run."""
    return int(os.environ.get("OTTLA_FUZZ_FRAMES", "20000"))


@pytest.fixture
def fuzz_seed() -> int:
    return int(os.environ.get("OTTLA_FUZZ_SEED", "1"))
