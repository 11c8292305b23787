"""Reading and writing records: a page of records, one complete record, a live tail, and produce."""

from __future__ import annotations

import asyncio
import base64
import heapq
import json
import random
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.fetcher import Fetched, Fetcher, visible
from ottla.client.offsets import bounds, list_offsets
from ottla.client.producer import Gatherer, Producer, partition_for
from ottla.client.routing import Client, TopicPartition
from ottla.console.filters import RecordFilter
from ottla.console.operations import BadRequest, Call, NotFound, Parameter, operation
from ottla.enums import IsolationLevel
from ottla.records.record import Record

if TYPE_CHECKING:
    from ottla.console.console_source import ConsoleSource

SHOWN_BYTES_MAX: Final = 32 << 10
"""The maximum number of bytes of a key, value or header in a list; the complete value has its own address."""

SCAN_SECONDS_MAX: Final = 5.0
"""How long the search for one page may take. The answer contains the position, and the next page continues there."""

_WHOLE: Final = 1 << 62
_PARTITION_BYTES: Final = 1 << 20
_STEP_BACK_MIN: Final = 64

FILTERS: Final = (
    Parameter("key", help="text that the key contains"),
    Parameter("value", help="text that the value contains"),
    Parameter("header", help="name, or name=text"),
    Parameter("json", help="a path into a JSON value with a comparison: user.age >= 18"),
)


class Found(NamedTuple):
    partition: int
    record: Record
    is_transactional: bool


def shown(found: Found, bytes_max: int = SHOWN_BYTES_MAX) -> dict[str, Any]:
    """A record as JSON. Long parts are cut, and their full length is added."""
    record = found.record
    return {
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown_bytes(record.key, bytes_max),
        "value": shown_bytes(record.value, bytes_max),
        "headers": [{"name": name, "value": shown_bytes(content, bytes_max)} for name, content in record.headers],
        "transactional": found.is_transactional,
    }


async def decoded(source: ConsoleSource, topic: str, found: Found, record: dict[str, Any]) -> dict[str, Any]:
    """A record as JSON, with its key and value decoded by the schema registry."""
    if source.decode is not None:
        for part, data in (("key", found.record.key), ("value", found.record.value)):
            if data is not None and (said := await source.decode(topic, part == "key", bytes(data))) is not None:
                record[part]["decoded"] = said
    return record


async def passes(source: ConsoleSource, topic: str, wanted: RecordFilter, record: Record) -> bool:
    """Whether a record passes the filters, as it is or as its schemas decode it."""
    if wanted.matches(record):
        return True
    if source.decode is None:
        return False
    parts: dict[str, bytes] = {}
    for part, data in (("key", record.key), ("value", record.value)):
        if data is not None and data[:1] == b"\0":  # all other records have no schema
            said = await source.decode(topic, part == "key", bytes(data))
            if said is not None and "value" in said:
                parts[part] = json.dumps(said["value"], ensure_ascii=False).encode()
    return bool(parts) and wanted.matches(record._replace(**parts))  # type: ignore[arg-type]


def shown_bytes(data: bytes | None, bytes_max: int = SHOWN_BYTES_MAX) -> dict[str, Any] | None:
    """`text` if the bytes are UTF-8, else `base64`; `bytes` is the full length."""
    if data is None:
        return None
    part = bytes(data[:bytes_max])
    cut = {"truncated": True} if len(part) < len(data) else {}
    try:
        # A cut may fall into the middle of a character.
        return {"text": _decoded(part, is_cut=bool(cut)), "bytes": len(data), **cut}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(part).decode(), "bytes": len(data), **cut}


def _decoded(part: bytes, *, is_cut: bool) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(part) - 3:
            return part[: error.start].decode()
        raise


def filter_of(call: Call) -> RecordFilter:
    return RecordFilter(**{name: call.query[name] or "" for name in ("key", "value", "header", "json")})


async def partitions_of(call: Call) -> list[TopicPartition]:
    topic = await call.source.client.topic(call.path["topic"])
    wanted: int | None = call.query["partition"]
    if wanted is None:
        return [(topic.name, index) for index in topic.partitions]
    if wanted not in topic.partitions:
        raise NotFound(f"topic {topic.name!r} has no partition {wanted}")
    return [(topic.name, wanted)]


