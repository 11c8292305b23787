"""Appends that carry their progress. A writer that opens a partition again ends the open transaction first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client import Client
from ottla.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from ottla.records.record import Record
from ottla.spark.pipelines.transactions import Appender, Reached


@pytest.fixture
def values_of(broker: Any) -> Callable[[str], list[bytes]]:
    """The committed values of a partition as librdkafka reads them."""
    from confluent_kafka import Consumer, TopicPartition

    def go(topic: str) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "unused",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error():
                break
            if message is not None:
                found.append(message.value())
        consumer.close()
        return found

    return go


def test_a_second_writer_ends_what_the_first_left_open(broker: Any, make_topic: Any, values_of: Any) -> None:
    topic = make_topic(1)

    async def main() -> None:
        async with Client(broker.bootstrap) as one, Client(broker.bootstrap) as two:
            first, second = (Appender(c, (topic, 0), f"tx-{topic}", f"g-{topic}", 0) for c in (one, two))
            assert await first.open() == Reached(0, 0)
            for n in range(3):
                await first.add(10 + n, Record(0, n, b"k", b"%d" % n))
            await first.commit()
            await first.add(13, Record(0, 3, b"k", b"never"))
            await first._submit()
            await first._sent()
            assert await second.open() == Reached(13, 3)
            with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
                await first.commit()
            await first.abandon()
            await second.add(13, Record(0, 3, b"k", b"3"))
            await second.commit()
            await second.commit()  # nothing is open
            assert await second.open() == Reached(14, 4)

    asyncio.run(main())
    assert values_of(topic) == [b"0", b"1", b"2", b"3"]


def test_large_writes_are_split_into_transactions(
    broker: Any, make_topic: Any, values_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ottla.spark.pipelines.transactions as module
    from ottla.client.offsets import committed

    monkeypatch.setattr(module, "BATCH_BYTES", 200)
    monkeypatch.setattr(module, "TRANSACTION_BYTES", 500)
    topic = make_topic(1)
    ends = []
    ask = Appender._ask

    async def counting(self: Appender, request: Any, kind: str) -> Any:
        if kind == "end":
            ends.append(kind)
        return await ask(self, request, kind)

    monkeypatch.setattr(Appender, "_ask", counting)

    async def main() -> None:
        async with Client(broker.bootstrap) as client:
            appender = Appender(client, (topic, 0), f"tx-{topic}", f"g-{topic}", 1)
            await appender.open()
            for n in range(100):
                await appender.add(n, Record(0, n, None, b"%d" % n, [("h", None)]))
            await appender.commit()
            # Apache Kafka acknowledges the end of a transaction a moment before it is carried out.
            shown = (await client.retrying(lambda: committed(client, f"g-{topic}", stable=True)))[topic, 0]
            assert Reached.of(shown.metadata) == Reached(100, 100)
            # Behind the last marker: a tool shows no lag.
            assert shown.offset == 100 + len(ends)

    asyncio.run(main())
    assert values_of(topic) == [b"%d" % n for n in range(100)]
    assert len(ends) > 3


def test_the_metadata_of_a_foreign_commit_counts_as_no_progress() -> None:
    assert Reached.of("") == Reached.of("[]") == Reached.of('{"next": "x"}') == Reached(0, 0)
    assert Reached.of(Reached(5, 3).text()) == Reached(5, 3)


def test_a_topic_that_takes_no_large_records(broker: Any, make_topic: Any) -> None:
    topic = make_topic(1, max_message_bytes=1000)

    async def main() -> None:
        async with Client(broker.bootstrap) as client:
            appender = Appender(client, (topic, 0), f"tx-{topic}", f"g-{topic}", 0)
            await appender.open()
            await appender.add(0, Record(0, 0, None, bytes(2000)))
            with pytest.raises(KafkaError, match=f"{topic}-0"):
                await appender.commit()
            await appender.abandon()

    asyncio.run(main())
