"""confluent-kafka (librdkafka) behind the driver protocol."""

import sys
import time
from typing import Any

import confluent_kafka
from confluent_admin import Administration
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from driver_loop import Refused, as_record, serve, unb64

CONSUMER_SETTINGS = {
    "fetch_max_bytes": "fetch.max.bytes",
    "max_partition_fetch_bytes": "max.partition.fetch.bytes",
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "session_timeout_ms": "session.timeout.ms",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
    "max_poll_interval_ms": "max.poll.interval.ms",
    "auto_commit": "enable.auto.commit",
    "client_id": "client.id",
    "instance_id": "group.instance.id",
    "protocol": "group.protocol",
    "remote_assignor": "group.remote.assignor",
    "auto_create": "allow.auto.create.topics",
    "request_timeout_ms": "socket.timeout.ms",
}
RESETS = {"earliest": "earliest", "latest": "latest", "none": "error"}


def kafka_code(error: KafkaError) -> int | None:
    # librdkafka's own errors are negative; -1 is Kafka's UNKNOWN_SERVER_ERROR.
    return error.code() if error.code() >= -1 else None


def refused(error: KafkaError) -> Refused:
    return Refused(kafka_code(error), error.name(), error.str())


class Driver(Administration):
    def __init__(self, bootstrap: str) -> None:
        self.base = {"bootstrap.servers": bootstrap, "log_level": 3}
        self.consumers: dict[str, Consumer] = {}
        # One for the lifetime of the driver: an AdminClient that is dropped cancels its futures.
        self.admin = AdminClient(self.base)

    @staticmethod
    def code_of(error: BaseException) -> int | None:
        if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
            return kafka_code(error.args[0])
        return None

    def info(self) -> dict[str, Any]:
        return {"client": "confluent-kafka", "version": confluent_kafka.version()}

    def produce(
        self,
        topic: str,
        records: list[dict[str, Any]],
        compression: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        max_request_bytes: int | None = None,
        each: bool = False,
        linger_ms: int = 5,
        max_block_ms: int = 30000,
    ) -> list[dict[str, Any]]:
        results: list[dict[str, Any] | None] = [None] * len(records)
        producer = Producer(
            {
                **self.base,
                "acks": acks,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "linger.ms": linger_ms,
                "message.max.bytes": max_request_bytes or 1000000,
                "message.timeout.ms": max_block_ms,
            }
        )

        def report(index: int) -> Any:
            def delivered(error: KafkaError | None, message: Any) -> None:
                if error is not None:
                    results[index] = {"error": {"code": kafka_code(error), "name": error.name(), "text": error.str()}}
                else:
                    offset = message.offset()
                    results[index] = {
                        "partition": message.partition(),
                        "offset": -1 if offset is None or offset < 0 else offset,
                        "timestamp": message.timestamp()[1],
                    }

            return delivered

        for index, record in enumerate(records):
            more: dict[str, Any] = {} if record["partition"] is None else {"partition": record["partition"]}
            if record["timestamp"] is not None:
                more["timestamp"] = record["timestamp"]
            try:
                producer.produce(
                    topic,
                    value=unb64(record["value"]),
                    key=unb64(record["key"]),
                    headers=[(name, unb64(data)) for name, data in record["headers"]],
                    on_delivery=report(index),
                    **more,
                )
            except KafkaException as error:
                results[index] = {
                    "error": {
                        "code": self.code_of(error),
                        "name": error.args[0].name(),
                        "text": error.args[0].str(),
                    }
                }
            if each:
                producer.flush(30)
        producer.flush(30)
        return [
            result or {"error": {"code": None, "name": "TIMED_OUT", "text": "no delivery report"}} for result in results
        ]

    def _consumer(self, config: dict[str, Any], group: str | None) -> Consumer:
        settings = {CONSUMER_SETTINGS[name]: value for name, value in config.items() if name in CONSUMER_SETTINGS}
        if "offset_reset" in config:
            settings["auto.offset.reset"] = RESETS[config["offset_reset"]]
        if "fetch_max_bytes" in config:
            settings["message.max.bytes"] = min(1000000, config["fetch_max_bytes"])
        if "assignors" in config:
            settings["partition.assignment.strategy"] = ",".join(config["assignors"])
        return Consumer({**self.base, "group.id": group or "unused", **settings})

    def read(
        self,
        topic: str,
        partitions: list[int],
        offset: int | str = "earliest",
        count: int | None = None,
        config: dict[str, Any] | None = None,
        timeout_ms: int = 30000,
    ) -> list[dict[str, Any]]:
        consumer = self._consumer({"offset_reset": "none", "auto_commit": False, **(config or {})}, None)
        try:
            marks = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in partitions}
            starts = {p: marks[p][0] if offset == "earliest" else offset for p in partitions}
            consumer.assign([TopicPartition(topic, p, starts[p]) for p in partitions])
            unread = {p for p in partitions if starts[p] < marks[p][1]}
            records: list[dict[str, Any]] = []
            deadline = time.monotonic() + timeout_ms / 1000
            while len(records) < count if count is not None else unread:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(records)} records after {timeout_ms} ms")
                for message in consumer.consume(500, timeout=0.2):
                    if message.error():
                        raise refused(message.error())
                    records.append(self._as_record(message))
                    if message.offset() + 1 >= marks[message.partition()][1]:
                        unread.discard(message.partition())
            return records if count is None else records[:count]
        finally:
            consumer.close()

    @staticmethod
    def _as_record(m: Any) -> dict[str, Any]:
        kind, timestamp = m.timestamp()
        return as_record(
            m.topic(), m.partition(), m.offset(), timestamp, {1: 0, 2: 1}.get(kind), m.key(), m.value(), m.headers()
        )

    def offsets(self, topic: str, partition: int) -> dict[str, int]:
        consumer = self._consumer({}, None)
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            return {"earliest": low, "latest": high}
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> dict[str, int] | None:
        found = self._list_offsets(topic, partition, OffsetSpec.for_timestamp(timestamp))
        return None if found.offset < 0 else {"offset": found.offset, "timestamp": found.timestamp}

    def max_timestamp(self, topic: str, partition: int) -> dict[str, int]:
        found = self._list_offsets(topic, partition, OffsetSpec.max_timestamp())
        return {"offset": found.offset, "timestamp": found.timestamp}

    def _list_offsets(self, topic: str, partition: int, spec: Any) -> Any:
        place = TopicPartition(topic, partition)
        futures = self.admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return futures[place].result(30)

    def consumer_open(
        self,
        id: str,
        group: str | None = None,
        topics: list[str] | None = None,
        pattern: str | None = None,
        assign: list[list[Any]] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        consumer = self._consumer(config or {}, group)
        if assign is not None:
            consumer.assign([TopicPartition(t, p) for t, p in assign])
        else:
            consumer.subscribe([pattern] if pattern else topics or [])
        self.consumers[id] = consumer

    def consumer_poll(self, id: str, timeout_ms: int = 1000) -> dict[str, Any]:
        consumer, records = self.consumers[id], []
        message = consumer.poll(timeout_ms / 1000)
        while message is not None:
            if message.error():
                raise refused(message.error())
            records.append(self._as_record(message))
            message = consumer.poll(0)
        return {"records": records, "assignment": sorted([p.topic, p.partition] for p in consumer.assignment())}

    def consumer_seek(self, id: str, topic: str, partition: int, offset: int | str) -> None:
        place = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}.get(offset, offset)  # type: ignore[call-overload]
        self.consumers[id].seek(TopicPartition(topic, partition, place))

    def consumer_position(self, id: str, topic: str, partition: int) -> int:
        return self.consumers[id].position([TopicPartition(topic, partition)])[0].offset

    def consumer_commit(self, id: str, offsets: list[dict[str, Any]] | None = None) -> None:
        consumer = self.consumers[id]
        if offsets is None:
            done = consumer.commit(asynchronous=False)
        else:
            done = consumer.commit(
                offsets=[
                    TopicPartition(o["topic"], o["partition"], o["offset"], metadata=o.get("metadata", ""))
                    for o in offsets
                ],
                asynchronous=False,
            )
        for place in done or ():
            if place.error:
                raise refused(place.error)

    def consumer_committed(self, id: str, topic: str, partition: int, group: str = "") -> dict[str, Any] | None:
        found = self.consumers[id].committed([TopicPartition(topic, partition)], timeout=30)[0]
        return None if found.offset < 0 else {"offset": found.offset, "metadata": found.metadata or ""}

    def consumer_close(self, id: str) -> None:
        self.consumers.pop(id).close()

    def create_topic(
        self, topic: str, partitions: int = 1, replication: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, replication, config=configs or {})
        self.admin.create_topics([new])[topic].result(30)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)

    def list_topics(self) -> list[str]:
        return sorted(self.admin.list_topics(timeout=30).topics)

    def describe_topic(self, topic: str) -> dict[str, Any]:
        found = self.admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        return {
            "topic_id": str(found.topic_id),
            "partitions": [
                {
                    "id": p.id,
                    "leader": p.leader.id,
                    "replicas": [n.id for n in p.replicas],
                    "isr": [n.id for n in p.isr],
                }
                for p in found.partitions
            ],
        }

    def describe_cluster(self) -> dict[str, Any]:
        found = self.admin.describe_cluster().result(30)
        return {
            "cluster_id": found.cluster_id,
            "controller": found.controller.id,
            "nodes": [{"id": n.id, "host": n.host, "port": n.port} for n in found.nodes],
        }

    def groups_list(self) -> list[str]:
        found = self.admin.list_consumer_groups().result(30)
        return sorted(group.group_id for group in found.valid)

    def group_describe(self, group: str) -> dict[str, Any]:
        found = self.admin.describe_consumer_groups([group])[group].result(30)
        return {
            "state": found.state.name,
            "type": found.type.name,
            "protocol": found.partition_assignor,
            "members": [
                {
                    "client_id": m.client_id,
                    "host": m.host,
                    "instance_id": m.group_instance_id,
                    "assignment": sorted([p.topic, p.partition] for p in m.assignment.topic_partitions),
                }
                for m in found.members
            ],
        }

    def group_delete(self, group: str) -> None:
        self.admin.delete_consumer_groups([group])[group].result(30)


if __name__ == "__main__":
    serve(Driver(sys.argv[1]))
