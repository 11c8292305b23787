"""Runs from one seed each: a broker keeps its guarantees with any disk faults and any kind of stop.

`OTTLA_SIM_SEEDS=2000` for a long run; a seed that failed runs again with `OTTLA_SIM_SEED=123`, step by step the same.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.segment import Segment
from support.crashing.history import Violation
from support.simulating.world import run_seed


def test_a_simulated_broker_keeps_its_promises(seed: int) -> None:
    world = run_seed(seed)
    assert world.lives == 4


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_seed(3).trace == run_seed(3).trace != run_seed(5).trace


def acknowledge_without_flushing(log: Log, up_to_offset: int | None = None) -> None:
    log.recovery_point = log.log_end_offset if up_to_offset is None else up_to_offset


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (Segment, "take_back", lambda segment, next_offset: None),
        (Log, "flush", acknowledge_without_flushing),
        (LogManager, "_flushed", lambda manager, log: None),
    ],
)
def test_a_broken_broker_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, mistake: Callable[..., Any]
) -> None:
    """Brokers that keep refused records, do not flush as promised, or flush records without their topic."""
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises(Violation):
        for seed in range(1, 20, 2):  # the odd ones flush, and lose power
            run_seed(seed)
