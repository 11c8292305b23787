"""Runs of a metadata quorum from one seed each. Raft's guarantees are checked after every step.

`OTTLA_SIM_SEEDS=5000` for a long run; a seed that failed runs again with `OTTLA_SIM_SEED=123`, step by step the same.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.raft.leader import Leader
from ottla.raft.messages import partition_of, vote_request
from ottla.raft.raft_log import OffsetAndEpoch, RaftLog
from ottla.raft.replica import RaftReplica
from ottla.raft.voters import ReplicaKey
from support.simulating.quorum import QuorumWorld, Violation, run_quorum_seed


def test_a_simulated_quorum_keeps_its_promises(seed: int) -> None:
    world = run_quorum_seed(seed)
    assert world.leaders and world.acknowledged


def test_the_same_seed_gives_the_same_quorum_run() -> None:
    assert run_quorum_seed(4).trace == run_quorum_seed(4).trace != run_quorum_seed(5).trace


def vote_for_everybody(replica: RaftReplica, candidate: Any, epoch: int) -> bool:
    replica.state = replica.state._replace(voted=None)
    return True


def commit_own(leader: Leader, voters: Any, own_end_offset: int) -> int:
    return own_end_offset


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (RaftReplica, "_may_vote", vote_for_everybody),
        (Leader, "committed_offset", commit_own),
        (RaftLog, "check_position", lambda *_: None),
    ],
    ids=["votes twice", "commits alone", "never finds a difference"],
)
def test_a_broken_quorum_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, mistake: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises(Violation):
        for seed in range(60):
            run_quorum_seed(seed, voters=3)


def test_a_vote_outlives_a_power_cut() -> None:
    world = QuorumWorld(1, voters=3, observers=0)
    node = world.nodes[1]
    node.start()

    def vote_for(candidate: int) -> bool:
        assert node.replica is not None
        voter = node.replica.voters.get(1)
        assert voter is not None
        sender = ReplicaKey(candidate, bytes([candidate]) * 16)
        request = vote_request("sim", sender, voter, 5, OffsetAndEpoch(0, 0), pre_vote=False)
        answers: list[Any] = []
        node.replica.handle(request, answers.append)
        granted: bool = partition_of(answers[0]).vote_granted
        return granted

    assert vote_for(2)
    for _ in range(5):
        node.disk = node.disk.after_power_loss(world.chance)
        node.start()
        assert not vote_for(3)
        assert vote_for(2)
