"""`ottla brokers` and `ottla partitions`: leaders and replicas, through the Kafka protocol."""

from collections.abc import Iterator
from typing import Any

import pytest

import ottla as package


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    with package.Cluster(3) as cluster:
        yield cluster


def test_brokers_are_listed(ottla: Any, three: Any) -> None:
    ottla("topics", "create", "listed", "-p", 3, "-r", 2, on=three)
    found = ottla("brokers", "--json", on=three).json
    assert [row["id"] for row in found["brokers"]] == [1, 2, 3]
    assert found["controller"] not in (None, 1, 2, 3), "the controller of a cluster is a node of its own"
    assert not any(row["controller"] for row in found["brokers"])
    assert sum(row["leaders"] for row in found["brokers"]) >= 3
    assert sum(row["replicas"] for row in found["brokers"]) >= 6
    assert "BROKER  ADDRESS" in ottla("brokers", on=three).out


def test_preferred_leaders_are_elected(ottla: Any, three: Any) -> None:
    ottla("topics", "create", "led", "--assign", "0:1,2", "--assign", "1:2,3", on=three)
    three.move_leader("led", 0, to=2)
    assert ottla("partitions", "elect", "led", on=three).out == "led-0: broker 1 leads now\n"
    assert "no election was needed" in ottla("partitions", "elect", "led:0,1", on=three).err


def test_partitions_move_to_other_brokers(ottla: Any, three: Any) -> None:
    ottla("topics", "create", "moved", "--assign", "0:1,2", on=three)
    assert ottla("partitions", "reassign", "moved:0", "3,2", "--wait", on=three).out == "moved-0: moved to 3,2\n"
    (described,) = ottla("topics", "describe", "moved", "--json", on=three).json
    assert described["partitions"][0]["replicas"] == [3, 2]
    assert ottla("partitions", "moves", "--json", on=three).json == []
    failed = ottla("partitions", "reassign", "moved", "9", "--json", code=1, on=three)
    assert failed.json == [{"topic": "moved", "partition": 0, "error": "INVALID_REPLICA_ASSIGNMENT"}]
    assert "has no partition 7" in ottla("partitions", "reassign", "moved:7", "1", code=1, on=three).err


def test_an_election_without_need_is_reported(cli: Any, topic: str) -> None:
    """Also on Apache Kafka."""
    assert "no election was needed" in cli("partitions", "elect", topic).err
    assert cli("brokers", "--json").json["brokers"][0]["leaders"] >= 3
