"""The registry on a broker's `_schemas` topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import ottla
from ottla.client import Client
from ottla.registry.registry import Registry
from ottla.registry.rest.http import Request
from ottla.registry.topic_log import TopicLog

T = TypeVar("T")


def on_broker(bootstrap: str, work: Callable[[Registry], Awaitable[T]], patience_s: float = 5) -> T:
    """Start a registry on a broker, and run a function with it."""

    async def run() -> T:
        async with Client(bootstrap, retry_timeout_s=patience_s) as client:
            log = TopicLog(client, now_ms=lambda: 1_700_000_000_000)
            await log.open()
            registry = Registry(log)
            await registry.start()
            return await work(registry)

    return asyncio.run(run())


async def send(registry: Registry, method: str, path: str, body: Any = None) -> Any:
    answer = await registry.handle(Request(method, path, {}, json.dumps(body).encode() if body is not None else b""))
    assert answer.status == 200, answer
    return answer.body


async def register(registry: Registry, subject: str, text: str) -> Any:
    return await send(registry, "POST", f"/subjects/{subject}/versions", {"schema": text})


def test_the_topic_is_created_and_read_again(tmp_path: Path) -> None:
    async def first(registry: Registry) -> None:
        assert (await register(registry, "s", '"int"'))["id"] == 1
        assert (await register(registry, "t", '"long"'))["id"] == 2
        await send(registry, "PUT", "/config", {"compatibility": "NONE"})
        await send(registry, "DELETE", "/subjects/t")

    async def second(registry: Registry) -> None:
        assert registry.skipped == []
        assert await send(registry, "GET", "/subjects") == ["s"]
        assert await send(registry, "GET", "/config") == {"compatibilityLevel": "NONE"}
        assert (await send(registry, "GET", "/subjects/s/versions/1"))["ts"] == 1_700_000_000_000
        assert (await register(registry, "u", '"bytes"'))["id"] == 3

    with ottla.serve(data=tmp_path) as broker:
        on_broker(broker.bootstrap, first)
        topic = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics("_schemas", 10).topics["_schemas"]
        assert len(topic.partitions) == 1
    with ottla.serve(data=tmp_path) as broker:
        on_broker(broker.bootstrap, second)


def test_a_registry_follows_what_others_write() -> None:
    async def work(registry: Registry, bootstrap: str) -> None:
        await register(registry, "s", '"int"')
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        key = {"keytype": "SCHEMA", "subject": "k", "version": 1, "magic": 1}
        value = {"subject": "k", "version": 1, "id": 7, "schema": '"long"', "deleted": False}
        producer.produce("_schemas", json.dumps(value), json.dumps(key))
        producer.produce("_schemas", "broken", "broken")
        producer.flush(10)
        await registry.catch_up()
        assert await send(registry, "GET", "/subjects") == ["k", "s"]
        assert [offset for offset, _ in registry.skipped] == [2]
        assert (await register(registry, "t", '"bytes"'))["id"] == 8

    with ottla.serve() as broker:
        on_broker(broker.bootstrap, lambda registry: work(registry, broker.bootstrap))


@pytest.mark.parametrize(
    ("partitions", "config", "problem"),
    [(2, {"cleanup.policy": "compact"}, "has 2 partitions"), (1, {}, "cleanup.policy=delete")],
)
def test_a_topic_that_would_lose_schemas_is_refused(partitions: int, config: dict[str, str], problem: str) -> None:
    async def nothing(registry: Registry) -> None:
        pass

    with ottla.serve() as broker:
        topic = confluent_kafka.admin.NewTopic("_schemas", partitions, 1, config=config)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([topic])["_schemas"].result(10)
        with pytest.raises(OSError, match=problem):
            on_broker(broker.bootstrap, nothing)


def test_an_unreachable_broker_gives_an_error_answer() -> None:
    async def work(registry: Registry) -> None:
        await register(registry, "s", '"int"')
        broker.down()
        body = json.dumps({"schema": '"long"'}).encode()
        answer = await registry.handle(Request("POST", "/subjects/t/versions", {}, body))
        assert (answer.status, answer.body["error_code"]) == (500, 50001)
        # Known schemas can still be read.
        assert await send(registry, "GET", "/subjects") == ["s"]

    with ottla.serve() as broker:
        on_broker(broker.bootstrap, work, patience_s=0.2)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_whose_answer_is_lost_is_found_by_the_next_one(when: str) -> None:
    """The connection breaks, before the write or after it, until the client gives up."""

    async def work(registry: Registry) -> None:
        await register(registry, "s", '"int"')
        lost = broker.faults.drop("Produce", when=when, times="every")
        body = json.dumps({"schema": '"long"'}).encode()
        answer = await registry.handle(Request("POST", "/subjects/t/versions", {}, body))
        assert (answer.status, answer.body["error_code"]) == (500, 50001)
        lost.remove()
        # The next write finds out. Its schema and its id are different, no matter whether the first write arrived.
        assert (await register(registry, "u", '"bytes"'))["id"] == 3
        assert await send(registry, "GET", "/subjects") == (["s", "t", "u"] if when == "after" else ["s", "u"])
        again = Registry(registry.log)
        await again.start()
        assert again.state.subjects == registry.state.subjects

    with ottla.serve() as broker:
        on_broker(broker.bootstrap, work, patience_s=0.2)
