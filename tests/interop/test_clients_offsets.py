"""Positions: first and last offsets, offsets for times, seeking, and what happens out of range."""

import pytest

from ottla.errors import OffsetOutOfRange
from support.batches import batch, now_ms
from support.interop.drivers import ClientError, Driver, clients
from support.wire import Wire

NOW = now_ms()


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_first_and_last_offsets(driver: Driver, topic: str, wire: Wire) -> None:
    assert driver.call("offsets", topic=topic, partition=0) == {"earliest": 0, "latest": 0}
    wire.produce(topic, batch(b"a", b"b", b"c"))
    assert driver.call("offsets", topic=topic, partition=0) == {"earliest": 0, "latest": 3}


@pytest.mark.parametrize("driver", clients(), indirect=True)
def test_offsets_for_times(driver: Driver, topic: str, wire: Wire) -> None:
    for i in range(5):
        wire.produce(topic, batch(b"%d" % i, timestamp=NOW - 50_000 + i * 1000))

    def at(timestamp: int) -> tuple[int, int | None] | None:
        found = driver.call("offset_for_time", topic=topic, partition=0, timestamp=timestamp)
        return None if found is None else (found["offset"], found["timestamp"])

    for asked, offset, timestamp in (
        (NOW - 60_000, 0, NOW - 50_000),
        (NOW - 48_000, 2, NOW - 48_000),
        (NOW - 47_999, 3, NOW - 47_000),
    ):
        expected = (offset, timestamp if driver.client.can("time_with_timestamp") else None)
        assert at(asked) == expected
    late = at(NOW)
    assert late is None if driver.client.name != "kafkajs" else late == (5, None)


@pytest.mark.parametrize("driver", clients("max_timestamp"), indirect=True)
def test_offset_of_the_largest_timestamp(driver: Driver, topic: str, wire: Wire) -> None:
    for offset, age in enumerate((5000, 1000, 3000)):
        wire.produce(topic, batch(b"%d" % offset, timestamp=NOW - age))
    assert driver.call("max_timestamp", topic=topic, partition=0) == {"offset": 1, "timestamp": NOW - 1000}


@pytest.mark.parametrize("driver", clients("assign", "seek"), indirect=True)
def test_seek_back_forth_and_into_a_batch(driver: Driver, topic: str, wire: Wire, unique) -> None:
    wire.produce(topic, batch(*(b"%d" % i for i in range(10))))
    wire.produce(topic, batch(*(b"%d" % i for i in range(10, 20))))
    me = unique("c")
    config = {"offset_reset": "earliest", "auto_commit": False, "fetch_max_wait_ms": 100}
    driver.call("consumer_open", id=me, assign=[[topic, 0]], config=config)
    try:
        assert next_value(driver, me) == b"0"
        for offset in (15, 3, 10, 9):
            driver.call("consumer_seek", id=me, topic=topic, partition=0, offset=offset)
            assert next_value(driver, me) == b"%d" % offset
        if driver.client.can("position"):
            driver.call("consumer_seek", id=me, topic=topic, partition=0, offset=7)
            assert driver.call("consumer_position", id=me, topic=topic, partition=0) in (7, -1001)
        driver.call("consumer_seek", id=me, topic=topic, partition=0, offset="end")
        # The end is looked up at the next fetch, so records are written until one is after it.
        assert value_of_new_records(driver, wire, topic, me).startswith(b"new ")
        driver.call("consumer_seek", id=me, topic=topic, partition=0, offset=20)
        assert next_value(driver, me) == b"new 0"
        driver.call("consumer_seek", id=me, topic=topic, partition=0, offset="beginning")
        assert next_value(driver, me) == b"0"
    finally:
        driver.call("consumer_close", id=me)


def next_value(driver: Driver, consumer: str) -> bytes | None:
    for _ in range(60):
        records, _ = driver.poll(consumer, 500)
        if records:
            return records[0].value
    raise AssertionError("nothing came")


def value_of_new_records(driver: Driver, wire: Wire, topic: str, consumer: str) -> bytes:
    """The value of the first record that a consumer at the end of the topic gets, while records are written one by
    one."""
    for i in range(150):
        wire.produce(topic, batch(b"new %d" % i))
        records, _ = driver.poll(consumer, 200)
        if records:
            assert records[0].value is not None
            return records[0].value
    raise AssertionError("none of the new records came")


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
def test_reading_from_an_offset(driver: Driver, topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(*(b"%d" % i for i in range(10))))
    assert [record.value for record in driver.read(topic, offset=7)] == [b"7", b"8", b"9"]
    assert [record.offset for record in driver.read(topic, offset=4, count=2)] == [4, 5]
    assert driver.read(topic, offset=10) == []


@pytest.mark.parametrize("driver", clients("plain_read"), indirect=True)
def test_reading_beyond_the_end_without_a_reset(driver: Driver, topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"only"))
    with pytest.raises(ClientError) as caught:
        driver.read(topic, offset=100, count=1, timeout_ms=5000)
    # librdkafka has its own error for "no reset policy", and the Java client's error contains the partition.
    assert caught.value.code == OffsetOutOfRange.code or caught.value.name in (
        "_AUTO_OFFSET_RESET",
        "OffsetOutOfRangeException",
    ), caught.value


@pytest.mark.parametrize("driver", clients("assign"), indirect=True)
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_reset_policy(driver: Driver, reset: str, topic: str, wire: Wire, unique) -> None:
    wire.produce(topic, batch(b"0", b"1"))
    me = unique("c")
    config = {"offset_reset": reset, "auto_commit": False, "fetch_max_wait_ms": 100}
    driver.call("consumer_open", id=me, assign=[[topic, 0]], config=config)
    try:
        if reset == "earliest":
            assert next_value(driver, me) == b"0"
            return
        # The consumer has to look up the offset of "latest" first.
        assert value_of_new_records(driver, wire, topic, me).startswith(b"new ")
    finally:
        driver.call("consumer_close", id=me)


@pytest.mark.parametrize("driver", clients("assign", "long_poll"), indirect=True)
def test_a_waiting_fetch_is_woken_by_a_record(driver: Driver, topic: str, wire: Wire, unique) -> None:
    """The broker may hold the fetch for ten minutes. The record must end this wait, or the test times out."""
    me = unique("c")
    wire.produce(topic, batch(b"first"))
    config = {
        "offset_reset": "earliest",
        "auto_commit": False,
        "fetch_max_wait_ms": 240_000,
        "request_timeout_ms": 290_000,
    }
    driver.call("consumer_open", id=me, assign=[[topic, 0]], config=config)
    assert next_value(driver, me) == b"first"
    driver.start("consumer_poll", id=me, timeout_ms=80_000)
    wire.produce(topic, batch(b"second"))
    found = driver.finish()
    assert [record["offset"] for record in found["records"]] == [1]
    # Some clients wait for the fetch in flight when they close; one more record ends it.
    driver.start("consumer_close", id=me)
    wire.produce(topic, batch(b"third"))
    driver.finish()
