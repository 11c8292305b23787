"""Pipelines on Spark: to Delta and Iceberg, in small batches, with MERGE, on a large topic, and from a cold start."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from statistics import median
from typing import Any

from ottla.bench.lines.spark import PARTITIONS, VALUE_BYTES, fill
from ottla.bench.lines.topics import topic
from ottla.bench.model import Figure, NotMeasurable, Size, line, value_at_least, value_at_most
from ottla.bench.pipelines_job import FORMATS, MERGES
from ottla.bench.targets import Spawned, Target
from ottla.client import Client
from ottla.client.producer import Producer
from ottla.records.batch import Record, build_batch

Found = dict[str, list[list[float]]]
"""For each variant, one entry per turn: seconds, CPU seconds, peak memory in MB."""
_SECONDS, _CPU, _MEMORY = range(3)
_KEYS_A_BATCH = 100


async def change_keys(bootstrap: str, name: str, keys: int, count: int, seed: int) -> None:
    """Produce new values for some of the keys, each to the partition of its key."""
    chance = random.Random(seed)
    chosen = range(keys) if count >= keys else chance.sample(range(keys), count)
    now_ms = time.time_ns() // 1_000_000
    waiting: dict[int, list[Record]] = {}
    async with Client(bootstrap) as client:
        producer = Producer(client, idempotent=False)

        async def send(partition: int) -> None:
            records = waiting.pop(partition, [])
            if records:
                await producer.append((name, partition), bytearray(build_batch(records)))

        for key in chosen:
            some = waiting.setdefault(key % PARTITIONS, [])
            some.append(Record(len(some), now_ms, b"key-%09d" % key, chance.randbytes(VALUE_BYTES)))
            if len(some) == _KEYS_A_BATCH:
                await send(key % PARTITIONS)
        for partition in list(waiting):
            await send(partition)


def run_job(target: Target, what: str, records: int, *, keyed: bool = False, repeats: int = 1) -> Found:
    """Run a job in a separate Spark process and return its measurements."""
    if find_spec("pyspark") is None:
        raise NotMeasurable("needs PySpark: pip install 'ottla[spark]'")
    if not isinstance(target, Spawned):
        raise NotMeasurable("needs the data folder of a broker that the benchmark started")
    bootstrap = f"{target.address[0]}:{target.address[1]}"
    with topic(target, PARTITIONS) as name:
        if keyed:
            asyncio.run(change_keys(bootstrap, name, records, records, 0))
        else:
            asyncio.run(fill(bootstrap, name, records))
        job: dict[str, Any] = {"what": what, "bootstrap": bootstrap, "topic": name, "records": records}
        job |= {"folder": str(target.folder / "logs"), "repeats": repeats}
        command = [sys.executable, "-m", "ottla.bench.pipelines_job", json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Spark failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    found: Found = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def ratio(found: Found, way: str, other: str, what: int) -> float:
    """The median of the ratios per turn, because the state of the machine is the same within one turn."""
    return median(mine[what] / theirs[what] for mine, theirs in zip(found[way], found[other], strict=True))


@line(
    "spark-tables",
    "The archive of 1,000,000 × 200 B from files into each format, beside the official connector to plain Parquet",
    *[
        figure
        for name in FORMATS
        for figure in (
            Figure(f"{name}_speed", "× official", True, (value_at_least(1),), f"{name}, speed"),
            Figure(f"{name}_cpu", "× official", False, (value_at_most(0.8),), f"{name}, CPU"),
        )
    ],
    repeats=1,
    reference=False,
)
def tables(target: Target, size: Size) -> dict[str, float]:
    found = run_job(target, "tables", size.pick(1_000_000, 20_000), repeats=size.pick(4, 1))
    figures = {}
    for name in FORMATS:
        figures[f"{name}_speed"] = 1 / ratio(found, name, "official", _SECONDS)
        figures[f"{name}_cpu"] = ratio(found, name, "official", _CPU)
    return figures


@line(
    "spark-batches",
    "The same archive in 20 micro-batches of 50,000, with a session that has just started",
    Figure("cpu", "CPU s", False, (value_at_most(29),), "CPU"),
    Figure("seconds", "s", False, (), "time"),
    repeats=1,
    reference=False,
)
def batches(target: Target, size: Size) -> dict[str, float]:
    (took,) = run_job(target, "batches", size.pick(1_000_000, 20_000))["parquet"]
    return {"cpu": took[_CPU], "seconds": took[_SECONDS]}


@line(
    "spark-upserts",
    "1 % of 1,000,000 keys merged into a table, beside writing the whole table again with Spark",
    *[Figure(way.replace("-", "_"), "× CPU", False, (value_at_most(0.4),), way) for way in MERGES],
    Figure("rewrite_cpu", "CPU s", False, (), "all again"),
    repeats=1,
    reference=False,
)
def upserts(target: Target, size: Size) -> dict[str, float]:
    found = run_job(target, "upserts", size.pick(1_000_000, 5_000), keyed=True, repeats=size.pick(3, 1))
    figures = {way.replace("-", "_"): ratio(found, way, "rewrite", _CPU) for way in MERGES}
    return {**figures, "rewrite_cpu": median(one[_CPU] for one in found["rewrite"])}


@line(
    "spark-large",
    "10,000,000 × 200 B to Delta, beside 1,000,000: the memory of Spark and its Python processes",
    Figure("memory", "× of 1,000,000", False, (value_at_most(1.5),), "peak memory"),
    Figure("megabytes", "MB", False, (), "peak memory"),
    Figure("rate", "records/s", True, (), "records"),
    repeats=1,
    reference=False,
)
def large(target: Target, size: Size) -> dict[str, float]:
    few, many = size.pick((1_000_000, 10_000_000), (10_000, 20_000))
    (small,) = run_job(target, "large", few)["delta"]
    (big,) = run_job(target, "large", many)["delta"]
    return {"memory": big[_MEMORY] / small[_MEMORY], "megabytes": big[_MEMORY], "rate": many / big[_SECONDS]}


_BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1).count()
spark.stop()
"""


@line(
    "spark-cold",
    "A first `ottla pipeline archive` of 1,000 records, from the shell to its end, and what of it is Spark's start",
    Figure("total", "s", False, (), "whole command"),
    Figure("spark", "s", False, (), "a bare Spark, started and stopped"),
    Figure("own", "s", False, (), "ours"),
    repeats=1,
    reference=False,
)
def cold(target: Target, size: Size) -> dict[str, float]:
    if find_spec("pyspark") is None:
        raise NotMeasurable("needs PySpark: pip install 'ottla[spark]'")
    bootstrap = f"{target.address[0]}:{target.address[1]}"
    with topic(target, PARTITIONS) as name, tempfile.TemporaryDirectory(prefix="ottla-bench-cold-") as folder:
        asyncio.run(fill(bootstrap, name, 1000))
        words = ["-m", "ottla.cli.main", "pipeline", "archive", name, "--out", f"{folder}/a", "--source", "ottla"]
        words += ["--bootstrap", bootstrap, "--master", "local[2]", "--no-group"]
        total, spark = (_seconds([sys.executable, *more], folder) for more in (words, ["-c", _BARE]))
    return {"total": total, "spark": spark, "own": total - spark}


def _seconds(command: list[str], folder: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, cwd=folder, check=True)
    return time.perf_counter() - began
