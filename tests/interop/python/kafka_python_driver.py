"""kafka-python behind the driver protocol; the same file drives 3.x and 2.0.2."""

import sys
import time
from typing import Any

from driver_loop import as_record, b64, describe, serve, unb64

if sys.version_info >= (3, 12):
    # 2.0.2 carries an old copy of six, whose import hook modern Python ignores.
    try:
        import six.moves
    except ImportError:
        pass
    else:
        sys.modules["kafka.vendor.six.moves"] = six.moves

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from kafka_python_admin import Administration

OLD = kafka.__version__.startswith("2.")
ASSIGNORS = {}


def _load_assignors() -> None:
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    ASSIGNORS.update(
        {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor, "sticky": StickyPartitionAssignor}
    )
    if not OLD:
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

        ASSIGNORS["cooperative-sticky"] = CooperativeStickyAssignor


class Driver(Administration):
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.consumers: dict[str, KafkaConsumer] = {}

    @staticmethod
    def code_of(error: BaseException) -> int | None:
        code = getattr(error, "errno", None)
        return code if isinstance(code, int) and code >= -1 else None

    def info(self) -> dict[str, Any]:
        return {"client": "kafka-python", "version": kafka.__version__}

    # Producing

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
        config: dict[str, Any] = {
            "acks": "all" if acks == -1 else acks,
            "compression_type": None if compression == "none" else compression,
            "linger_ms": linger_ms,
            "max_block_ms": max_block_ms,
            "retries": 5,
        }
        if not OLD:
            config["enable_idempotence"] = idempotent
        if max_request_bytes:
            config["max_request_size"] = max_request_bytes
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, **config)
        try:
            futures = []
            for record in records:
                futures.append(
                    producer.send(
                        topic,
                        value=unb64(record["value"]),
                        key=unb64(record["key"]),
                        headers=[(name, unb64(data)) for name, data in record["headers"]],
                        partition=record["partition"],
                        timestamp_ms=record["timestamp"],
                    )
                )
                if each:
                    producer.flush(30)
            producer.flush(30)
            return [self._sent(future) for future in futures]
        finally:
            producer.close(timeout=5)

    def _sent(self, future: Any) -> dict[str, Any]:
        try:
            meta = future.get(timeout=30)
        except Exception as error:
            return {"error": describe(error, self.code_of)}
        return {"partition": meta.partition, "offset": meta.offset, "timestamp": meta.timestamp}

    # Reading without a group

    def read(
        self,
        topic: str,
        partitions: list[int],
        offset: int | str = "earliest",
        count: int | None = None,
        config: dict[str, Any] | None = None,
        timeout_ms: int = 30000,
    ) -> list[dict[str, Any]]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="none", **self._settings(config or {})
        )
        try:
            where = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(where)
            begin, end = consumer.beginning_offsets(where), consumer.end_offsets(where)
            for place in where:
                consumer.seek(place, begin[place] if offset == "earliest" else offset)
            records: list[dict[str, Any]] = []
            deadline = time.monotonic() + timeout_ms / 1000
            while True:
                if count is not None and len(records) >= count:
                    return records[:count]
                if count is None and all(consumer.position(place) >= end[place] for place in where):
                    return records
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(records)} records after {timeout_ms} ms")
                records += self._polled(consumer.poll(timeout_ms=500))
        finally:
            consumer.close()

    @staticmethod
    def _polled(batches: dict[Any, list[Any]]) -> list[dict[str, Any]]:
        return [
            as_record(r.topic, r.partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers)
            for batch in batches.values()
            for r in batch
        ]

    @staticmethod
    def _settings(config: dict[str, Any]) -> dict[str, Any]:
        names = {
            "fetch_max_bytes": "fetch_max_bytes",
            "max_partition_fetch_bytes": "max_partition_fetch_bytes",
            "fetch_min_bytes": "fetch_min_bytes",
            "fetch_max_wait_ms": "fetch_max_wait_ms",
            "session_timeout_ms": "session_timeout_ms",
            "heartbeat_interval_ms": "heartbeat_interval_ms",
            "max_poll_interval_ms": "max_poll_interval_ms",
            "auto_commit": "enable_auto_commit",
            "offset_reset": "auto_offset_reset",
            "client_id": "client_id",
            "instance_id": "group_instance_id",
            "request_timeout_ms": "request_timeout_ms",
        }
        settings = {names[name]: value for name, value in config.items() if name in names}
        if "assignors" in config:
            _load_assignors()
            settings["partition_assignment_strategy"] = [ASSIGNORS[name] for name in config["assignors"]]
        if OLD and "request_timeout_ms" not in settings and "session_timeout_ms" in settings:
            settings["request_timeout_ms"] = max(305000, settings["session_timeout_ms"] + 1)
        return settings

    def offsets(self, topic: str, partition: int) -> dict[str, int]:
        place = TopicPartition(topic, partition)
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None)
        try:
            return {
                "earliest": consumer.beginning_offsets([place])[place],
                "latest": consumer.end_offsets([place])[place],
            }
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> dict[str, int] | None:
        place = TopicPartition(topic, partition)
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None)
        try:
            found = consumer.offsets_for_times({place: timestamp})[place]
            return None if found is None else {"offset": found.offset, "timestamp": found.timestamp}
        finally:
            consumer.close()

    def max_timestamp(self, topic: str, partition: int) -> dict[str, int]:
        from kafka import OffsetSpec

        place = TopicPartition(topic, partition)
        admin = self._admin()
        try:
            found = admin.list_partition_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place]
            return {"offset": found.offset, "timestamp": found.timestamp}
        finally:
            admin.close()

    # Consumers that stay open

    def consumer_open(
        self,
        id: str,
        group: str | None = None,
        topics: list[str] | None = None,
        pattern: str | None = None,
        assign: list[list[Any]] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        settings = self._settings(config or {})
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, **settings)
        if assign is not None:
            consumer.assign([TopicPartition(t, p) for t, p in assign])
        elif pattern:
            consumer.subscribe(pattern=pattern)
        else:
            consumer.subscribe(topics or [])
        self.consumers[id] = consumer

    def consumer_poll(self, id: str, timeout_ms: int = 1000) -> dict[str, Any]:
        consumer = self.consumers[id]
        # 3.0.12 loses the assignment permanently if a poll times out while its SyncGroup is in flight.
        if not OLD and not consumer.assignment():
            timeout_ms = max(timeout_ms, 1000)
        records = self._polled(consumer.poll(timeout_ms=timeout_ms))
        return {"records": records, "assignment": sorted([p.topic, p.partition] for p in consumer.assignment())}

    def consumer_seek(self, id: str, topic: str, partition: int, offset: int | str) -> None:
        consumer, place = self.consumers[id], TopicPartition(topic, partition)
        if offset == "beginning":
            consumer.seek_to_beginning(place)
        elif offset == "end":
            consumer.seek_to_end(place)
        else:
            consumer.seek(place, offset)

    def consumer_position(self, id: str, topic: str, partition: int) -> int:
        return self.consumers[id].position(TopicPartition(topic, partition))

    def consumer_commit(self, id: str, offsets: list[dict[str, Any]] | None = None) -> None:
        consumer = self.consumers[id]
        if offsets is None:
            consumer.commit()
            return
        consumer.commit(
            {
                TopicPartition(o["topic"], o["partition"]): (
                    OffsetAndMetadata(o["offset"], o.get("metadata", ""))
                    if OLD
                    else OffsetAndMetadata(o["offset"], o.get("metadata", ""), -1)
                )
                for o in offsets
            }
        )

    def consumer_committed(self, id: str, topic: str, partition: int, group: str = "") -> dict[str, Any] | None:
        found = self.consumers[id].committed(TopicPartition(topic, partition), metadata=True)
        return None if found is None else {"offset": found.offset, "metadata": found.metadata}

    def consumer_close(self, id: str) -> None:
        self.consumers.pop(id).close()

    # Administration

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)

    def create_topic(
        self, topic: str, partitions: int = 1, replication: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        from kafka.admin import NewTopic

        admin = self._admin()
        try:
            admin.create_topics([NewTopic(topic, partitions, replication, topic_configs=configs or {})])
        finally:
            admin.close()

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()
        try:
            admin.delete_topics([topic])
        finally:
            admin.close()

    def list_topics(self) -> list[str]:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None)
        try:
            return sorted(consumer.topics())
        finally:
            consumer.close()

    def describe_topic(self, topic: str) -> dict[str, Any]:
        admin = self._admin()
        try:
            found = admin.describe_topics([topic])[0]
        finally:
            admin.close()
        if found.get("error_code"):
            import kafka.errors

            raise kafka.errors.for_code(found["error_code"])()
        return {
            "partitions": sorted(
                (
                    {
                        "id": p.get("partition_index", p.get("partition")),
                        "leader": p.get("leader_id", p.get("leader")),
                        "replicas": p.get("replica_nodes", p.get("replicas")),
                        "isr": p.get("isr_nodes", p.get("isr")),
                    }
                    for p in found["partitions"]
                ),
                key=lambda p: p["id"],
            )
        }

    def describe_cluster(self) -> dict[str, Any]:
        admin = self._admin()
        try:
            found = admin.describe_cluster()
        finally:
            admin.close()
        return {
            "cluster_id": found["cluster_id"],
            "controller": found["controller_id"],
            "nodes": [
                {"id": b.get("node_id", b.get("broker_id")), "host": b["host"], "port": b["port"]}
                for b in found["brokers"]
            ],
        }

    def groups_list(self) -> list[str]:
        admin = self._admin()
        try:
            found = admin.list_consumer_groups() if OLD else admin.list_groups()
            return sorted(g[0] if OLD else g["group_id"] for g in found)
        finally:
            admin.close()

    def group_describe(self, group: str) -> dict[str, Any]:
        admin = self._admin()
        try:
            if OLD:
                found = admin.describe_consumer_groups([group])[0]
                return {
                    "state": found.state,
                    "protocol": found.protocol,
                    "members": [{"client_id": m.client_id, "host": m.client_host} for m in found.members],
                }
            found = admin.describe_groups([group])[group]
        finally:
            admin.close()
        return {
            "state": found["group_state"],
            "protocol": found.get("protocol_data"),
            "members": [{"client_id": m["client_id"], "host": m["client_host"]} for m in found["members"]],
        }

    def group_delete(self, group: str) -> None:
        import kafka.errors

        admin = self._admin()
        try:
            found = admin.delete_consumer_groups([group]) if OLD else admin.delete_groups([group])
        finally:
            admin.close()
        outcome = found[0][1] if isinstance(found, list) else found[group]
        if outcome is kafka.errors.NoError or outcome in (None, "OK"):
            return
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, type):
            raise outcome()
        raise getattr(kafka.errors, outcome)()


if __name__ == "__main__":
    assert b64(b"") == ""
    serve(Driver(sys.argv[1]))
