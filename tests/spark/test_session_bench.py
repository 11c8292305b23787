"""The bench lines of Spark: their bars, and the topic that they fill."""

from __future__ import annotations

import asyncio
from typing import Any

import ottla.bench.lines  # noqa: F401  (fills the table)
from ottla.bench.lines.spark import Measured, fill
from ottla.bench.model import LINES, at_least, value_at_least, value_at_most
from ottla.bench.spark_job import BATCH, STREAM, TRIGGER, options_for


def test_the_bars() -> None:
    bars = {f"{name} {figure.key}": figure.bars for name in LINES for figure in LINES[name].figures}
    assert bars["spark-archive-official batch"] == (at_least(1),)
    assert bars["spark-archive-own files_ratio"] == (value_at_least(2.5),)
    assert bars["spark-archive-own files_stream_ratio"] == (value_at_least(2),)
    assert bars["spark-archive-own files_trigger_ratio"] == (value_at_least(1.2),)
    assert bars["spark-archive-own wire_ratio"] == (value_at_least(1),)
    assert bars["spark-archive-own wire_stream_ratio"] == (value_at_least(1),)
    for name in ("delta", "iceberg"):
        assert bars[f"spark-tables {name}_speed"] == (value_at_least(1),)
        assert bars[f"spark-tables {name}_cpu"] == (value_at_most(0.8),)
    assert bars["spark-batches cpu"] == (value_at_most(29),)
    assert bars["spark-upserts iceberg_on_read"] == bars["spark-upserts delta"] == (value_at_most(0.4),)
    assert bars["spark-large memory"] == (value_at_most(1.5),)


def test_ratios_are_of_turns_and_not_of_the_machines_moods() -> None:
    found = Measured(1200, {"official": [4.0, 40.0, 6.0], "files": [2.0, 16.0, 3.0]})
    assert found.ratio("files", "official") == 2.0
    assert found.rate("official") == 200


def test_each_way_to_read_has_its_options() -> None:
    job = {"bootstrap": "h:1", "topic": "t", "folder": "/d"}
    for way in (*BATCH, *STREAM, *TRIGGER):
        form, options = options_for(way, job)
        assert (form == "kafka") == way.startswith("official")
        assert ("path" in options) == way.startswith("files")


def test_the_topic_is_filled_evenly(broker: Any, admin: Any, make_topic: Any) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    topic = make_topic(partitions=8)
    asyncio.run(fill(broker.bootstrap, topic, 1003))
    asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(8)}
    ends = [future.result(60).offset for future in admin.list_offsets(asked).values()]
    assert sorted(ends) == [125] * 5 + [126] * 3
