"""The orders of Java's and Scala's hash maps, as recorded from Java and Scala."""

from ottla.metadata.java_hash_order import (
    entries_hash,
    java_computed_map,
    java_concurrent_map,
    java_map,
    java_names,
    long_hash,
    partition_hash,
    scala_groups,
    scala_map,
    scala_set,
    scala_tree,
    timeline_map,
    timeline_slots,
)
from ottla.metadata.topics import java_hash, remembered_hash

COLLIDING = ["Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa"]  # two hashes for all


def test_hashes() -> None:
    assert partition_hash(("t", 3)) == 31 * (31 + 3) + ord("t")
    assert long_hash(-1) == 0
    assert long_hash((1 << 40) + 7) == 7 ^ 1 << 8


def test_java() -> None:
    assert java_map([17, 1, 16, 0], int) == [16, 0, 17, 1]  # a bucket keeps the order of its keys
    assert java_map(range(13), lambda key: key * 16) == [0, 2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11]  # 32 buckets
    assert java_computed_map([17, 1, 16, 0], int) == [0, 16, 1, 17]
    # An insertion of an existing key also notices that the map is too full.
    sixteens = [key * 16 for key in range(13)]
    assert java_computed_map(sixteens, int) == sixteens[::-1]
    assert java_computed_map([*sixteens, 0], int) == [*sixteens[::2][::-1], *sixteens[1::2][::-1]]
    assert java_names(["b", "a"]) == ["a", "b"]
    assert java_names(COLLIDING) == ["Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa"]


def test_a_concurrent_map_doubles_sooner() -> None:
    sixteens = [key * 16 for key in range(12)]
    assert java_map(sixteens, int) == sixteens
    assert java_concurrent_map(sixteens, int) == [*sixteens[::2], *sixteens[1::2]]
    # Eight more at once make it reserve room for 13, in a map of 16.
    assert java_concurrent_map(sixteens[:9], int, 8) == [*sixteens[:9:2], *sixteens[1:9:2]]
    assert java_concurrent_map(sixteens[:9], int) == sixteens[:9]


def test_scala() -> None:
    sixteens = [key * 16 for key in range(11)]
    assert scala_map(sixteens[::-1], int) == sixteens  # a bucket is sorted
    assert scala_map([-16, 16, 0], int) == [0, 16, -16]
    assert scala_set(["d", "c", "b", "a"], java_hash) == ["d", "c", "b", "a"]
    assert scala_set(["e", "d", "c", "b", "a"], java_hash) == ["e", "a", "b", "c", "d"]
    assert scala_tree(COLLIDING, java_hash) == COLLIDING
    assert scala_map(COLLIDING, java_hash) == COLLIDING


def test_groups() -> None:
    one = {"t": {5: "five"}}
    assert scala_groups(one) == [("t", ["five"])]
    assert scala_groups(one, immutable=True) == [("t", ["five"])]
    few = {"b": {1: "b1", 0: "b0"}, "a": {0: "a0"}}
    assert [(name, sorted(parts)) for name, parts in scala_groups(few)] == [("a", ["a0"]), ("b", ["b0", "b1"])]
    assert [name for name, _ in scala_groups(few, immutable=True)] == ["a", "b"]


def test_a_timeline_map() -> None:
    # In two slots, four, eight; the last insertion is first in its slot.
    assert timeline_map([0, 1], int) == [0, 1]
    assert timeline_map([0, 1, 2, 4, 3], int) == [2, 0, 4, 1, 3]
    assert timeline_map([0, 1, 2, 4, 3], int, slots=8) == [0, 2, 4, 1, 3]
    assert timeline_map([-1, 1, 0], int) == [0, -1, 1]
    assert [timeline_slots(size) for size in (0, 1, 2)] == [2, 2, 4]
    assert [timeline_slots(size, 8) for size in (9, 10)] == [8, 16]


def test_hashes_of_maps() -> None:
    assert entries_hash([]) == 31
    assert entries_hash([("a", None), ("b", "c")]) == 31 + 97 + (98 ^ 99)


def test_hashes_of_names_that_no_topic_has_are_not_remembered() -> None:
    """Clients choose names of up to 32 KB, so the cache is also bounded by its size."""
    remembered_hash.cache_clear()
    for name in ("x" * 250, "x" * 32_767, "é", "\U0001f600" * 100):
        assert java_hash(name) == java_hash(name)
    assert remembered_hash.cache_info().currsize == 0
    assert java_hash("x" * 249) == java_hash("x" * 249)
    assert remembered_hash.cache_info()[:2] == (1, 1)
