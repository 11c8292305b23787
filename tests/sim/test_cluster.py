"""Runs of a whole cluster from one seed each: whatever happens to its brokers, what was promised holds.

`OTTLA_SIM_SEEDS=2000` for a long run; a seed that failed runs again with `OTTLA_SIM_SEED=123`, step by step the same.
"""

from simulating.ensemble import run_cluster_seed


def test_promises_hold_in_a_cluster(seed: int) -> None:
    world = run_cluster_seed(seed)
    assert world.starts >= 3


def test_a_seed_gives_the_same_run_of_a_cluster_again() -> None:
    assert run_cluster_seed(4).trace == run_cluster_seed(4).trace != run_cluster_seed(5).trace
