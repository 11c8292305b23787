"""Options, filters and plans, without a Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.spark import plan
from ottla.spark.filters import Pushed, push
from ottla.spark.options import OptionError, sink_options, source_options
from ottla.spark.origin import Bounds, DataLost, SourceError
from ottla.spark.plan import Range
from ottla.spark.wanted import FOREVER, Wanted

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}


class Fake:
    """Partitions 0 and 1 of topic t; each record has 10 bytes and a time of ten times its offset."""

    def __init__(self, **bounds: Any) -> None:
        self.limits = {("t", 0): Bounds(0, 100), ("t", 1): Bounds(50, 60)}

    def topics(self, names: Any) -> dict[str, list[int]]:
        return {"t": [0, 1]} if names is None or "t" in names else {}

    def bounds(self, partitions: Iterable[Any]) -> dict[Any, Bounds]:
        return {tp: self.limits[tp] for tp in partitions}

    def offsets_at(self, times: Mapping[Any, int]) -> dict[Any, int | None]:
        found = {tp: max(-(-time // 10), self.limits[tp].start) for tp, time in times.items()}
        return {tp: offset if offset < self.limits[tp].end else None for tp, offset in found.items()}

    def byte_size(self, tp: Any, start: int, end: int) -> int:
        return (end - start) * 10

    def offset_within(self, tp: Any, start: int, end: int, size: int) -> int:
        return min(end, start + max(1, size // 10))


def planned(**options: str) -> tuple[dict[Any, int], dict[Any, int]]:
    origin: Any = Fake()
    parsed = source_options({**BASE, **options}, streaming=False)
    bounds = origin.bounds(plan.partitions_of(origin, parsed))
    return plan.starts(origin, parsed, bounds), plan.ends(origin, parsed, bounds)


def test_where_to_begin_and_end() -> None:
    assert planned() == ({("t", 0): 0, ("t", 1): 50}, {("t", 0): 100, ("t", 1): 60})
    assert planned(startingOffsets='{"t": {"0": 7, "1": -2}}', endingOffsets='{"t": {"0": 9, "1": -1}}') == (
        {("t", 0): 7, ("t", 1): 50},
        {("t", 0): 9, ("t", 1): 60},
    )
    assert planned(startingTimestamp="555", endingTimestamp="900") == (
        {("t", 0): 56, ("t", 1): 56},
        {("t", 0): 90, ("t", 1): 60},
    )
    assert planned(startingOffsetsByTimestamp='{"t": {"0": 10, "1": 0}}')[0] == {("t", 0): 1, ("t", 1): 50}
    late = {"startingTimestamp": "700"}
    with pytest.raises(SourceError, match="no record of t-1 is as young as 700 ms"):
        planned(**late)
    assert planned(**late, startingOffsetsByTimestampStrategy="latest")[0] == {("t", 0): 70, ("t", 1): 60}
    with pytest.raises(SourceError, match="every partition that is read: t-1 is missing in it"):
        planned(startingOffsets='{"t": {"0": 7}}')
    with pytest.raises(SourceError, match="u-4 is not read but named in it"):
        planned(endingOffsets='{"t": {"0": 7, "1": 51}, "u": {"4": 2}}')


def test_which_partitions() -> None:
    origin: Any = Fake()

    def chosen(**options: str) -> list[Any]:
        base = {"path": "/data"}
        return plan.partitions_of(origin, source_options({**base, **options}, streaming=False))

    assert chosen(subscribe="t") == chosen(subscribePattern="[a-z]") == [("t", 0), ("t", 1)]
    assert chosen(assign='{"t": [1]}') == [("t", 1)]
    assert chosen(subscribePattern="x.*") == []
    with pytest.raises(SourceError, match="topic 'u' does not exist"):
        chosen(subscribe="t, u")
    with pytest.raises(SourceError, match="topic 't' has no partition 2"):
        chosen(assign='{"t": [2]}')
    for choice, left in ({"subscribe": "t,u"}, 2), ({"assign": '{"t": [1, 2], "u": [0]}'}, 1), ({"subscribe": "u"}, 0):
        options = source_options({"path": "/data", **choice}, streaming=True)
        assert len(plan.partitions_of(origin, options, may_lack=True)) == left


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "choose a cluster with kafka.bootstrap.servers, or a data folder with path"),
        ({"path": "/d"}, "exactly one of the options subscribe, subscribePattern and assign"),
        ({**BASE, "assign": '{"t": [0]}'}, "exactly one of the options"),
        ({**BASE, "startingOffset": "earliest"}, "unknown option 'startingoffset'"),
        ({**BASE, "startingOffsets": "latest"}, "startingOffsets cannot be latest for a batch read"),
        ({**BASE, "endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({**BASE, "startingOffsets": "soon"}, "startingOffsets is earliest, latest or JSON"),
        ({**BASE, "includeHeaders": "maybe"}, "includeheaders is true or false, not 'maybe'"),
        ({**BASE, "minPartitions": "-1"}, "minpartitions is a number"),
        ({**BASE, "kafka.isolation.level": "x"}, "kafka.isolation.level is read_uncommitted or read_committed"),
        ({**BASE, "kafka.security.protocol": "FTP"}, "security.protocol is one of"),
        ({"kafka.bootstrap.servers": "nonsense:port", "subscribe": "t"}, "is not HOST:PORT"),
        ({"path": "/d", "subscribePattern": "("}, "is not a regular expression"),
        ({"path": "/d", "assign": "t"}, "assign is JSON such as"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        source_options(options, streaming=False)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_options_of_streams_and_sinks() -> None:
    assert source_options(BASE, streaming=True).starting.word == "latest"
    with pytest.raises(OptionError, match="a stream has no end"):
        source_options({**BASE, "endingOffsets": "latest"}, streaming=True)
    sink = {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.compression.type": "zstd", "kafka.acks": "1"}
    parsed = sink_options(sink, 100)
    assert (parsed.topic, parsed.codec, parsed.acks, parsed.batch_bytes) == ("t", 4, 1, 100)
    for more, message in (
        ({"kafka.acks": "2"}, "kafka.acks"),
        ({"kafka.compression.type": "rar"}, "compression.type is one of"),
        ({"path": "/d"}, "not to a folder"),
    ):
        with pytest.raises(OptionError, match=message):
            sink_options({**sink, **more}, 100)


def test_filters() -> None:
    moment = datetime.datetime(2024, 1, 1, 0, 0, 0, 1500, tzinfo=datetime.UTC)
    ms = 1_704_067_200_001
    unclear = [Not(EqualTo(("topic",), "t")), EqualTo(("value",), b"x"), In(("offset",), (1, 2)), IsNotNull(("key",))]
    pushed, left = push(
        [
            IsNotNull(("offset",)),
            In(("topic",), ("t", "u")),
            EqualTo(("topic",), "t"),
            LessThan(("partition",), 3),
            In(("partition",), (1, 5)),
            GreaterThan(("offset",), 10),
            LessThanOrEqual(("offset",), 20),
            GreaterThanOrEqual(("timestamp",), moment),
            LessThan(("timestamp",), moment + datetime.timedelta(seconds=1)),
            *unclear,
        ]
    )
    assert left == unclear
    assert [tp for tp in (("t", 1), ("t", 2), ("t", 5), ("u", 1)) if pushed.includes(*tp)] == [("t", 1)]
    # 1.5 ms are met by the records of 2 ms and later.
    assert pushed.wanted == Wanted(11, 21, ms + 1, ms + 1001)
    assert push([EqualTo(("timestamp",), moment)])[0].wanted == Wanted(0, FOREVER, ms + 1, ms + 1)  # none
    assert Pushed().includes("x", 9)


def test_narrowing_and_splitting() -> None:
    origin: Any = Fake()
    ranges = [Range("t", 0, 0, 100), Range("t", 1, 50, 60)]
    assert plan.narrowed(origin, ranges, Wanted(55, 70, 570)) == [Range("t", 0, 57, 70), Range("t", 1, 57, 60)]
    assert plan.narrowed(origin, ranges, Wanted(0, 1000, 610)) == [Range("t", 0, 61, 100)]
    base = source_options(BASE, streaming=False)
    assert plan.split(origin, base, ranges) == ranges
    finer = plan.split(origin, source_options({**BASE, "minPartitions": "11"}, streaming=False), ranges)
    assert len(finer) == 11 and finer[0] == Range("t", 0, 0, 10) and finer[-1] == ranges[1]
    small = plan.split(origin, source_options({**BASE, "maxRecordsPerPartition": "7"}, streaming=False), ranges)
    assert max(one.end - one.start for one in small) <= 7 and sum(one.end - one.start for one in small) == 110
    files = source_options({"path": "/d", "subscribe": "t", "maxBytesPerTask": "250"}, streaming=False)
    assert [one.end for one in plan.split(origin, files, ranges)] == [25, 50, 75, 100, 60]


def test_limits_of_a_micro_batch() -> None:
    origin: Any = Fake()
    begin, end = {("t", 0): 0, ("t", 1): 50}, {("t", 0): 100, ("t", 1): 60}
    assert plan.limited(origin, begin, end, 0, 0) == end
    assert plan.limited(origin, begin, end, 11, 0) == {("t", 0): 10, ("t", 1): 51}
    assert plan.limited(origin, begin, end, 1, 0) == {("t", 0): 1, ("t", 1): 51}  # each has its turn
    assert plan.limited(origin, begin, end, 0, 220) == {("t", 0): 20, ("t", 1): 52}
    assert plan.limited(origin, end, end, 5, 5) == end


def test_deleted_records_are_an_error_or_skipped() -> None:
    strict = source_options(BASE, streaming=True)
    lenient = source_options({**BASE, "failOnDataLoss": "false"}, streaming=True)
    bounds = {("t", 0): Bounds(20, 100)}

    def ranges(options: Any, start: int, end: int, topic: str = "t") -> list[Range]:
        return plan.checked(options, {(topic, 0): start}, {(topic, 0): end}, bounds)

    assert ranges(strict, 20, 100) == [Range("t", 0, 20, 100)]
    assert ranges(strict, 30, 30) == []
    with pytest.raises(DataLost, match="t-0 begins at offset 20 now: 5 to 19 are gone"):
        ranges(strict, 5, 50)
    assert ranges(lenient, 5, 50) == [Range("t", 0, 20, 50)]
    with pytest.raises(DataLost, match="was the topic deleted and created again"):
        ranges(strict, 500, 600)
    assert ranges(lenient, 500, 600) == [Range("t", 0, 20, 100)]
    with pytest.raises(DataLost, match="u-0 is gone"):
        ranges(strict, 0, 5, "u")
    assert ranges(lenient, 0, 5, "u") == []
    assert plan.from_json(plan.to_json({("t", 10): 5, ("t", 2): 6})) == {("t", 10): 5, ("t", 2): 6}
