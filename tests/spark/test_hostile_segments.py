"""Segments that were made to harm their readers: a clear error, in bounded memory, and without Spark."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from struct import pack_into
from typing import Any

import pytest

from ottla.errors import InvalidRecord, KafkaError, MessageTooLarge
from ottla.records import compression
from ottla.records.batch import HEADER_SIZE, LENGTH_OFFSET, Batch, Record, build_batch
from ottla.spark import decode as module
from ottla.spark.decode import Block, decode, decode_parts, headers_type
from ottla.spark.segments import PartitionFolder

GZIP, ZSTD = compression.GZIP, compression.ZSTD
MB = 1 << 20
CODECS = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]


def bomb(megabytes: int, codec: int, base: int = 0, record_bytes: int = MB) -> Batch:
    records = [Record(base + n, 1000 + n, None, bytes(record_bytes)) for n in range(megabytes * MB // record_bytes)]
    return Batch(bytes(build_batch(records, base, codec)))


def peak_mb(blocks: Iterator[Block]) -> tuple[int, float]:
    """How many records there are, and how many megabytes were in use at once, beside what was there before."""
    tracemalloc.start()
    try:
        count = sum(len(block) for block in blocks)
        return count, tracemalloc.get_traced_memory()[1] / MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_decompresses_to_much_is_decoded_in_parts(codec: int) -> None:
    batch = bomb(96, codec)
    count, used_mb = peak_mb(decode_parts([batch]))
    assert count == 96
    assert used_mb < 60


def test_many_small_bombs_are_not_in_memory_together() -> None:
    batches = [bomb(6, ZSTD, base=6 * n) for n in range(24)]
    assert sum(batch.size for batch in batches) < MB
    count, used_mb = peak_mb(decode_parts(batches))
    assert count == 6 * 24
    assert used_mb < 110


def test_parts_hold_the_same_records_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = headers_type()
    made = [
        Batch(
            bytes(
                build_batch(
                    [Record(base + n, n, b"k%d" % n, b"v" * n, [("h", b"%d" % n)]) for n in range(200)], base, codec
                )
            )
        )
        for base, codec in ((0, GZIP), (200, 0), (400, ZSTD), (600, ZSTD))
    ]
    expected = _rows([decode(made, headers=headers)])
    monkeypatch.setattr(module, "PART_BYTES", 10_000)
    assert _rows(decode_parts(made, headers=headers)) == expected
    monkeypatch.setattr(module, "UNPACKED_BYTES_MAX", 1000)
    assert _rows(decode_parts(made, headers=headers)) == expected


def _rows(blocks: Any) -> list[Any]:
    return [
        row
        for block in blocks
        for row in zip(
            block.offsets.tolist(),
            block.timestamps_ms.tolist(),
            block.keys.to_pylist(),
            block.values.to_pylist(),
            block.headers.to_pylist(),
            strict=True,
        )
    ]


@pytest.mark.parametrize("lanes", [1, 64])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_record_count_that_cannot_be_is_refused_before_room_is_made_for_it(lanes: int, codec: int) -> None:
    made = build_batch([Record(0, 0, b"k", b"v")], 0, codec)
    pack_into(">i", made, HEADER_SIZE - 4, 2**31 - 1)
    with pytest.raises(InvalidRecord):
        list(decode_parts([Batch(bytes(made)) for _ in range(lanes)]))


def test_more_headers_than_anybody_has_are_refused() -> None:
    record = Record(0, 0, None, None, [("", None)] * (module.HEADERS_MAX + 1))
    batch = Batch(bytes(build_batch([record], 0, GZIP)))
    with pytest.raises(InvalidRecord, match="headers"):
        list(decode_parts([batch], headers=headers_type()))
    assert sum(len(block) for block in decode_parts([batch])) == 1, "they do not matter where nobody wants them"


def test_a_record_that_is_larger_than_any_batch_is_refused() -> None:
    batch = bomb(64, ZSTD, record_bytes=64 * MB)
    with pytest.raises(MessageTooLarge):
        list(decode_parts([batch]))


@pytest.mark.parametrize("codec", CODECS)
def test_every_damaged_byte_gives_records_or_an_error_of_kafka(codec: int) -> None:
    made = build_batch([Record(n, n, b"key", b"value" * 9, [("h", b"v")]) for n in range(5)], 0, codec)
    for position in range(HEADER_SIZE, len(made)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(made)
            damaged[position] ^= flip
            try:
                list(decode_parts([Batch(bytes(damaged))], headers=headers_type()))
            except KafkaError:
                continue


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    path.mkdir()
    return path


def test_a_length_that_is_longer_than_the_file_ends_the_log_without_room_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_batch([Record(0, 0, None, bytes(5 * MB))], 0)
    second = build_batch([Record(1, 0, None, bytes(5 * MB))], 1)
    pack_into(">i", second, LENGTH_OFFSET, 2**31 - 1)
    (folder / f"{0:020d}.log").write_bytes(first + second)
    sizes: list[int] = []
    real = os.pread

    def pread(handle: int, size: int, position: int) -> bytes:
        sizes.append(size)
        return real(handle, size, position)

    monkeypatch.setattr(os, "pread", pread)
    lost: list[tuple[int, int]] = []
    found = [
        batch for batches in PartitionFolder(folder).read(0, 2, lambda *gap: lost.append(gap)) for batch in batches
    ]
    assert [batch.base_offset for batch in found] == [0]
    assert lost == [(1, 2)]
    assert max(sizes) < 8 * MB


def test_a_time_is_found_in_a_bomb_without_decompressing_it_as_a_whole(folder: Path) -> None:
    (folder / f"{0:020d}.log").write_bytes(bomb(96, ZSTD).buffer)
    tracemalloc.start()
    try:
        assert PartitionFolder(folder).offset_at_time(1090, 0, 96) == 90
        assert tracemalloc.get_traced_memory()[1] < 20 * MB
    finally:
        tracemalloc.stop()
