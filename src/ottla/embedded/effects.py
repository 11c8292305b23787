"""The effect of each fault on the requests that it hits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.answers import Answer, Reply, started, then
from ottla.embedded.rules import Where, targets_of
from ottla.enums import ApiKey
from ottla.errors import KafkaError
from ottla.log.files import FileRegion
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, entry_size
from ottla.server import request_contents as contents
from ottla.server.apis.fetch import LongPoll, Reading
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from ottla.clock import Timer
    from ottla.server.api import Api, RequestContext
    from ottla.server.fetch_sessions import PartitionKey, SessionPartition
    from ottla.wire.schema import Message

Effect: TypeAlias = Callable[["Api", "RequestContext", Any, Where], Any]
"""(api, ctx, request, where) -> the result of a handler."""


def answering(error: KafkaError) -> Effect:
    """Answer with an error; the request has no effect. Partitions that the fault does not match are served."""

    def effect(api: Api, ctx: RequestContext, request: Any, where: Where) -> Any:
        if api.key == ApiKey.PRODUCE and request.acks == 0:
            ctx.connection.close(f"a produce request with acks=0 failed: {error.name}")  # as Kafka reports it
            return None
        if not where.is_partial:
            return api.on_error(ctx, request, error)
        if api.key == ApiKey.FETCH:
            return _failing_fetch(ctx, request, where, error)
        name_of = _names(ctx)
        struck = contents.narrowed(request, where.concerns, name_of)
        answer = api.on_error(ctx, struck, error)
        if all(map(where.concerns, targets_of(ctx, request))):
            return answer
        rest = contents.narrowed(request, lambda target: not where.concerns(target), name_of)
        return then(api.handler(ctx, rest), lambda response: _merged(response, answer))

    return effect


def _merged(response: Any, answer: Message | None) -> Any:
    if response is not None and answer is not None:
        contents.merge(response, answer)
    return response


def _names(ctx: RequestContext) -> contents.NameOf:
    topics = ctx.services.metadata.topics_by_id
    return lambda topic_id: topics[topic_id].name if topic_id in topics else None


class _FailingReading(Reading):
    """A fetch in which some partitions fail; the session continues as if they had really failed."""

    __slots__ = ("error", "name_of", "where")

    def __init__(self, ctx: RequestContext, request: FetchRequest, where: Where, error: KafkaError) -> None:
        super().__init__(ctx, request, ctx.services.fetch_sessions.plan(request, ctx.version))
        self.where = where
        self.error = error
        self.name_of = _names(ctx)

    def _read_partition(
        self, key: PartitionKey, wanted: SessionPartition, left: int, at_least_one: bool
    ) -> FetchResponse.PartitionData:
        name = key[0] if isinstance(key[0], str) else self.name_of(key[0])
        if name is not None and self.where.concerns((name, key[1])):
            raise self.error
        return super()._read_partition(key, wanted, left, at_least_one)


def _failing_fetch(ctx: RequestContext, request: FetchRequest, where: Where, error: KafkaError) -> Any:
    reading = _FailingReading(ctx, request, where, error)
    reading.read()
    return reading.response() if reading.failed else LongPoll(reading).reply


def delaying(delay_ms: float, when: str) -> Effect:
    """Serve late, or answer late."""
    is_before = _moment(when) == "before"

    def effect(api: Api, ctx: RequestContext, request: Any, where: Where) -> Any:
        timer = ctx.services.timer

        async def serve_late() -> Any:
            await sleep(timer, delay_ms)
            return await _value(api.handler(ctx, own))

        async def answer_late(result: Any) -> Any:
            response = await _value(result)
            await sleep(timer, delay_ms)
            return response

        if is_before:
            own = contents.detached(request)
            return started(serve_late())
        return started(answer_late(api.handler(ctx, request)))

    return effect


def dropping(when: str) -> Effect:
    """Close the connection instead of answering: before or after the request takes effect."""
    is_before = _moment(when) == "before"

    def effect(api: Api, ctx: RequestContext, request: Any, where: Where) -> Any:
        def drop(_: Any) -> None:
            ctx.connection.close()

        return drop(None) if is_before else then(api.handler(ctx, request), drop)

    return effect


def swallowing() -> Effect:
    """Do not handle or answer the request, and keep the connection open: the client waits until it gives up."""

    def effect(api: Api, ctx: RequestContext, request: Any, where: Where) -> Any:
        return Reply()

    return effect


def corrupting() -> Effect:
    """Serve a fetch, and flip a bit in the last byte of each of its first batches: their CRC no longer matches."""

    def effect(api: Api, ctx: RequestContext, request: Any, where: Where) -> Any:
        name_of = _names(ctx)

        def corrupt(response: Any) -> Any:
            for topic in response.responses:
                name = topic.topic or name_of(topic.topic_id)
                for data in topic.partitions:
                    if data.records and (
                        where.topic is None or (name is not None and where.concerns((name, data.partition_index)))
                    ):
                        data.records = damaged(data.records)
            return response

        return then(api.handler(ctx, request), corrupt)

    return effect


def damaged(records: Any) -> bytes:
    data = bytearray(records.read() if isinstance(records, FileRegion) else records)
    end = min(entry_size(data), len(data)) if len(data) >= LOG_OVERHEAD else len(data)
    data[max(end - 1, min(HEADER_SIZE, len(data) - 1))] ^= 0x01
    return bytes(data)


async def _value(answer: Answer[Any]) -> Any:
    return await answer if isinstance(answer, Reply) else answer


async def sleep(timer: Timer, delay_ms: float) -> None:
    """Wait by the broker's clock: advancing it ends the delay."""
    done = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    handle = timer.schedule(delay_ms, wake)
    try:
        await done
    finally:
        handle.cancel()


def _moment(when: str) -> str:
    if when not in ("before", "after"):
        raise ValueError(f"when={when!r}: pass 'before' or 'after' (the request's effect)")
    return when
