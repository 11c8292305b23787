"""The iteration order of the hash maps of Java and Scala.

Kafka collects many of its responses in such maps, so the hashes of names decide the order. It is the same on every
broker, and clients often show it unchanged, for example in a list of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ottla.metadata.topics import java_hash

T = TypeVar("T")

_FIRST_BUCKETS = 16
FIRST_SLOTS = 2
_UNSIGNED, _UNSIGNED_LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_GOLDEN_RATIO = 0x9E3779B97F4A7C15
_SCALA_SET_MAX = 4
"""Scala has special classes for sets and maps up to this size, which keep the insertion order."""


def partition_hash(partition: tuple[str, int]) -> int:
    """The hash of Kafka's TopicPartition, unsigned."""
    name, index = partition
    return (31 * (31 + index) + java_hash(name)) & _UNSIGNED


def long_hash(value: int) -> int:
    """The hash of Java's Long."""
    return (value ^ value >> 32) & _UNSIGNED


def entries_hash(entries: Iterable[tuple[str, str | None]]) -> int:
    """The hash of a Java object whose only field is a map of strings."""
    return 31 + sum(java_hash(key) ^ (0 if value is None else java_hash(value)) for key, value in entries) & _UNSIGNED


def _spread(hashed: int) -> int:
    hashed &= _UNSIGNED
    return hashed ^ hashed >> 16


def java_map(keys: Iterable[T], hash_of: Callable[[T], int], buckets: int = _FIRST_BUCKETS) -> list[T]:
    """Unique keys in the order of a HashMap. The map doubles when it is more than three quarters full; a bucket keeps
    the insertion order."""
    each = list(keys)
    while len(each) > buckets * 3 // 4:
        buckets *= 2
    return sorted(each, key=lambda key: _spread(hash_of(key)) & (buckets - 1))


class JavaOrder(Generic[T]):
    """The keys of a HashMap or HashSet that changes while in use; `buckets` is its minimum initial size."""

    __slots__ = ("_buckets", "_hash_of", "_size")

    def __init__(self, hash_of: Callable[[T], int], buckets: int = _FIRST_BUCKETS) -> None:
        self._buckets: list[list[T]] = [[] for _ in range(1 << (max(buckets, 1) - 1).bit_length())]
        self._hash_of = hash_of
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return (key for bucket in self._buckets for key in bucket)

    def __contains__(self, key: T) -> bool:
        return key in self._bucket(key)

    def _bucket(self, key: T) -> list[T]:
        return self._buckets[_spread(self._hash_of(key)) & (len(self._buckets) - 1)]

    def add(self, key: T) -> None:
        bucket = self._bucket(key)
        if key not in bucket:
            bucket.append(key)
            self._size += 1
            if self._size > len(self._buckets) * 3 // 4:
                self._grow()

    def compute(self, key: T) -> None:
        """Like `add`, with computeIfAbsent: see `java_computed_map`."""
        if self._size > len(self._buckets) * 3 // 4:
            self._grow()
        bucket = self._bucket(key)
        if key not in bucket:
            bucket.insert(0, key)
            self._size += 1

    def remove(self, key: T) -> None:
        self._bucket(key).remove(key)
        self._size -= 1

    def _grow(self) -> None:
        keys = list(self)
        self._buckets = [[] for _ in range(2 * len(self._buckets))]
        for key in keys:
            self._bucket(key).append(key)


def uuid_hash(value: bytes) -> int:
    """The hash of Kafka's Uuid, unsigned."""
    return long_hash(int.from_bytes(value[:8], "big") ^ int.from_bytes(value[8:], "big"))


