"""aiokafka behind the driver protocol. Its loop has its own thread, so it sends heartbeats between requests."""

import asyncio
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code
from aiokafka_admin import Administration
from driver_loop import as_record, describe, serve, unb64

CONSUMER_SETTINGS = {
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


class Driver(Administration):
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.consumers: dict[str, AIOKafkaConsumer] = {}
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    @staticmethod
    def code_of(error: BaseException) -> int | None:
        code = getattr(error, "errno", None)
        return code if isinstance(code, int) and code >= -1 else None

    def info(self) -> dict[str, Any]:
        return {"client": "aiokafka", "version": aiokafka.__version__}

    def produce(self, **args: Any) -> list[dict[str, Any]]:
        return self._run(self._produce(**args))

    async def _produce(
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
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all" if acks == -1 else acks,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_request_size=max_request_bytes or 1048576,
            linger_ms=linger_ms,
            request_timeout_ms=max_block_ms,
        )
        await producer.start()
        try:
            futures = []
            for record in records:
                future = await producer.send(
                    topic,
                    value=unb64(record["value"]),
                    key=unb64(record["key"]),
                    headers=[(name, unb64(data)) for name, data in record["headers"]],
                    partition=record["partition"],
                    timestamp_ms=record["timestamp"],
                )
                futures.append(future)
                if each:
                    await asyncio.wait([future])
            await producer.flush()
            results = []
            for future in futures:
                try:
                    meta = await future
                except Exception as error:
                    results.append({"error": describe(error, self.code_of)})
                else:
                    # With acks=0 the library returns no metadata.
                    results.append(
                        {"partition": meta.partition, "offset": meta.offset, "timestamp": meta.timestamp}
                        if meta is not None
                        else {"partition": None, "offset": -1, "timestamp": -1}
                    )
            return results
        finally:
            await producer.stop()

    def read(self, **args: Any) -> list[dict[str, Any]]:
        return self._run(self._read(**args))

    async def _read(
        self,
        topic: str,
        partitions: list[int],
        offset: int | str = "earliest",
        count: int | None = None,
        config: dict[str, Any] | None = None,
        timeout_ms: int = 30000,
    ) -> list[dict[str, Any]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="none", **self._settings(config or {})
        )
        await consumer.start()
        try:
            where = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(where)
            begin, end = await consumer.beginning_offsets(where), await consumer.end_offsets(where)
            for place in where:
                consumer.seek(place, begin[place] if offset == "earliest" else offset)
            records: list[dict[str, Any]] = []
            deadline = time.monotonic() + timeout_ms / 1000
            while True:
                if count is not None and len(records) >= count:
                    return records[:count]
                if count is None:
                    positions = [await consumer.position(place) for place in where]
                    if all(position >= end[place] for place, position in zip(where, positions, strict=True)):
                        return records
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(records)} records after {timeout_ms} ms")
                records += self._polled(await consumer.getmany(timeout_ms=500))
        finally:
            await consumer.stop()

    @staticmethod
    def _settings(config: dict[str, Any]) -> dict[str, Any]:
        settings = {CONSUMER_SETTINGS[name]: value for name, value in config.items() if name in CONSUMER_SETTINGS}
        if "assignors" in config:
            from aiokafka.coordinator.assignors.range import RangePartitionAssignor
            from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
            from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

            known = {
                "range": RangePartitionAssignor,
                "roundrobin": RoundRobinPartitionAssignor,
                "sticky": StickyPartitionAssignor,
            }
            settings["partition_assignment_strategy"] = tuple(known[name] for name in config["assignors"])
        return settings

    @staticmethod
    def _polled(batches: dict[Any, list[Any]]) -> list[dict[str, Any]]:
        return [
            as_record(r.topic, r.partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers)
            for batch in batches.values()
            for r in batch
        ]

    async def _with_consumer(self, work: Any) -> Any:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
        await consumer.start()
        try:
            return await work(consumer)
        finally:
            await consumer.stop()

    def offsets(self, topic: str, partition: int) -> dict[str, int]:
        place = TopicPartition(topic, partition)

        async def work(consumer: AIOKafkaConsumer) -> dict[str, int]:
            return {
                "earliest": (await consumer.beginning_offsets([place]))[place],
                "latest": (await consumer.end_offsets([place]))[place],
            }

        return self._run(self._with_consumer(work))

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> dict[str, int] | None:
        place = TopicPartition(topic, partition)

        async def work(consumer: AIOKafkaConsumer) -> dict[str, int] | None:
            found = (await consumer.offsets_for_times({place: timestamp}))[place]
            return None if found is None else {"offset": found.offset, "timestamp": found.timestamp}

        return self._run(self._with_consumer(work))

    def consumer_open(
        self,
        id: str,
        group: str | None = None,
        topics: list[str] | None = None,
        pattern: str | None = None,
        assign: list[list[Any]] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        async def work() -> None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap, group_id=group, **self._settings(config or {})
            )
            if assign is not None:
                consumer.assign([TopicPartition(t, p) for t, p in assign])
            elif pattern:
                consumer.subscribe(pattern=pattern)
            else:
                consumer.subscribe(topics or [])
            self.consumers[id] = consumer
            # start() of a group member returns once it has an assignment; other members may have to rejoin
            # first, and they do so on this same loop.
            self.starting = asyncio.ensure_future(consumer.start())
            await asyncio.wait([self.starting], timeout=30)

        self._run(work())

    def consumer_poll(self, id: str, timeout_ms: int = 1000) -> dict[str, Any]:
        consumer = self.consumers[id]
        records = self._polled(self._run(consumer.getmany(timeout_ms=timeout_ms)))
        return {"records": records, "assignment": sorted([p.topic, p.partition] for p in consumer.assignment())}

    def consumer_seek(self, id: str, topic: str, partition: int, offset: int | str) -> None:
        async def work() -> None:
            consumer, place = self.consumers[id], TopicPartition(topic, partition)
            if offset == "beginning":
                await consumer.seek_to_beginning(place)
            elif offset == "end":
                await consumer.seek_to_end(place)
            else:
                consumer.seek(place, offset)

        self._run(work())

    def consumer_position(self, id: str, topic: str, partition: int) -> int:
        return self._run(self.consumers[id].position(TopicPartition(topic, partition)))

    def consumer_commit(self, id: str, offsets: list[dict[str, Any]] | None = None) -> None:
        consumer = self.consumers[id]
        if offsets is None:
            self._run(consumer.commit())
        else:
            self._run(
                consumer.commit(
                    {TopicPartition(o["topic"], o["partition"]): (o["offset"], o.get("metadata", "")) for o in offsets}
                )
            )

    def consumer_committed(self, id: str, topic: str, partition: int, group: str = "") -> dict[str, Any] | None:
        found = self._run(self.consumers[id].committed(TopicPartition(topic, partition)))
        return None if found is None else {"offset": found, "metadata": None}

    def consumer_close(self, id: str) -> None:
        self._run(self.consumers.pop(id).stop())

    async def _with_admin(self, work: Any) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    def create_topic(
        self, topic: str, partitions: int = 1, replication: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        async def work(admin: AIOKafkaAdminClient) -> None:
            response = await admin.create_topics(
                [NewTopic(topic, partitions, replication, topic_configs=configs or {})]
            )
            self._check(response.topic_errors)

        self._run(self._with_admin(work))

    @staticmethod
    def _check(topic_errors: list[Any]) -> None:
        for entry in topic_errors:
            if entry[1]:
                raise for_code(entry[1])(entry[2] if len(entry) > 2 else "")

    def delete_topic(self, topic: str) -> None:
        async def work(admin: AIOKafkaAdminClient) -> None:
            self._check((await admin.delete_topics([topic])).topic_error_codes)

        self._run(self._with_admin(work))

    def list_topics(self) -> list[str]:
        async def work(admin: AIOKafkaAdminClient) -> list[str]:
            return sorted(await admin.list_topics())

        return self._run(self._with_admin(work))

    def describe_topic(self, topic: str) -> dict[str, Any]:
        async def work(admin: AIOKafkaAdminClient) -> dict[str, Any]:
            found = (await admin.describe_topics([topic]))[0]
            if found["error_code"]:
                raise for_code(found["error_code"])()
            return {
                "partitions": sorted(
                    (
                        {"id": p["partition"], "leader": p["leader"], "replicas": p["replicas"], "isr": p["isr"]}
                        for p in found["partitions"]
                    ),
                    key=lambda p: p["id"],
                )
            }

        return self._run(self._with_admin(work))

    def describe_cluster(self) -> dict[str, Any]:
        async def work(admin: AIOKafkaAdminClient) -> dict[str, Any]:
            found = await admin.describe_cluster()
            return {
                "cluster_id": found["cluster_id"],
                "controller": found["controller_id"],
                "nodes": [{"id": b["node_id"], "host": b["host"], "port": b["port"]} for b in found["brokers"]],
            }

        return self._run(self._with_admin(work))

    def groups_list(self) -> list[str]:
        async def work(admin: AIOKafkaAdminClient) -> list[str]:
            return sorted(group[0] for group in await admin.list_consumer_groups())

        return self._run(self._with_admin(work))

    def group_describe(self, group: str) -> dict[str, Any]:
        async def work(admin: AIOKafkaAdminClient) -> dict[str, Any]:
            response = (await admin.describe_consumer_groups([group]))[0]
            found = response.to_object()["groups"][0]
            return {
                "state": found["state"],
                "protocol": found["protocol"],
                "members": [{"client_id": m["client_id"], "host": m["client_host"]} for m in found["members"]],
            }

        return self._run(self._with_admin(work))


if __name__ == "__main__":
    serve(Driver(sys.argv[1]))
