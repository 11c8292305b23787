"""Transactions of aiokafka behind the driver protocol; the operations are in test_transactions_clients."""

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from driver_loop import serve

WAIT_S = 30


class Transactions:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.loop = asyncio.new_event_loop()
        self.producers: dict[str, AIOKafkaProducer] = {}

    @staticmethod
    def code_of(error: BaseException) -> int | None:
        code = getattr(error, "errno", None)
        return code if isinstance(error, KafkaError) and isinstance(code, int) else None

    def _run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, WAIT_S))

    def open(self, id: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        async def start() -> None:
            self.producers[id] = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await self.producers[id].start()

        self._run(start())

    def begin(self, id: str) -> None:
        self._run(self.producers[id].begin_transaction())

    def send(self, id: str, topic: str, values: list[str], partition: int = 0) -> None:
        async def send() -> None:
            for value in values:
                await self.producers[id].send_and_wait(topic, value.encode(), partition=partition)

        self._run(send())

    def commit(self, id: str) -> None:
        self._run(self.producers[id].commit_transaction())

    def abort(self, id: str) -> None:
        self._run(self.producers[id].abort_transaction())

    def _consumer(self, *topics: str, group: str | None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )

    def transform(self, id: str, source: str, target: str, group: str, count: int) -> None:
        async def work() -> None:
            producer, consumer = self.producers[id], self._consumer(source, group=group)
            await consumer.start()
            done = 0
            while done < count:
                found = await consumer.getmany(timeout_ms=1000, max_records=4)
                if not found:
                    continue
                async with producer.transaction():
                    for records in found.values():
                        for record in records:
                            await producer.send(target, record.value.upper(), partition=0)
                            done += 1
                    ends = {place: records[-1].offset + 1 for place, records in found.items()}
                    await producer.send_offsets_to_transaction(ends, group)
            await consumer.stop()

        self._run(work())

    def read(self, topic: str, count: int) -> list[str]:
        async def work() -> list[str]:
            consumer = self._consumer(group=None)
            await consumer.start()
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            values: list[str] = []
            while len(values) < count:
                found = await consumer.getmany(timeout_ms=500)
                values += [record.value.decode() for records in found.values() for record in records]
            await consumer.stop()
            return values

        return list(self._run(work()))


serve(Transactions(sys.argv[1]))
