"""The cost of records: run it with `python tests/records/bench_records.py`. Best of several runs, in processor time."""

import os
import time
import timeit
from collections.abc import Callable

from ottla.records import compression
from ottla.records.batch import Batch, Record, batches, build_batch
from ottla.records.record import decode_records
from ottla.records.validation import Depth, ValidationOptions, validate

NOW = 1_700_000_000_000


def microseconds(call: Callable[[], object], number: int = 200) -> float:
    return min(timeit.repeat(call, number=number, repeat=7, timer=time.process_time)) / number * 1e6


def batch_of(count: int, size: int, spread: int = 0, codec: int = 0) -> bytearray:
    sizes = [size + (n * 7919 % spread if spread else 0) for n in range(count)]
    return build_batch([Record(n, NOW + n, None, os.urandom(8) * (s // 8)) for n, s in enumerate(sizes)], codec=codec)


def headers() -> None:
    many = b"".join(bytes(batch_of(1, 48)) for _ in range(1000))
    viewed = microseconds(lambda: sum(1 for _ in batches(many)), 20)
    print(f"headers: {viewed:.0f} ns a batch")
    batch = Batch(batch_of(64, 1000))
    spent = microseconds(batch.crc_ok)
    print(f"CRC-32C of a batch of {batch.size} bytes: {spent:.1f} µs, {batch.size / spent / 1000:.1f} GB/s")


def validation() -> None:
    print(
        f"{'validate, µs':28}{'bytes':>8}" + "".join(f"{depth.name:>10}" for depth in Depth) + "  decode, ns a record"
    )
    shapes = {
        "64 equal of 1000 B": (64, 1000, 0),
        "64 varied of 1000 B": (64, 900, 200),
        "600 equal of 100 B": (600, 96, 0),
        "600 varied of 100 B": (600, 80, 40),
        "1 of 100 B": (1, 96, 0),
        "1 of 64000 B": (1, 64000, 0),
    }
    for name, (count, size, spread) in shapes.items():
        data = batch_of(count, size, spread)
        row = f"{name:28}{len(data):8}"
        for depth in Depth:
            options = ValidationOptions(depth=depth)
            row += f"{microseconds(lambda data=data, options=options: validate(data, options, NOW)):10.1f}"
        payload = bytes(Batch(data).payload())
        decoding = microseconds(lambda payload=payload, n=count: list(decode_records(payload, n, 0, 0, None)), 20)
        print(row + f"{decoding / count * 1000:10.0f}")


def codecs() -> None:
    payload = Batch(batch_of(64, 1000)).payload()
    for name in ("gzip", "snappy", "lz4", "zstd"):
        codec = compression.BY_NAME[name]
        packed = compression.compress(codec, payload)
        there = microseconds(lambda codec=codec: compression.compress(codec, payload), 20)
        back = microseconds(lambda codec=codec, packed=packed: compression.decompress(codec, packed), 20)
        print(f"{name:8} {len(packed):6} B: compress {there:.0f} µs, decompress {back:.0f} µs")


if __name__ == "__main__":
    headers()
    validation()
    codecs()
