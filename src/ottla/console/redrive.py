"""Sends the records of a dead-letter topic back to the topics they came from.

Tools that write dead letters store the origin in headers; the names of the headers differ. A record without such a
header goes to the topic that the caller chooses.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.client.offsets import bounds
from ottla.client.producer import Gatherer, Producer, partition_for
from ottla.client.routing import TopicPartition
from ottla.console.operations import BadRequest, Call, NotFound, operation
from ottla.console.records import Found, read_between
from ottla.records.record import Record

ORIGIN_HEADERS: Final = (
    "ottla.origin.topic",  # Ottla's pipelines
    "kafka_dlt-original-topic",  # Spring
    "__connect.errors.topic",  # Kafka Connect
    "_dlq.topic",
    "original-topic",
)
"""Headers that contain the origin topic of a record; the first one found counts."""
_ADDED: Final = ("ottla.origin.", "ottla.error", "ottla.pipeline", "kafka_dlt-", "__connect.errors.", "_dlq.")
"""Prefixes of headers that were added with the dead letter: they are removed."""

RECORDS_MAX: Final = 10_000
"""The maximum number of records that one call moves. It returns its position, and the next call continues there."""


@operation(
    "POST",
    "/topics/{topic}/redrive",
    body={
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "the topic for records that do not say where they came from"},
            "from_offsets": {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 0},
                "description": "where to begin, by partition; what an earlier answer gave as `next_offsets`",
            },
            "only": {
                "type": "object",
                "required": ["partition", "offset"],
                "properties": {
                    "partition": {"type": "integer", "minimum": 0},
                    "offset": {"type": "integer", "minimum": 0},
                },
            },
            "preview": {"type": "boolean", "default": True},
        },
    },
)
async def redrive(call: Call) -> Any:
    """Send dead letters back to the topics they came from. With `preview` (the default) nothing is written."""
    client = call.source.client
    topic = await client.topic(call.path["topic"])
    preview = call.body.get("preview", True)
    if not isinstance(preview, bool):
        raise BadRequest("'preview' must be true or false")
    fallback = call.text("to") if "to" in call.body else None
    if fallback == topic.name:
        raise BadRequest("the records are in that topic already")
    ends = await bounds(client, [(topic.name, index) for index in topic.partitions])
    ranges = _ranges(call, topic.name, ends)
    counts: dict[str | None, int] = {}
    moved: list[tuple[str, Found]] = []
    reached = {tp[1]: start for tp, (start, _) in ranges.items()}
    taken = 0
    async for found in read_between(client, ranges):
        if taken >= RECORDS_MAX:
            break
        taken += 1
        reached[found.partition] = found.record.offset + 1
        target = _origin(found.record) or fallback
        counts[target] = counts.get(target, 0) + 1
        if target is not None and not preview:
            moved.append((target, found))
    if not preview:
        await _send(call, moved)
    more = taken >= RECORDS_MAX and any(reached[tp[1]] < stop for tp, (_, stop) in ranges.items())
    return {
        "preview": preview,
        "to": [{"topic": target, "records": count} for target, count in counts.items() if target is not None],
        "without_origin": counts.get(None, 0),
        "next_offsets": {str(index): offset for index, offset in reached.items()} if more else None,
    }


def _ranges(
    call: Call, topic: str, ends: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    only = call.body.get("only")
    if only is not None:
        if not isinstance(only, dict) or type(only.get("partition")) is not int or type(only.get("offset")) is not int:
            raise BadRequest("""'only' must be {"partition": N, "offset": N}""")
        tp = (topic, only["partition"])
        if tp not in ends or not ends[tp][0] <= only["offset"] < ends[tp][1]:
            raise NotFound(f"there is no record at offset {only['offset']} of {topic}-{only['partition']}")
        return {tp: (only["offset"], only["offset"] + 1)}
    given = call.body.get("from_offsets", {})
    if not isinstance(given, dict) or not all(type(offset) is int for offset in given.values()):
        raise BadRequest("'from_offsets' must have an offset for each partition")
    return {tp: (max(start, given.get(str(tp[1]), start)), end) for tp, (start, end) in ends.items()}


def _origin(record: Record) -> str | None:
    headers = dict(record.headers)
    for name in ORIGIN_HEADERS:
        content = headers.get(name)
        if content:
            return content.decode(errors="replace")
    return None


async def _send(call: Call, moved: list[tuple[str, Found]]) -> None:
    """The key chooses the partition; headers that were added with the dead letter are removed."""
    client = call.source.client
    counts = {name: len((await client.topic(name)).partitions) for name in {target for target, _ in moved}}
    gatherer = Gatherer(Producer(client))
    turn = 0
    for target, found in moved:
        record = found.record
        if record.key is None:
            partition, turn = turn % counts[target], turn + 1
        else:
            partition = partition_for(bytes(record.key), counts[target])
        headers = [(name, content) for name, content in record.headers if not name.startswith(_ADDED)]
        await gatherer.add((target, partition), record.timestamp, record.key, record.value, headers)
    await gatherer.flush()
