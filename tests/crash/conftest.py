"""Crashes of a real process, and disk errors. The helpers are in `support.crashing`."""

import os

import pytest


@pytest.fixture
def rounds() -> int:
    """How often to crash: a few times by default, `OTTLA_CRASH_ROUNDS=200` for a long run."""
    return int(os.environ.get("OTTLA_CRASH_ROUNDS", "8"))


@pytest.fixture
def seed() -> int:
    """`OTTLA_CRASH_SEED` chooses other moments to kill at."""
    return int(os.environ.get("OTTLA_CRASH_SEED", "1"))
