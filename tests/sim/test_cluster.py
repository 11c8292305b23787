"""Runs of a whole cluster from one seed each: it keeps its guarantees, no matter what happens to its brokers.

`OTTLA_SIM_SEEDS=2000` for a long run; a seed that failed runs again with `OTTLA_SIM_SEED=123`, step by step the same.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import KafkaError
from ottla.replication.leadership import Leadership
from ottla.replication.partition import Partition
from support.crashing.history import Violation
from support.simulating.ensemble import run_cluster_seed
from support.simulating.loop import Lost


def test_a_simulated_cluster_keeps_its_promises(seed: int) -> None:
    world = run_cluster_seed(seed)
    assert world.starts >= 3


def test_the_same_seed_gives_the_same_cluster_run() -> None:
    assert run_cluster_seed(4).trace == run_cluster_seed(4).trace != run_cluster_seed(5).trace


def commit_what_the_leader_has(leadership: Leadership) -> None:
    log = leadership.log
    if log.log_end_offset > log.high_watermark:
        log.update_high_watermark(log.log_end_offset)
        while leadership._waiting:
            leadership._waiting.pop(0)[2](None)


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (Leadership, "advance", commit_what_the_leader_has),
        (Partition, "truncate", lambda partition, offset: None),
        (Partition, "read_as_replica", lambda partition, offset, max_bytes, at_least_one: b""),
    ],
    ids=["too early", "never cut", "nothing to follow"],
)
def test_a_broken_cluster_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, mistake: Callable[..., Any]
) -> None:
    """Clusters that acknowledge records of a single broker, keep records that no leader has, or copy nothing.

    If a write needs two replicas, a cluster that copies nothing shows first as a request without an answer.
    """
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises((Violation, KafkaError, Lost)):
        for seed in (9, *range(20)):
            run_cluster_seed(seed)
