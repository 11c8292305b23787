"""The assignors give consumer, share and streams groups exactly the assignments of Kafka's own, as members join and
leave."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.groups.consumer.assignors import MemberSpec as Reader
from ottla.coordinator.groups.consumer.assignors import assign_uniform
from ottla.coordinator.groups.share.assignor import assign_simple
from ottla.coordinator.groups.streams.assignor import MemberSpec, SubtopologySpec, assign
from ottla.coordinator.groups.streams.tasks import Target

GOLDEN = Path(__file__).parents[1] / "golden"
Tasks = dict[str, list[int]]


def cases(name: str) -> list[Any]:
    """The answers of Kafka 4.3.1. A case is the previous assignment of the members and the new one."""
    lines = (GOLDEN / f"assignments-{name}.jsonl").read_text().splitlines()
    return [pytest.param(json.loads(line), id=str(number)) for number, line in enumerate(lines)]


def places(tasks: Tasks) -> dict[bytes, frozenset[int]]:
    return {bytes.fromhex(topic): frozenset(indexes) for topic, indexes in tasks.items() if indexes}


def grouped(tasks: Tasks) -> dict[str, frozenset[int]]:
    return {name: frozenset(indexes) for name, indexes in tasks.items() if indexes}


def topic_ids(names: Iterable[str]) -> frozenset[bytes]:
    return frozenset(map(bytes.fromhex, names))


def readers(case: Any) -> dict[str, Reader]:
    return {
        name: Reader(None, topic_ids(member["topics"]), places(member["prev"]))
        for name, member in case["members"].items()
    }


@pytest.mark.parametrize("case", cases("uniform"))
def test_consumer_groups(case: Any) -> None:
    counts = {bytes.fromhex(topic): count for topic, count in case["counts"].items()}
    assert assign_uniform(readers(case), counts) == {name: places(given) for name, given in case["out"].items()}


@pytest.mark.parametrize("case", cases("simple"))
def test_share_groups(case: Any) -> None:
    assignable = {bytes.fromhex(topic): frozenset(range(count)) for topic, count in case["counts"].items()}
    assert assign_simple(readers(case), assignable) == {name: places(given) for name, given in case["out"].items()}


@pytest.mark.parametrize("case", cases("sticky"))
def test_streams_groups(case: Any) -> None:
    members = {
        name: MemberSpec(member["process"], Target(grouped(member["active"]), grouped(member["standby"])))
        for name, member in case["members"].items()
    }
    topology = {name: SubtopologySpec(*described) for name, described in case["topology"].items()}
    assert assign(members, topology, case["standby"]) == {
        name: Target(grouped(given["active"]), grouped(given["standby"])) for name, given in case["out"].items()
    }
