"""Indexes against a sorted list, across page boundaries, and in the state that Kafka or a crash leaves."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.files import Disk, MemoryDisk
from ottla.log.index import PAGE_ENTRIES, CorruptIndex, OffsetIndex, TimeIndex, TransactionIndex

COUNTS = [0, 1, 2, PAGE_ENTRIES - 1, PAGE_ENTRIES, PAGE_ENTRIES + 1, 2 * PAGE_ENTRIES + 7]


def filled(disk: Disk, count: int, base: int = 1000) -> OffsetIndex:
    index = OffsetIndex(disk.open("i.index"), base)
    for n in range(count):
        index.append(base + 3 * n + 2, 100 * n)
    return index


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_a_lookup_equals_that_in_a_sorted_list(disk: Disk, count: int, reopened: bool) -> None:
    index = filled(disk, count)
    if reopened:
        index.close()
        index = OffsetIndex(disk.open("i.index"), 1000)
    offsets = [1000 + 3 * n + 2 for n in range(count)]
    for offset in range(990, 1000 + 3 * count + 10):
        slot = bisect_right(offsets, offset) - 1
        assert index.entry_before(offset)[1] == (100 * slot if slot >= 0 else 0)
    assert index.last_offset == (offsets[-1] if offsets else 1000)
    assert index.count == count


@pytest.mark.parametrize("count", COUNTS)
def test_truncate_to(disk: Disk, count: int) -> None:
    for cut in {1000, 1001, 1002, 1003, 1000 + 3 * count // 2, 1000 + 3 * count, 1000 + 3 * count + 3}:
        disk.remove("i.index")
        index = filled(disk, count)
        index.truncate_to(cut)
        left = [offset for offset in (1000 + 3 * n + 2 for n in range(count)) if offset < cut]
        assert index.count == len(left)
        index.append(5000, 77)
        index.close()
        again = OffsetIndex(disk.open("i.index"), 1000)
        assert again.last_offset == 5000
        assert again.entry_before(4999)[1] == (100 * (len(left) - 1) if left else 0)


def test_zeros_that_kafka_preallocated_are_cut(disk: Disk) -> None:
    filled(disk, 10).close()
    disk.open("i.index").append([bytes(8 * 1000)])
    index = OffsetIndex(disk.open("i.index"), 1000)
    index.load()
    assert index.count == 10
    assert disk.open("i.index").size == 80
    disk.open("all-zero").append([bytes(8 * 1000)])
    empty = OffsetIndex(disk.open("all-zero"), 0)
    assert empty.entry_before(99)[1] == 0
    assert empty.count == 0


def test_an_index_that_contradicts_itself_is_refused(disk: Disk) -> None:
    disk.open("short").append([b"\1" * 7])
    with pytest.raises(CorruptIndex, match="not a multiple of 8"):
        OffsetIndex(disk.open("short"), 0).load()
    disk.open("back").append([OffsetIndex.ENTRY.pack(9, 0) + OffsetIndex.ENTRY.pack(4, 100)])
    with pytest.raises(CorruptIndex, match="keys do not grow"):
        OffsetIndex(disk.open("back"), 0).load()


def test_memory_does_not_grow_with_the_index(disk: Disk) -> None:
    index = filled(disk, 40 * PAGE_ENTRIES)
    assert len(index._firsts) == 40
    assert len(index._pending) < PAGE_ENTRIES * 8


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=1500), st.integers(0, 60))
def test_time_index_against_a_list(steps: list[tuple[int, int]], probe: int) -> None:
    index = TimeIndex(MemoryDisk().open("x"), 0)
    entries: list[tuple[int, int]] = []
    timestamp = offset = 0
    for grow, step in steps:
        timestamp += grow
        offset += step
        index.maybe_append(timestamp, offset)
        if timestamp > (entries[-1][0] if entries else -1):
            entries.append((timestamp, offset))
    assert [index.entry(n) for n in range(index.count)] == entries
    assert all(a < b for (a, _), (b, _) in pairwise(entries))
    for target in (0, probe, timestamp // 2, timestamp, timestamp + 1):
        slot = bisect_right([t for t, _ in entries], target) - 1
        assert index.offset_before(target) == (entries[slot][1] if slot >= 0 else 0)
    index.truncate_to(offset // 2)
    assert [index.entry(n) for n in range(index.count)] == [e for e in entries if e[1] < offset // 2]


def test_transaction_index(disk: Disk) -> None:
    index = TransactionIndex(disk, "i.txnindex", exists=False)
    found: list[object] = []
    assert index.collect(0, 100, found) is False
    assert not disk.exists("i.txnindex")
    index.append(7, 0, 9, 10)
    index.append(8, 5, 19, 20)
    index.append(9, 25, 29, 30)
    for opened in (index, TransactionIndex(disk, "i.txnindex", exists=True)):

        def collect(start: int, end: int, opened: TransactionIndex = opened) -> tuple[list[int], bool]:
            into: list[object] = []
            complete = opened.collect(start, end, into)
            return [entry.producer_id for entry in into], complete

        assert collect(0, 100) == ([7, 8, 9], False)
        assert collect(10, 100) == ([8, 9], False)
        assert collect(0, 5) == ([7], True)
        assert collect(0, 20) == ([7, 8], True)
        assert collect(30, 100) == ([], False)
    assert disk.scan("")["i.txnindex"] == 3 * 34
    index.truncate_to(19)
    assert disk.scan("")["i.txnindex"] == 34
    index.append(10, 12, 33, 34)
    index.check(0, 2 * 34)
    for base_offset, size in ((20, 2 * 34), (0, 2 * 34 - 1)):
        with pytest.raises(CorruptIndex):
            index.check(base_offset, size)
    index.reset()
    assert not disk.exists("i.txnindex")
