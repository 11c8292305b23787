"""Deterministic simulation: broker, clients, disk and time in one process, all from one seed."""

import os

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`OTTLA_SIM_SEEDS=1000` runs that many seeds, `OTTLA_SIM_SEED=123` runs one that failed."""
    if "seed" in metafunc.fixturenames:
        one = os.environ.get("OTTLA_SIM_SEED")
        seeds = [int(one)] if one else range(int(os.environ.get("OTTLA_SIM_SEEDS", "30")))
        metafunc.parametrize("seed", seeds)
