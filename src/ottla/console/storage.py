"""What a partition is made of on the disk, and how an offset or a time is found in it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.console.operations import BadRequest, Call, NotFound, Parameter, operation
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.log.index import PagedIndex
    from ottla.log.log import Log
    from ottla.log.segment import Segment

_ENTRIES_MAX: Final = 400
"""Index entries that are drawn for a partition; more than this cannot be told apart."""
_SCANNED_MAX: Final = 200

_OFFSET_MAX: Final = (1 << 63) - 1


def log_of(call: Call, topic: str, index: int) -> Log:
    """The log of a partition, at its leader."""
    for server in call.source.need_inside().servers().values():
        try:
            return server.replicas.leader(topic, index).log
        except KafkaError:
            continue
    raise NotFound(f"no broker of this process leads {topic}-{index}")


async def _asked_log(call: Call) -> Log:
    """The log that a call names. The client asks for the topic first: ACLs may hide it."""
    topic = await call.source.client.topic(call.path["topic"])
    return log_of(call, topic.name, int(call.path["partition"]))


@operation("GET", "/topics/{topic}/partitions/{partition:int}/storage")
async def describe_storage(call: Call) -> Any:
    """The segments of a partition with their index entries, and the offsets that bound it."""
    log = await _asked_log(call)
    return {
        "start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "end_offset": log.log_end_offset,
        "bytes": log.size_bytes,
        "index_interval_bytes": log.config.index_interval_bytes,
        "segments": [_shown(log, segment) for segment in log.segments],
    }


def _shown(log: Log, segment: Segment) -> dict[str, Any]:
    following = [each.base_offset for each in log.segments if each.base_offset > segment.base_offset]
    index = segment.offset_index
    index.load()
    segment.time_index.load()
    step = max(1, index.count * len(log.segments) // _ENTRIES_MAX)
    return {
        "base_offset": segment.base_offset,
        "next_offset": min(following, default=log.log_end_offset),
        "bytes": segment.size,
        "active": segment is log.active_segment,
        "max_timestamp": segment.max_timestamp,
        "index_entries": index.count,
        "time_index_entries": segment.time_index.count,
        "entries": [segment.base_offset + index.entry(slot)[0] for slot in range(0, index.count, step)],
    }


@operation(
    "GET",
    "/topics/{topic}/partitions/{partition:int}/lookup",
    query=(
        Parameter("offset", "integer", minimum=0, maximum=_OFFSET_MAX),
        Parameter("time", "integer", minimum=0, maximum=_OFFSET_MAX, help="milliseconds since 1970"),
    ),
)
async def look_up(call: Call) -> Any:
    """The steps in which a broker finds an offset or a time: the segment, the indexes, and the batches it scans."""
    offset, time_ms = call.query["offset"], call.query["time"]
    if (offset is None) == (time_ms is None):
        raise BadRequest("give either 'offset' or 'time'")
    log = await _asked_log(call)
    return _by_offset(log, offset) if time_ms is None else _by_time(log, time_ms)


def _by_offset(log: Log, offset: int) -> dict[str, Any]:
    if not log.log_start_offset <= offset < log.log_end_offset:
        raise BadRequest(f"the log has offsets {log.log_start_offset} to {log.log_end_offset - 1}")
    segment = next(each for each in reversed(log.segments) if each.base_offset <= offset or each is log.segments[0])
    steps: list[dict[str, Any]] = [_segment_step(segment, "the last segment that begins at or below the offset")]
    index_step, position = _index_step(segment, offset)
    scan, found = _scan_step(segment, position, lambda batch: batch.last_offset >= offset)
    return {"steps": [*steps, index_step, scan], "found": found}


def _by_time(log: Log, time_ms: int) -> dict[str, Any]:
    segment = next((each for each in log.segments if each.largest_timestamp >= time_ms), None)
    if segment is None:
        skipped = f"no segment has a record with this timestamp or a later one ({len(log.segments)} were looked at)"
        return {"steps": [{"where": "segments", "text": skipped}], "found": None}
    steps = [_segment_step(segment, "the first segment whose largest timestamp is not before the time")]
    probes, slot = _search(segment.time_index, time_ms)
    offset = segment.base_offset + (segment.time_index.entry(slot)[1] if slot >= 0 else 0)
    before = f"the last entry at or before the time says: begin at offset {offset}"
    text = before if slot >= 0 else "no entry is at or before the time: begin with the segment"
    steps.append({"where": "timeindex", "text": text, "probes": probes})
    index_step, position = _index_step(segment, max(offset, log.log_start_offset))
    scan, found = _scan_step(segment, position, lambda batch: batch.max_timestamp >= time_ms)
    exact = segment.find_timestamp(time_ms, log.log_start_offset)
    if found is not None and exact is not None:
        found = {**found, "offset": exact.offset, "timestamp": exact.timestamp}
    return {"steps": [*steps, index_step, scan], "found": found}


def _segment_step(segment: Segment, why: str) -> dict[str, Any]:
    return {"where": "segments", "text": f"{segment.base_offset:020d}.log: {why}", "base_offset": segment.base_offset}


def _index_step(segment: Segment, offset: int) -> tuple[dict[str, Any], int]:
    probes, slot = _search(segment.offset_index, offset - segment.base_offset)
    relative, position = segment.offset_index.entry(slot) if slot >= 0 else (0, 0)
    said = f"the last entry at or below is offset {segment.base_offset + relative}, at byte {position} of the log"
    text = said if slot >= 0 else "no entry is at or below the offset: begin at byte 0 of the log"
    for probe in probes:
        probe["key"] += segment.base_offset
    return {"where": "index", "text": text, "probes": probes}, position


def _search(index: PagedIndex, key: int) -> tuple[list[dict[str, Any]], int]:
    """A binary search for the last entry whose key is at most `key`, with every entry that it looks at."""
    index.load()
    probes: list[dict[str, Any]] = []
    low, high = -1, index.count
    while high - low > 1:
        middle = (low + high) >> 1
        found, value = index.entry(middle)
        probes.append({"slot": middle, "key": found, "value": value, "goes": "right" if found <= key else "left"})
        low, high = (middle, high) if found <= key else (low, middle)
    return probes, low


def _scan_step(segment: Segment, position: int, is_found: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    batches = []
    found = None
    for batch in islice(segment.locate_from(position), _SCANNED_MAX):
        batches.append(
            {
                "position": batch.position,
                "bytes": batch.size,
                "base_offset": batch.base_offset,
                "last_offset": batch.last_offset,
                "max_timestamp": batch.max_timestamp,
            }
        )
        if is_found(batch):
            found = batches[-1]
            break
    text = f"from byte {position} on, {len(batches)} batch{'' if len(batches) == 1 else 'es'} until the one that has it"
    return {"where": "scan", "text": text, "batches": batches}, found


def unread_ms(call: Call, topic: str, index: int, offset: int) -> int | None:
    """How long the record at `offset` has waited to be read; None where this process cannot tell."""
    try:
        log = log_of(call, topic, index)
    except NotFound:
        return None
    if not log.log_start_offset <= offset < log.log_end_offset:
        return 0
    segment = next(each for each in reversed(log.segments) if each.base_offset <= offset or each is log.segments[0])
    found = segment.find(offset)
    if found is None:
        return None
    batch = next(segment.locate_from(found[0]), None)
    return None if batch is None or batch.max_timestamp < 0 else max(0, log.clock.now_ms() - batch.max_timestamp)
