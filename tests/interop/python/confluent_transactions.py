"""Transactions of confluent-kafka behind the driver protocol; the operations are in test_transactions_clients."""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from driver_loop import Refused, serve

WAIT_S = 30

# Without it librdkafka forgets a broker that it lost and yet waits for it forever in send_offsets_to_transaction, with
# any timeout (confluentinc/librdkafka#5511, #5456, open in 2.16).
KEEP_LOST_BROKERS = {"metadata.recovery.strategy": "none"}


class Transactions:
    def __init__(self, bootstrap: str) -> None:
        self.base = {"bootstrap.servers": bootstrap, "log_level": 3}
        self.producers: dict[str, Producer] = {}

    @staticmethod
    def code_of(error: BaseException) -> int | None:
        if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
            return int(error.args[0].code())
        return None

    def open(self, id: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        producer = Producer(
            {**self.base, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
        )
        producer.init_transactions(WAIT_S)
        self.producers[id] = producer

    def begin(self, id: str) -> None:
        self.producers[id].begin_transaction()

    def send(self, id: str, topic: str, values: list[str], partition: int = 0) -> None:
        producer = self.producers[id]
        failures: list[KafkaError] = []
        for value in values:
            producer.produce(
                topic,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, _: error and failures.append(error),
            )
        try:
            producer.flush(WAIT_S)
        except SystemError as error:
            # The client reports a fatal error as a pending exception and still calls on_delivery. Whether Python then
            # wraps it depends on how often the callback ran before.
            if isinstance(error.__cause__, KafkaException):
                raise error.__cause__ from None
            raise
        if failures:
            raise Refused(failures[0].code(), failures[0].name(), failures[0].str())

    def commit(self, id: str) -> None:
        self.producers[id].commit_transaction(WAIT_S)

    def abort(self, id: str) -> None:
        self.producers[id].abort_transaction(WAIT_S)

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **self.base,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )

    def transform(self, id: str, source: str, target: str, group: str, count: int) -> None:
        producer, consumer = self.producers[id], self._consumer(group)
        consumer.subscribe([source])
        done, deadline = 0, time.monotonic() + WAIT_S
        while done < count and time.monotonic() < deadline:
            messages = [message for message in consumer.consume(4, 1.0) if not message.error()]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value().upper(), partition=0)
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
            producer.commit_transaction(WAIT_S)
            done += len(messages)
        consumer.close()

    def transform_all(self, transactional_id: str, source: str, target: str, group: str, wait_s: float) -> int:
        """Copy a whole partition, no matter what happens to the broker. Returns how often it started again."""
        lives, deadline = 0, time.monotonic() + wait_s
        while time.monotonic() < deadline:
            lives += 1
            consumer = self._consumer(group)
            producer = Producer(
                {**self.base, **KEEP_LOST_BROKERS, "transactional.id": transactional_id, "linger.ms": 0}
            )
            try:
                producer.init_transactions(WAIT_S)
                if self._copy(producer, consumer, TopicPartition(source, 0), target, deadline):
                    return lives
            except KafkaException as error:
                print("a new life after", error, file=sys.stderr)
            finally:
                consumer.close()
        raise Refused(None, "Timeout", "the copy was not done in time")

    @staticmethod
    def _copy(producer: Producer, consumer: Consumer, place: TopicPartition, target: str, deadline: float) -> bool:
        start = consumer.committed([place], WAIT_S)[0].offset
        consumer.assign([TopicPartition(place.topic, place.partition, max(start, 0))])
        while time.monotonic() < deadline:
            messages = [message for message in consumer.consume(5, 0.2) if not message.error()]
            if not messages:
                _, end = consumer.get_watermark_offsets(place, WAIT_S)
                if consumer.committed([place], WAIT_S)[0].offset >= end:
                    return True
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=0)
            after = TopicPartition(place.topic, place.partition, messages[-1].offset() + 1)
            producer.send_offsets_to_transaction([after], consumer.consumer_group_metadata(), WAIT_S)
            producer.commit_transaction(WAIT_S)
        return False

    def read(self, topic: str, count: int) -> list[str]:
        consumer = self._consumer("unused")
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[str] = []
        deadline = time.monotonic() + WAIT_S
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value().decode() for message in consumer.consume(100, 0.5) if not message.error()]
        consumer.close()
        return values


serve(Transactions(sys.argv[1]))