def java_computed_map(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Like `java_map`, for a HashMap filled by computeIfAbsent, with one call per key. This checks the size before it
    adds a key, even if the key exists, and puts new keys first in their bucket."""
    calls = list(keys)
    before = len(set(calls[:-1]))
    buckets = _FIRST_BUCKETS
    while before > buckets * 3 // 4:
        buckets *= 2
    newest_first = reversed(list(dict.fromkeys(calls)))
    return sorted(newest_first, key=lambda key: _spread(hash_of(key)) & (buckets - 1))


def java_concurrent_map(keys: Iterable[T], hash_of: Callable[[T], int], added_at_once: int = 0) -> list[T]:
    """The order of a ConcurrentHashMap, which doubles when it is three quarters full. Before the last keys are added at
    once, it makes room for one and a half times their number."""
    each = list(keys)
    before = len(each) - added_at_once
    buckets = _FIRST_BUCKETS
    while before >= buckets * 3 // 4:
        buckets *= 2
    room = 1 << (added_at_once + (added_at_once >> 1)).bit_length() if added_at_once else 0
    while room > buckets * 3 // 4 or len(each) >= buckets * 3 // 4:
        buckets *= 2
    return sorted(each, key=lambda key: _spread(hash_of(key)) & (buckets - 1))


def timeline_slots(size: int, slots: int = FIRST_SLOTS) -> int:
    """The slots of a TimelineHashMap with `size` entries after one put, new or not: it grows above four thirds."""
    return slots * 2 if (size + 1) * 3 > slots * 4 else slots


def timeline_map(keys: Iterable[T], hash_of: Callable[[T], int], slots: int | None = None) -> list[T]:
    """The order of Kafka's TimelineHashMap. A slot is the first bits of the hash times the golden ratio; the map starts
    with two slots. In a slot, the newest key comes first."""
    each = list(keys)[::-1]
    if slots is None:
        slots = FIRST_SLOTS
        while len(each) * 3 > slots * 4:
            slots *= 2
    shift = 65 - slots.bit_length()

    def place(key: T) -> int:
        hashed = hash_of(key) & _UNSIGNED
        signed = hashed - (1 << 32) if hashed >> 31 else hashed
        return (signed * _GOLDEN_RATIO & _UNSIGNED_LONG) >> shift

    return sorted(each, key=place)


def java_copy(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """The order of a HashSet created from a collection: it has room for all keys from the start."""
    each = list(keys)
    return java_map(each, hash_of, 1 << max(int(len(each) / 0.75), _FIRST_BUCKETS - 1).bit_length())


def java_names(names: Iterable[str]) -> list[str]:
    return java_map(names, java_hash)


def by_hash(texts: Mapping[str, T], buckets: int = _FIRST_BUCKETS) -> dict[str, T]:
    """A map by names, in the order of a Java map."""
    return {name: texts[name] for name in java_map(texts, java_hash, buckets)}


def persistent_map(names: Iterable[str]) -> list[str]:
    """The order of Kafka's map of topics: sorted by hash."""
    return sorted(names, key=java_hash)


def scala_map(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """The order of Scala's mutable HashMap or HashSet: it doubles at three quarters; buckets are sorted by hash."""
    each = list(keys)
    buckets = _FIRST_BUCKETS
    while len(each) >= buckets * 3 // 4:
        buckets *= 2

    def place(key: T) -> tuple[int, int]:
        spread = _spread(hash_of(key))
        return spread & (buckets - 1), spread - (1 << 32) if spread >> 31 else spread

    return sorted(each, key=place)


def scala_tree(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """The order of Scala's immutable HashMap: a tree that uses five bits of the hash per level. In each node, single
    keys come first, then the branches."""
    return _walk([(_improved(hash_of(key)), key) for key in keys])


def scala_set(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """The order of Scala's immutable Set or Map."""
    each = list(keys)
    return each if len(each) <= _SCALA_SET_MAX else scala_tree(each, hash_of)


def _walk(hashed: list[tuple[int, T]]) -> list[T]:
    if len(hashed) < 2:
        return [key for _, key in hashed]
    by_branch: dict[int, list[tuple[int, T]]] = {}
    for bits, key in hashed:
        by_branch.setdefault(bits & 31, []).append((bits >> 5, key))
    if len(by_branch) == 1 and len({bits for bits, _ in hashed}) == 1:
        return [key for _, key in hashed]  # all hashes are equal
    branches = [by_branch[branch] for branch in sorted(by_branch)]
    alone = [branch[0][1] for branch in branches if len(branch) == 1]
    return alone + [key for branch in branches if len(branch) > 1 for key in _walk(branch)]


def _improved(hashed: int) -> int:
    value = (hashed + ~(hashed << 9)) & _UNSIGNED
    value ^= value >> 14
    value = (value + (value << 4)) & _UNSIGNED
    return value ^ value >> 10


def scala_groups(by_topic: dict[str, dict[int, Any]], *, immutable: bool = False) -> list[tuple[str, list[Any]]]:
    """Values of partitions that were collected in a Scala map and then grouped by topic; `immutable` if they passed
    through an immutable map."""
    if len(by_topic) == 1 and all(len(parts) == 1 for parts in by_topic.values()):
        return [(name, list(parts.values())) for name, parts in by_topic.items()]
    order: Callable[..., list[tuple[str, int]]] = scala_tree if immutable else scala_map
    if immutable and sum(map(len, by_topic.values())) <= _SCALA_SET_MAX:
        filled = scala_map(((name, index) for name, parts in by_topic.items() for index in parts), partition_hash)
        by_topic = {name: {i: by_topic[name][i] for other, i in filled if other == name} for name in by_topic}
        order = scala_set
    return [
        (name, [by_topic[name][index] for _, index in order(((name, i) for i in by_topic[name]), partition_hash)])
        for name in scala_tree(by_topic, java_hash)
    ]
