"""Replicas are placed as Kafka's StripedReplicaPlacer places them."""

import itertools

import pytest

from ottla.metadata.replica_placement import place_replicas


# The results of StripedReplicaPlacer of Apache Kafka 4.3.1 for a random source whose n-th number below b is
# n * 7919 % 1009 % b. Brokers are written id:rack, fenced ones with :f; each group of digits is a partition.
@pytest.mark.parametrize(
    ("brokers", "factor", "placed"),
    [
        ("7:a", 1, "7 7 7 7 7 7 7 7 7 7"),
        ("1:a 2:b 3:c", 1, "2 3 1 1 2 3 2 1 2 2"),
        ("1: 2: 3: 4:", 1, "1 2 3 4 1 3 2 4 4 2"),
        ("1:a 2:a 3:b 4:b 5:b 6:c", 1, "4 6 2 5 6 1 2 4 6 1"),
        ("1:a 2:a 3:b 4:b 5:b 6:c", 2, "46 62 15 36 62 14 25 46 61 23"),
        ("1: 2:a 3:b:f", 3, "231 132 132 123 132 231 213 132 231 213"),
        ("1:a 2:a:f 3:b:f", 2, "13 13 13 13 13 13 13 13 13 13"),
        ("1:a 2:b 3:c", 3, "231 312 123 123 231 312 213 132 321 213"),
        ("1: 2: 3:", 2, "12 23 31 31 12 23 23 31 12 21"),
        ("1:a 2:a 3:b 4:b 5:c", 3, "351 524 135 452 513 524 135 452 513 245"),
        ("1:a 2:b 3:c:f", 3, "231 132 132 123 132 231 213 132 231 213"),
        ("1:a 2:a:f 3:b 4:b:f 5:b", 4, "3152 1523 3152 5132 1325 5132 1523 3152 1523 5132"),
    ],
)
def test_placement_is_that_of_kafka(brokers: str, factor: int, placed: str) -> None:
    racks: dict[int, str | None] = {}
    live: list[int] = []
    fenced: list[int] = []
    for each in brokers.split():
        number, rack, *more = each.split(":")
        racks[int(number)] = rack or None
        (fenced if more else live).append(int(number))
    numbers = itertools.count()
    expected = [[int(digit) for digit in group] for group in placed.split()]
    found = place_replicas(
        live, racks, len(expected), factor, lambda below: next(numbers) * 7919 % 1009 % below, fenced
    )
    assert found == expected


def test_with_one_broker_per_rack_replicas_are_in_consecutive_racks() -> None:
    for first, second, third in place_replicas([1, 2, 3], {1: "a", 2: "b", 3: "c"}, 3, 3, lambda below: 0):
        assert (second, third) == (first % 3 + 1, (first + 1) % 3 + 1)