@operation(
    "GET",
    "/topics/{topic}/records",
    query=(
        Parameter(
            "from", default="newest", help="newest, oldest, an offset (offset:42), or a time (time:1700000000000)"
        ),
        Parameter("partition", "integer", minimum=0, maximum=(1 << 31) - 1),
        Parameter("limit", "integer", default=50, minimum=1, maximum=1000),
        Parameter("isolation", default="uncommitted", choices=("uncommitted", "committed")),
        Parameter("cursor", help="where the page before stopped"),
        *FILTERS,
    ),
)
async def list_records(call: Call) -> Any:
    """Records of a topic from a place on, or the newest ones, that pass the filters."""
    wanted = filter_of(call)
    partitions = await partitions_of(call)
    isolation = (
        IsolationLevel.READ_COMMITTED if call.query["isolation"] == "committed" else IsolationLevel.READ_UNCOMMITTED
    )
    reader = _PageReader(call.source, call.path["topic"], wanted, call.query["limit"], isolation)
    ends = await bounds(call.source.client, partitions, isolation)
    if call.query["from"] == "newest":
        return await reader.newest(ends, cursor_of(call))
    return await reader.onward(ends, cursor_of(call) or await starts_of(call, ends))


def cursor_of(call: Call) -> dict[int, int] | None:
    text = call.query["cursor"]
    if text is None:
        return None
    try:
        return {int(partition): int(offset) for partition, offset in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise BadRequest(f"cursor={text!r} is not one that a page gave") from None


def cursor_for(positions: dict[int, int]) -> str:
    """The position to continue from: the next offset of each partition."""
    return json.dumps({str(index): offset for index, offset in sorted(positions.items())})


async def starts_of(call: Call, ends: dict[TopicPartition, tuple[int, int]]) -> dict[int, int]:
    """The first offset to read in each partition."""
    place: str = call.query["from"]
    if place == "oldest":
        return {index: start for (_, index), (start, _) in ends.items()}
    kind, _, text = place.partition(":")
    number = text.removeprefix("-")
    if kind not in ("offset", "time") or not (number.isascii() and number.isdigit() and len(number) < 19):
        raise BadRequest(f"from={place!r} is not newest, oldest, offset:NUMBER or time:MILLISECONDS")
    if kind == "offset":
        return {index: max(start, min(int(text), end)) for (_, index), (start, end) in ends.items()}
    if int(text) < 0:
        raise BadRequest("a time is a number of milliseconds since 1970")
    found = await list_offsets(call.source.client, dict.fromkeys(ends, int(text)))
    return {
        index: found[name, index].offset if found[name, index].offset >= 0 else end
        for (name, index), (_, end) in ends.items()
    }


class _PageReader:
    """Collects one page of records, and stops when it is full or has searched for long enough."""

    def __init__(self, source: ConsoleSource, topic: str, wanted: RecordFilter, limit: int, isolation: int) -> None:
        self._source = source
        self._topic = topic
        self._client = source.client
        self._wanted = wanted
        self._limit = limit
        self._isolation = isolation
        self._deadline = time.monotonic() + SCAN_SECONDS_MAX
        self._reached: dict[TopicPartition, int] = {}
        self.scanned = 0

    async def onward(self, ends: dict[TopicPartition, tuple[int, int]], starts: dict[int, int]) -> dict[str, Any]:
        """Records from `starts` onwards, in the order of timestamps within what was read."""
        positions = {tp: max(starts.get(tp[1], end), start) for tp, (start, end) in ends.items()}
        stops = {tp: end for tp, (_, end) in ends.items()}
        found: list[Found] = []
        after: dict[int, int] = {}
        async for one in self._read(positions, stops):
            found.append(one)
            after[one.partition] = one.record.offset + 1
            if len(found) >= self._limit:
                break
        found.sort(key=lambda each: (each.record.timestamp, each.partition, each.record.offset))
        following = {tp: max(reached, after.get(tp[1], 0)) for tp, reached in self._reached.items()}
        more = any(following[tp] < stop for tp, stop in stops.items())
        return await self._answer(found, {tp[1]: offset for tp, offset in following.items()} if more else None)

    async def newest(
        self, ends: dict[TopicPartition, tuple[int, int]], before: dict[int, int] | None
    ) -> dict[str, Any]:
        """The last records before `before` (or the end), newest first. Reads windows that grow towards the start."""
        stops = {tp: min(before.get(tp[1], start), end) if before else end for tp, (start, end) in ends.items()}
        newest: list[tuple[tuple[int, int, int], Found]] = []
        width = max(_STEP_BACK_MIN, self._limit)
        while True:
            froms = {tp: max(ends[tp][0], stop - width) for tp, stop in stops.items()}
            async for one in self._read({tp: froms[tp] for tp in froms if froms[tp] < stops[tp]}, stops):
                entry = ((one.record.timestamp, one.partition, one.record.offset), one)
                heapq.heappush(newest, entry)
                if len(newest) > self._limit:
                    heapq.heappop(newest)
            done = all(froms[tp] <= ends[tp][0] for tp in froms)
            stops = froms
            if len(newest) >= self._limit or done or time.monotonic() > self._deadline:
                break
            width *= 4
        found = [one for _, one in sorted(newest, key=lambda entry: entry[0], reverse=True)]
        if len(newest) >= self._limit:
            # The next page begins below the oldest record of each partition on this one.
            oldest: dict[int, int] = {}
            for one in found:
                oldest[one.partition] = min(oldest.get(one.partition, one.record.offset), one.record.offset)
            following = {tp: oldest.get(tp[1], (before or {}).get(tp[1], ends[tp][1])) for tp in stops}
        else:
            following = stops
        more = any(following[tp] > ends[tp][0] for tp in following)
        return await self._answer(found, {tp[1]: offset for tp, offset in following.items()} if more else None)

    async def _read(
        self, positions: dict[TopicPartition, int], stops: dict[TopicPartition, int]
    ) -> AsyncIterator[Found]:
        self._reached = dict(positions)
        left = {tp: position for tp, position in positions.items() if position < stops[tp]}
        if not left:
            return
        fetcher = Fetcher(
            self._client, left, isolation=self._isolation, max_wait_ms=100, partition_bytes=_PARTITION_BYTES
        )
        try:
            while fetcher.positions and time.monotonic() < self._deadline:
                for part in await fetcher.poll():
                    for one in found_in(part, positions[part.tp], stops[part.tp]):
                        self.scanned += 1
                        if await passes(self._source, self._topic, self._wanted, one.record):
                            yield one
                    self._reached[part.tp] = min(fetcher.positions[part.tp], stops[part.tp])
                for tp in [tp for tp, position in fetcher.positions.items() if position >= stops[tp]]:
                    self._reached[tp] = stops[tp]
                    del fetcher.positions[tp]
                # Compaction and transaction markers leave offsets without a record at the end.
                await asyncio.sleep(0)
        finally:
            await fetcher.close()

    async def _answer(self, found: list[Found], cursor: dict[int, int] | None) -> dict[str, Any]:
        return {
            "records": [await decoded(self._source, self._topic, one, shown(one)) for one in found],
            "scanned": self.scanned,
            "cursor": None if cursor is None else cursor_for(cursor),
        }


async def read_between(
    client: Client, ranges: dict[TopicPartition, tuple[int, int]], isolation: int = IsolationLevel.READ_COMMITTED
) -> AsyncIterator[Found]:
    """The records with offsets in the given ranges."""
    left = {tp: start for tp, (start, stop) in ranges.items() if start < stop}
    fetcher = Fetcher(client, left, isolation=isolation, max_wait_ms=100, partition_bytes=_PARTITION_BYTES)
    try:
        while fetcher.positions:
            for part in await fetcher.poll():
                for one in found_in(part, *ranges[part.tp]):
                    yield one
            for tp in [tp for tp, position in fetcher.positions.items() if position >= ranges[tp][1]]:
                del fetcher.positions[tp]
            await asyncio.sleep(0)
    finally:
        await fetcher.close()


def found_in(part: Fetched, first: int, stop: int) -> Iterable[Found]:
    """The records of an answer with offsets from `first` up to `stop`."""
    for batch in visible(part.batches, part.aborted):
        for record in batch.records():
            if first <= record.offset < stop:
                yield Found(part.tp[1], record, bool(batch.is_transactional))


_RECORD_PATH: Final = "/topics/{topic}/partitions/{partition}/records/{offset}"
RAW_PATH: Final = f"{_RECORD_PATH}/raw"
RAW_QUERY: Final = (Parameter("part", default="value", choices=("key", "value")),)


@operation(
    "GET",
    _RECORD_PATH,
    query=(
        Parameter("part", default="record", choices=("record", "key", "value")),
        Parameter("bytes", "integer", minimum=1, maximum=1 << 31, help="the most bytes of each part (default: all)"),
    ),
)
async def get_record(call: Call) -> Any:
    """One complete record."""
    found = await _named(call)
    record = shown(found, call.query["bytes"] or _WHOLE)
    record = await decoded(call.source, call.path["topic"], found, record)
    part = call.query["part"]
    return record if part == "record" else record[part]


async def raw_part(call: Call) -> AsyncIterator[bytes]:
    """The bytes of a key or a value."""
    found = await _named(call)
    data = found.record.key if call.query["part"] == "key" else found.record.value

    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(data or b"")

    return pieces()


async def _named(call: Call) -> Found:
    """The record in the path of a call."""
    return await _one(call, _number(call.path["partition"]), _number(call.path["offset"]))


async def _one(call: Call, index: int, offset: int) -> Found:
    client = call.source.client
    topic = await client.topic(call.path["topic"])
    if index not in topic.partitions:
        raise NotFound(f"topic {topic.name!r} has no partition {index}")
    start, end = (await bounds(client, [(topic.name, index)]))[topic.name, index]
    if start <= offset < end:
        fetcher = Fetcher(client, {(topic.name, index): offset}, max_wait_ms=100)
        try:
            for part in await fetcher.poll():
                for one in found_in(part, offset, offset + 1):
                    return one
        finally:
            await fetcher.close()
    raise NotFound(f"there is no record at offset {offset} of {topic.name}-{index} (it has {start} to {end - 1})")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise NotFound(f"{text!r} is not a number")
    return int(text)


_CONTENT: Final = {
    "oneOf": [
        {"type": "null"},
        {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
        {"type": "object", "required": ["base64"], "properties": {"base64": {"type": "string"}}},
    ]
}


@operation(
    "POST",
    "/topics/{topic}/records",
    body={
        "type": "object",
        "properties": {
            "key": _CONTENT,
            "value": _CONTENT,
            "headers": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "value": _CONTENT},
                },
            },
            "partition": {"type": "integer", "minimum": 0},
            "timestamp": {"type": "integer", "minimum": 0},
            "like": {
                "type": "object",
                "description": "a record of the topic: a key, value or headers that are not given are taken from it",
                "required": ["partition", "offset"],
                "properties": {
                    "partition": {"type": "integer", "minimum": 0},
                    "offset": {"type": "integer", "minimum": 0},
                },
            },
        },
    },
)
async def produce(call: Call) -> Any:
    """Write one record. A null value is a tombstone. Without a partition, the key decides; without a key, chance."""
    client = call.source.client
    topic = await client.topic(call.path["topic"])
    like = await _like(call)
    key = _content(call.body["key"], "key") if "key" in call.body else like.key
    value = _content(call.body["value"], "value") if "value" in call.body else like.value
    headers = _headers(call.body["headers"]) if "headers" in call.body else list(like.headers)
    default = partition_for(key, len(topic.partitions)) if key is not None else random.choice(tuple(topic.partitions))
    index = call.number("partition", default)
    if index not in topic.partitions:
        raise NotFound(f"topic {topic.name!r} has no partition {index}")
    timestamp = call.number("timestamp", int(time.time() * 1000))
    written: list[int] = []
    gatherer = Gatherer(Producer(client), on_sent=lambda tp, count, offset: written.append(offset))
    await gatherer.add((topic.name, index), timestamp, key, value, headers)
    await gatherer.flush()
    return {"partition": index, "offset": written[0]}


async def _like(call: Call) -> Record:
    """The record that a new one is based on, or an empty one."""
    like = call.body.get("like")
    if like is None:
        return Record(offset=0, timestamp=0, key=None, value=None, headers=[])
    if not isinstance(like, dict) or type(like.get("partition")) is not int or type(like.get("offset")) is not int:
        raise BadRequest("""'like' must be {"partition": N, "offset": N}""")
    return (await _one(call, like["partition"], like["offset"])).record


def _headers(given: Any) -> list[tuple[str, bytes | None]]:
    if not isinstance(given, list) or not all(
        isinstance(each, dict) and isinstance(each.get("name"), str) for each in given
    ):
        raise BadRequest("'headers' must be a list of objects with a name and a value")
    return [(each["name"], _content(each.get("value"), f"header {each['name']}")) for each in given]


def _content(given: Any, what: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, dict):
        text, encoded = given.get("text"), given.get("base64")
        if isinstance(text, str):
            return text.encode(errors="surrogatepass")
        if isinstance(encoded, str):
            try:
                return base64.b64decode(encoded, validate=True)
            except ValueError:
                raise BadRequest(f"the {what} is not base64") from None
    raise BadRequest(f'the {what} must be null, {{"text": …}} or {{"base64": …}}')
