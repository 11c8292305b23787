"""The metadata hash must equal Kafka's: it is stored, and a different one would rebalance every group after a
migration."""

from typing import Any

import pytest

from ottla.coordinator.groups.topic_hash import group_hash, topic_hash, xxh3_64
from ottla.wire.primitives import uuid_from_base64

# Results of hash4j (the library that Kafka uses) for bytes i * 7 + 3. The lengths cover every branch of the algorithm.
KNOWN = {
    0: 3244421341483603138,
    1: 1433843135270481901,
    3: -6266602912829716452,
    4: 7895465118229274323,
    8: 6941064856527638883,
    9: -72226354546400344,
    16: -5131753158909839995,
    17: 8163341949877205007,
    64: 2917965298538373825,
    128: 7440608504995537343,
    129: -4150982730466284604,
    180: -5421102013920038306,
    240: 7229805477010515663,
    241: -8364630114420064745,
    500: -5135160933809773974,
    1024: -7241394453710343503,
    1025: -9192937061388044938,
    3000: -3994278647677818051,
}


class Topic:
    def __init__(self, name: str, topic_id: str, partition_count: int, *racks: str) -> None:
        self.name, self.topic_id, self.partition_count = name, uuid_from_base64(topic_id), partition_count
        self._racks = racks

    def racks(self, partition: int) -> tuple[str, ...]:
        return self._racks


FOO = ("foo", "UBcJxXowSBCtupgq-ldBZw", 3)
BAR = ("bar", "ivnGU7qdRBakeEDapfpRTQ", 2)


@pytest.mark.parametrize(("size", "expected"), KNOWN.items())
def test_xxh3_equals_hash4j(size: int, expected: int) -> None:
    assert xxh3_64(bytes(index * 7 + 3 & 0xFF for index in range(size))) == expected


def test_group_hashes_equal_those_that_kafka_stored() -> None:
    """From golden/consumer-group.log: a group of two topics, then of one."""
    assert group_hash([Topic(*FOO), Topic(*BAR)], {}) == 1111898311595207997
    assert group_hash([Topic(*BAR), Topic(*FOO)], {}) == 1111898311595207997
    assert group_hash([Topic(*FOO)], {}) == -4522030746877840079
    assert group_hash([], {}) == 0


@pytest.mark.parametrize(
    "other",
    [("foo", FOO[1], 4), ("foo", BAR[1], 3), ("fop", FOO[1], 3), (*FOO, "rack")],
    ids=["partitions", "id", "name", "rack"],
)
def test_each_part_of_a_topic_changes_the_hash(other: Any) -> None:
    assert topic_hash(Topic(*other)) != topic_hash(Topic(*FOO))


def test_the_order_of_racks_does_not_change_the_hash() -> None:
    assert topic_hash(Topic(*FOO, "b", "a")) == topic_hash(Topic(*FOO, "a", "b"))


def test_hashes_are_cached() -> None:
    cache: dict[str, int] = {}
    group_hash([Topic(*FOO)], cache)
    assert cache == {"foo": topic_hash(Topic(*FOO))}
