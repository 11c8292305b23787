"""Writes the records of a seed file to topics that are still empty."""

from __future__ import annotations

import time
from typing import Final

from ottla.cli.lines import Line, LineError, from_json
from ottla.client import offsets
from ottla.client.admin import NewTopic, create_topics
from ottla.client.producer import Producer, partition_for
from ottla.client.routing import Client, TopicPartition
from ottla.config import ConfigError
from ottla.records.batch import Record, build_batch

_BATCH_BYTES: Final = 256 * 1024


async def write_first_records(client: Client, path: str) -> int:
    """Write the records in the order of the file. Topics are created with as many partitions as their records need.

    Topics that have records are left alone, so that a restart does not write them again. Returns how many were written.
    """
    by_topic: dict[str, list[Line]] = {}
    with open(path, "rb") as file:  # noqa: ASYNC230 - before any client is served
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                line = from_json(text)
                if line.topic is None:
                    raise LineError('"topic" is missing')
            except LineError as error:
                raise ConfigError(f"--seed-file {path}, line {number}: {error}") from None
            by_topic.setdefault(line.topic, []).append(line)
    return sum([await _write(client, topic, lines) for topic, lines in by_topic.items()])


async def _write(client: Client, topic: str, lines: list[Line]) -> int:
    if topic not in (await client.metadata()).topics:
        needed = max((line.partition + 1 for line in lines if line.partition is not None), default=-1)
        outcome = (await create_topics(client, [NewTopic(topic, needed)]))[topic]
        if isinstance(outcome, Exception):
            raise ConfigError(f"--seed-file: topic {topic}: {outcome}")
    partitions = sorted((await client.topic(topic)).partitions)
    bounds = await offsets.bounds(client, [(topic, index) for index in partitions])
    if any(end for _, end in bounds.values()):
        return 0
    producer = Producer(client)
    waiting: dict[TopicPartition, list[Record]] = {}

    async def flush(tp: TopicPartition) -> None:
        await producer.append(tp, build_batch(waiting.pop(tp)))

    for line in lines:
        tp = (topic, _partition(line, len(partitions)))
        if tp[1] not in partitions:
            raise ConfigError(f"--seed-file: topic {topic} has partitions 0 to {partitions[-1]}, not {tp[1]}")
        records = waiting.setdefault(tp, [])
        at_ms = line.timestamp if line.timestamp is not None and line.timestamp >= 0 else int(time.time() * 1000)
        records.append(Record(len(records), at_ms, line.key, line.value, line.headers))
        if sum(len(each.key or b"") + len(each.value or b"") for each in records) >= _BATCH_BYTES:
            await flush(tp)
    for tp in list(waiting):
        await flush(tp)
    return len(lines)


def _partition(line: Line, count: int) -> int:
    if line.partition is not None:
        return line.partition
    return 0 if line.key is None else partition_for(line.key, count)
