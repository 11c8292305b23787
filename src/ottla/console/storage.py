"""The files of a partition, and how an offset or a time is found in them."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.answers import finished
from ottla.console.operations import BadRequest, Call, NotFound, Parameter, operation
from ottla.console.worker_views import first
from ottla.errors import KafkaError
from ottla.records.batch import CURRENT_MAGIC, HEADER_SIZE, Batch

if TYPE_CHECKING:
    from ottla.log.index import PagedIndex
    from ottla.log.log import Log
    from ottla.log.segment import Segment
    from ottla.server.broker import Broker

_ENTRIES_MAX: Final = 400
"""The maximum number of index entries to draw for a partition; more would not be visible."""
_SCANNED_MAX: Final = 200
_COMPACTED_MAX: Final = 2000
"""The maximum number of records in a picture of compaction."""
_KEY_BYTES: Final = 64
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

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
    """The log in the path of a call. The topic is looked up with the client first, because ACLs may hide it."""
    if not call.source.is_view:
        await call.source.client.topic(call.path["topic"])
    return log_of(call, call.path["topic"], int(call.path["partition"]))


@operation("GET", "/topics/{topic}/partitions/{partition:int}/storage", gather=first)
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
    gather=first,
)
async def look_up(call: Call) -> Any:
    """The steps in which a broker finds an offset or a time: the segment, the indexes, and the batches it scans."""
    offset, time_ms = call.query["offset"], call.query["time"]
    if (offset is None) == (time_ms is None):
        raise BadRequest("give either 'offset' or 'time'")
    log = await _asked_log(call)
    return _by_offset(log, offset) if time_ms is None else _by_time(log, time_ms)


def _segment_of(log: Log, offset: int) -> Segment:
    return next(each for each in reversed(log.segments) if each.base_offset <= offset or each is log.segments[0])


def _by_offset(log: Log, offset: int) -> dict[str, Any]:
    if not log.log_start_offset <= offset < log.log_end_offset:
        raise BadRequest(f"the log has offsets {log.log_start_offset} to {log.log_end_offset - 1}")
    segment = _segment_of(log, offset)
    steps: list[dict[str, Any]] = [_segment_step(segment, "the last segment that begins at or below the offset")]
    index_step, position = _index_step(segment, offset)
    scan, found = _scan_step(segment, position, lambda batch: batch.last_offset >= offset)
    return {"steps": [*steps, index_step, scan], "found": found}


def _by_time(log: Log, time_ms: int) -> dict[str, Any]:
    segment = next((each for each in log.segments if each.largest_timestamp >= time_ms), None)
    if segment is None:
        skipped = f"no segment has a record with this timestamp or a later one ({len(log.segments)} were checked)"
        return {"steps": [{"where": "segments", "text": skipped}], "found": None}
    steps = [_segment_step(segment, "the first segment whose largest timestamp is not before the time")]
    probes, slot = _search(segment.time_index, time_ms)
    offset = segment.base_offset + (segment.time_index.entry(slot)[1] if slot >= 0 else 0)
    before = f"the last entry at or before the time says: begin at offset {offset}"
    text = before if slot >= 0 else "no entry is at or before the time: begin with the segment"
    steps.append({"where": "timeindex", "text": text, "probes": probes})
    index_step, position = _index_step(segment, max(offset, log.log_start_offset))
    scan, found = _scan_step(segment, position, lambda batch: batch.max_timestamp >= time_ms)
    exact = finished(segment.find_timestamp(time_ms, log.log_start_offset))
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


@operation(
    "GET",
    "/topics/{topic}/partitions/{partition:int}/batches",
    query=(
        Parameter("offset", "integer", minimum=0, maximum=_OFFSET_MAX, help="the first one; the newest without it"),
        Parameter("limit", "integer", default=100, minimum=1, maximum=500),
    ),
    gather=first,
)
async def list_batches(call: Call) -> Any:
    """The batches of a partition from an offset on, or the newest ones, with what their headers say."""
    log = await _asked_log(call)
    wanted, limit = call.query["offset"], call.query["limit"]
    if wanted is None:
        segment = log.active_segment
        # Entries of the index are far enough apart that the last few of them lead to enough batches.
        index = segment.offset_index
        index.load()
        position = index.entry(max(0, index.count - limit))[1] if index.count else 0
        located = list(deque(segment.locate_from(position), maxlen=limit))
    else:
        segment = _segment_of(log, wanted)
        located = list(islice(segment.locate_from(segment.position_of(wanted)), limit))
    return [_batch(segment, each) for each in located]


def _batch(segment: Segment, located: Any) -> dict[str, Any]:
    shown = {
        "position": located.position,
        "bytes": located.size,
        "base_offset": located.base_offset,
        "last_offset": located.last_offset,
        "max_timestamp": located.max_timestamp,
        "segment": segment.base_offset,
    }
    batch = Batch(segment.log.view(located.position, HEADER_SIZE), 0)
    if batch.magic < CURRENT_MAGIC:
        return {**shown, "format": batch.magic}
    return {
        **shown,
        "format": batch.magic,
        "records": batch.record_count,
        "compression": _CODECS[batch.codec] if batch.codec < len(_CODECS) else str(batch.codec),
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id if batch.producer_id >= 0 else None,
        "transactional": bool(batch.is_transactional),
        "control": bool(batch.is_control),
    }


@operation("GET", "/topics/{topic}/partitions/{partition:int}/compaction", gather=first)
async def describe_compaction(call: Call) -> Any:
    """What compaction keeps of a partition: its records in order, and which of them are the last of their key."""
    log = await _asked_log(call)
    records: list[dict[str, Any]] = []
    last: dict[bytes, int] = {}
    truncated = False
    for segment in log.segments:
        for batch in segment.batches():
            if batch.magic < CURRENT_MAGIC or batch.is_control:
                continue
            for record in batch.records():
                key = None if record.key is None else bytes(record.key)
                records.append(
                    {
                        "offset": record.offset,
                        "key": None if key is None else key[:_KEY_BYTES].decode(errors="replace"),
                        "tombstone": record.value is None,
                        "bytes": len(record.key or b"") + len(record.value or b""),
                        "active": segment is log.active_segment,
                    }
                )
                if key is not None and segment is not log.active_segment:  # the cleaner ignores these
                    last[key] = record.offset
            truncated = len(records) >= _COMPACTED_MAX
            if truncated:
                break
            await asyncio.sleep(0)
        if truncated:
            break
    survivors = set(last.values())
    for each in records:
        each["kept"] = each["active"] or each["offset"] in survivors
    return {
        "compacted": log.config.compact,
        "truncated": truncated,
        "keys": len(last),
        "records": records,
        "kept": sum(each["kept"] for each in records),
    }


@operation("POST", "/topics/{topic}/partitions/{partition:int}/compact", body={"type": "object"}, gather=first)
async def compact(call: Call) -> Any:
    """Compact a partition now, except its active segment."""
    log = await _asked_log(call)
    if not log.config.compact:
        raise BadRequest("the topic is not compacted: set cleanup.policy=compact first")
    before = log.size_bytes
    topic, index = call.path["topic"], int(call.path["partition"])
    server = next(each for each in call.source.need_inside().servers().values() if _leads(each, topic, index))
    loop = asyncio.get_running_loop()
    cleaner = server.housekeeper.cleaner
    for cleaning in server.housekeeper.compact_now(topic, index):
        await loop.run_in_executor(None, cleaning.step)
        while cleaner.apply(cleaning):
            await loop.run_in_executor(None, cleaning.step)
    return {"bytes_before": before, "bytes_after": log.size_bytes}


def _leads(server: Broker, topic: str, index: int) -> bool:
    try:
        server.replicas.leader(topic, index)
    except KafkaError:
        return False
    return True


def unread_ms(call: Call, topic: str, index: int, offset: int) -> int | None:
    """How long the record at `offset` has waited to be read; None if this process does not know."""
    try:
        log = log_of(call, topic, index)
    except NotFound:
        return None
    if not log.log_start_offset <= offset < log.log_end_offset:
        return 0
    segment = _segment_of(log, offset)
    found = segment.find(offset)
    if found is None:
        return None
    batch = next(segment.locate_from(found[0]), None)
    return None if batch is None or batch.max_timestamp < 0 else max(0, log.clock.now_ms() - batch.max_timestamp)
