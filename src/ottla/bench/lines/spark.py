"""Archives a topic to Parquet with Spark: with the official connector on both brokers, and with Ottla's own source."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

from ottla.bench.lines.topics import topic
from ottla.bench.model import Figure, NotMeasurable, Size, at_least, line, value_at_least
from ottla.bench.spark_job import BATCH, STREAM, TRIGGER
from ottla.bench.targets import Spawned, Target
from ottla.client import Client
from ottla.client.producer import Producer
from ottla.records.batch import Record, build_batch

PARTITIONS = 8
VALUE_BYTES = 200
BATCH_RECORDS = 75
"""The number of records that fit into the 16 KB batches of a Java producer."""
DISTINCT_BATCHES = 400
"""Enough different values that Parquet's dictionary encoding does not help."""


async def fill(bootstrap: str, name: str, records: int) -> None:
    """Produce records of random bytes in batches like a Java producer's, spread evenly."""
    chance = random.Random(7)
    now_ms = time.time_ns() // 1_000_000
    batches = [
        build_batch([Record(i, now_ms + i // 10, None, chance.randbytes(VALUE_BYTES)) for i in range(BATCH_RECORDS)])
        for _ in range(DISTINCT_BATCHES)
    ]
    rest = build_batch([Record(0, now_ms, None, chance.randbytes(VALUE_BYTES))])
    async with Client(bootstrap) as client:
        producer = Producer(client, idempotent=False)

        async def fill_partition(index: int) -> None:
            mine = records // PARTITIONS + (index < records % PARTITIONS)
            for number in range(mine // BATCH_RECORDS):
                await producer.append((name, index), bytearray(batches[(index + number) % DISTINCT_BATCHES]))
            for _ in range(mine % BATCH_RECORDS):
                await producer.append((name, index), bytearray(rest))

        await asyncio.gather(*(fill_partition(index) for index in range(PARTITIONS)))


class Measured(NamedTuple):
    records: int
    seconds: dict[str, list[float]]
    """The turns of each variant."""

    def rate(self, way: str) -> float:
        """The median records/s."""
        return self.records / median(self.seconds[way])

    def ratio(self, way: str, other: str) -> float:
        """How many times as fast as the other: the median over the turns, each with one state of the machine."""
        return median(theirs / ours for ours, theirs in zip(self.seconds[way], self.seconds[other], strict=True))


def measure(target: Target, size: Size, ways: tuple[str, ...]) -> Measured:
    """Measure the seconds of each variant."""
    if find_spec("pyspark") is None:
        raise NotMeasurable("needs PySpark: pip install 'ottla[spark]'")
    if not isinstance(target, Spawned) and any(way.startswith("files") for way in ways):
        raise NotMeasurable("needs the data folder of a broker that the benchmark started")
    records = size.pick(1_000_000, 20_000)
    bootstrap = f"{target.address[0]}:{target.address[1]}"
    with topic(target, PARTITIONS) as name:
        asyncio.run(fill(bootstrap, name, records))
        job: dict[str, Any] = {
            "bootstrap": bootstrap,
            "topic": name,
            "folder": str(target.folder / "logs") if isinstance(target, Spawned) else "",
            "records": records,
            "repeats": size.pick(4, 1),
            "ways": ways,
        }
        command = [sys.executable, "-m", "ottla.bench.spark_job", json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Spark failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return Measured(records, json.loads(done.stdout.strip().splitlines()[-1]))


@line(
    "spark-archive-official",
    "Spark's own connector archives 1,000,000 records of 200 B from 8 partitions to Parquet",
    Figure("batch", "records/s", True, (at_least(1),), "batch"),
    Figure("stream", "records/s", True, (), "stream"),
    repeats=1,
)
def official(target: Target, size: Size) -> dict[str, float]:
    found = measure(target, size, ("official", "official-stream"))
    return {"batch": found.rate("official"), "stream": found.rate("official-stream")}


@line(
    "spark-archive-own",
    "The same with format('ottla'), beside the official connector in one Spark",
    Figure("files_ratio", "× official", True, (value_at_least(2.5),), "files, batch"),
    Figure("files_stream_ratio", "× official", True, (value_at_least(2),), "files, AvailableNow"),
    Figure("files_trigger_ratio", "× official", True, (value_at_least(1.2),), "files, stream that continues"),
    Figure("wire_ratio", "× official", True, (value_at_least(1),), "wire, batch"),
    Figure("wire_stream_ratio", "× official", True, (value_at_least(1),), "wire, AvailableNow"),
    Figure("files", "records/s", True, (), "files, batch"),
    Figure("files_stream", "records/s", True, (), "files, AvailableNow"),
    Figure("files_trigger", "records/s", True, (), "files, stream that continues"),
    Figure("wire", "records/s", True, (), "wire, batch"),
    Figure("wire_stream", "records/s", True, (), "wire, AvailableNow"),
    repeats=1,
    reference=False,
)
def own(target: Target, size: Size) -> dict[str, float]:
    found = measure(target, size, (*BATCH, *STREAM, *TRIGGER))
    figures = {}
    for way in ("files", "files-stream", "files-trigger", "wire", "wire-stream"):
        _, dash, kind = way.partition("-")
        key = way.replace("-", "_")
        figures[f"{key}_ratio"] = found.ratio(way, f"official{dash}{kind}")
        figures[key] = found.rate(way)
    return figures
