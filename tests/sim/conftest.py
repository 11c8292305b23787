"""Deterministic simulation: broker, clients, disk and time in one process, all from one seed."""

import os
import sys
from pathlib import Path

import pytest

# Tests are imported by path, without packages, so the shared helpers come from folders of their own.
sys.path.insert(0, str(Path(__file__).parent / "lib"))
sys.path.insert(0, str(Path(__file__).parents[1] / "crash" / "lib"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`OTTLA_SIM_SEEDS=1000` runs that many, `OTTLA_SIM_SEED=123` one that failed."""
    if "seed" in metafunc.fixturenames:
        one = os.environ.get("OTTLA_SIM_SEED")
        seeds = [int(one)] if one else range(int(os.environ.get("OTTLA_SIM_SEEDS", "30")))
        metafunc.parametrize("seed", seeds)
