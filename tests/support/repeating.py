"""Shared code of the tests for connections with repeated requests: which requests were served from memory, and handmade
frames."""

import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.log.files import Disk, MemoryDisk
from ottla.server.api import Registry, registered_apis
from ottla.wire.messages.partitions import DeleteRecordsRequest
from ottla.wire.messages.quotas import AlterClientQuotasRequest
from ottla.wire.messages.topics import DeleteTopicsRequest
from ottla.wire.schema import Message
from support.async_wire import AsyncWire
from support.frames import sized
from support.running import RunBroker, Running

NOW_MS = 1_700_000_000_000


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, model: type) -> Iterator[list[int]]:
    """The correlation ids of the requests that this model served from memory."""
    served: list[int] = []
    original = model.serve  # type: ignore[attr-defined]

    def serve(self: Any, buffer: memoryview, start: int, end: int, out: deque[Any]) -> int:
        stop: int = original(self, buffer, start, end, out)
        while start < stop:
            size, correlation_id = struct.unpack_from(">i4xi", buffer, start)
            served.append(correlation_id)
            start += 4 + size
        return stop

    with monkeypatch.context() as patch:
        patch.setattr(model, "serve", serve)
        yield served


def ordinary() -> Registry:
    """All APIs, without the shortcut."""
    return Registry(api.replace(model=None) for api in registered_apis().apis.values())


async def same_both_ways(
    monkeypatch: pytest.MonkeyPatch,
    model: type,
    run_broker: RunBroker,
    converse: Callable[[Running], Awaitable[Any]],
    new_disk: Callable[[], Disk] = MemoryDisk,
    *,
    served_more_than: int,
) -> None:
    """A conversation has the same result with and without the shortcut, and the shortcut was used."""
    async with run_broker(disk=new_disk(), clock=ManualClock(NOW_MS)) as running:
        with counted(monkeypatch, model) as served:
            short = await converse(running)
    assert len(served) > served_more_than
    async with run_broker(disk=new_disk(), clock=ManualClock(NOW_MS), registry=ordinary()) as running:
        with counted(monkeypatch, model) as served:
            long = await converse(running)
    assert not served
    assert short == long


class Talk:
    """One connection to one broker; answers are kept unchanged, except for the broker's ids."""

    def __init__(self, running: Running, client: AsyncWire) -> None:
        self.running, self.client = running, client
        self.heard: list[bytes] = []

    def topic_id(self, name: str) -> bytes:
        topic = self.running.broker.metadata.topics.get(name)
        return topic.topic_id if topic is not None else b"no such topic id"

    async def hear(self) -> bytes:
        answer = await self.client.receive_frame()
        for name in ("t", "u"):
            answer = answer.replace(self.topic_id(name), b"the topic's id..")
        self.heard.append(answer)
        return answer

    def framed(self, request: Message, version: int, client_id: str, behind: bytes = b"") -> bytes:
        """A request's frame, with extra bytes after the request."""
        frame = self.client.frame(request, version, client_id, answered=False)
        return sized(frame[4:] + behind)

    async def delete(self, name: str) -> None:
        await self.client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)

    async def delete_records(self, offset: int) -> None:
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        await self.client.call(
            DeleteRecordsRequest(topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])]), 2
        )

    async def limit(self, key: str) -> None:
        """A default quota that no client reaches."""
        quotas = AlterClientQuotasRequest
        anybody = quotas.EntityData(entity_type="client-id", entity_name=None)
        rate = quotas.OpData(key=key, value=1e9, remove=False)
        await self.client.call(quotas(entries=[quotas.EntryData(entity=[anybody], ops=[rate])]), 1)
