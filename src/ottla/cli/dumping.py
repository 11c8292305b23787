"""The files of a data folder as dictionaries, one for each batch, record, entry or line."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.errors import KafkaError
from ottla.log.index import OffsetIndex, TimeIndex, TransactionIndex
from ottla.log.producers import CorruptSnapshot, decode_snapshot
from ottla.records.batch import Batch, ControlRecord
from ottla.records.legacy import LegacyBatch, any_batches
from ottla.wire import stored
from ottla.wire.primitives import MalformedMessage, uuid_to_base64
from ottla.wire.schema import Struct

Entry = dict[str, Any]

SEGMENT_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
LEFTOVER_SUFFIXES: Final = (".deleted", ".cleaned", ".swap")
TEXT_FILES: Final = (
    "meta.properties",
    "partition.metadata",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "quorum-state",
    ".kafka_cleanshutdown",
)
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CONTROL_TYPES: Final = (
    "abort",
    "commit",
    "leader-change",
    "snapshot-header",
    "snapshot-footer",
    "kraft-version",
    "voters",
)
_TOPICS: Final = {
    "__consumer_offsets": "offsets",
    "__transaction_state": "transactions",
    "__share_group_state": "share-state",
    "__cluster_metadata": "metadata",
}


class Options(NamedTuple):
    records: bool = False
    decode: str = "auto"
    offsets: tuple[int, int] | None = None


def plain_name(name: str) -> str:
    """The name without the suffixes of cleaning and deleting."""
    for suffix in LEFTOVER_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def is_known(name: str) -> bool:
    return name in TEXT_FILES or plain_name(name).endswith(SEGMENT_SUFFIXES)


def dump_file(path: Path, options: Options) -> Iterator[Entry]:
    """Entries of any file of a data folder, by its name."""
    name = plain_name(path.name)
    if name.endswith((".log", ".checkpoint")):  # a metadata snapshot is a log as well
        return dump_log(path, options)
    if name.endswith(".index"):
        return dump_index(path)
    if name.endswith(".timeindex"):
        return dump_time_index(path)
    if name.endswith(".txnindex"):
        return dump_txn_index(path)
    if name.endswith(".snapshot"):
        return dump_snapshot(path)
    if name in TEXT_FILES:
        return dump_text(path)
    return iter([{"kind": "file", "problem": "not a file of a data folder that can be printed"}])


def base_offset_of(path: Path) -> int:
    digits = path.name.partition(".")[0].partition("-")[0]
    return int(digits) if digits.isdigit() else 0


# --- logs ------------------------------------------------------------------------------------------------------------


def mapped(path: Path) -> memoryview:
    """A memory map of a file: a segment can be as large as a gigabyte."""
    if not path.stat().st_size:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def dump_log(path: Path, options: Options) -> Iterator[Entry]:
    return _dump_batches(mapped(path), path, options)


def _dump_batches(data: memoryview, path: Path, options: Options) -> Iterator[Entry]:
    decode = _decoder_for(path, options)
    position = 0
    try:
        for batch in any_batches(data):
            position = batch.position + batch.size
            if options.offsets is not None and not _touches(batch, options.offsets):
                continue
            yield _batch_entry(batch)
            if options.records:
                yield from _record_entries(batch, decode)
    except KafkaError as error:
        yield {"kind": "damage", "position": position, "bytes": len(data) - position, "problem": error.message}
        return
    if position < len(data):
        rest = len(data) - position
        is_torn = bool(data[position:].tobytes().strip(b"\0"))
        what = "a truncated batch" if is_torn else "zeros, preallocated"
        entry: Entry = {"kind": "tail", "position": position, "bytes": rest, "content": what}
        if is_torn:
            entry["problem"] = "the last batch is incomplete"
        yield entry


def _touches(batch: Batch | LegacyBatch, offsets: tuple[int, int]) -> bool:
    first = batch.base_offset if isinstance(batch, Batch) else batch.last_offset
    return batch.last_offset >= offsets[0] and first <= offsets[1]


def _batch_entry(batch: Batch | LegacyBatch) -> Entry:
    if isinstance(batch, LegacyBatch):
        entry: Entry = {
            "kind": "message-set" if batch.is_compressed else "message",
            "offset": batch.last_offset,
            "position": batch.position,
            "bytes": batch.size,
            "magic": batch.magic,
            "codec": _codec(batch.codec),
            "timestamp": batch.max_timestamp,
        }
    else:
        entry = {
            "kind": "batch",
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "count": batch.record_count,
            "position": batch.position,
            "bytes": batch.size,
            "leader_epoch": batch.leader_epoch,
            "codec": _codec(batch.codec),
            "timestamps": "append" if batch.timestamp_type else "create",
            "base_timestamp": batch.base_timestamp,
            "max_timestamp": batch.max_timestamp,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.last_sequence,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "crc": f"{batch.crc:08x}",
        }
        if batch.has_delete_horizon:
            entry["delete_horizon"] = batch.delete_horizon_ms
    if not batch.crc_ok():
        entry["problem"] = "the CRC is wrong"
    return entry


def _codec(number: int) -> str:
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"codec {number}"


def _record_entries(batch: Batch | LegacyBatch, decode: str) -> Iterator[Entry]:
    try:
        if isinstance(batch, Batch) and batch.is_control:
            for control in batch.control_records():
                yield _control_entry(control)
            return
        for record in batch.records():
            entry: Entry = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
            entry |= _decoded(decode, record.key, record.value)
            if record.headers:
                entry["headers"] = [{"name": name, "value": value} for name, value in record.headers]
            yield entry
    except KafkaError as error:
        yield {"kind": "record", "problem": f"the records cannot be read: {error.message}"}


def _control_entry(control: ControlRecord) -> Entry:
    known = control.type < len(CONTROL_TYPES)
    entry: Entry = {
        "kind": "record",
        "offset": control.offset,
        "timestamp": control.timestamp,
        "control": CONTROL_TYPES[control.type] if known else f"type {control.type}",
    }
    if control.type <= 1:
        entry["coordinator_epoch"] = control.coordinator_epoch
    elif known and control.value is not None:
        names = ("LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord")
        cls = getattr(stored, (*names, "VotersRecord")[control.type - 2])
        try:
            # The first field of these records is their version.
            version = min(int.from_bytes(control.value[:2], "big"), cls.MAX_VERSION)
            entry["value"] = as_dict(cls.decoder(version)(control.value, 0)[0])
        except (MalformedMessage, IndexError):
            entry["value"] = control.value
    return entry


# --- what records of internal topics mean ----------------------------------------------------------------------------


def _decoder_for(path: Path, options: Options) -> str:
    if options.decode != "auto":
        return options.decode
    topic = path.parent.name.partition(".")[0].rpartition("-")[0]
    return _TOPICS.get(topic, "none")


def _decoded(decode: str, key: bytes | None, value: bytes | None) -> Entry:
    """Decoded key and value; as bytes if they belong to an application or cannot be decoded."""
    if decode == "none":
        return {"key": key, "value": value}
    try:
        if decode == "metadata":
            message, version = stored.decode_metadata_record(value or b"")
            return {"type": type(message).__name__, "version": version, "value": as_dict(message)}
        topics = {
            "offsets": "OFFSETS_TOPIC",
            "transactions": "TRANSACTION_TOPIC",
            "share-state": "SHARE_STATE_TOPIC",
        }
        registry: stored.CoordinatorRecords = getattr(stored, topics[decode])
        decoded_key, decoded_value = registry.decode(key or b"", value)
        return {
            "type": type(decoded_key).__name__.removesuffix("Key"),
            "key": as_dict(decoded_key),
            "value": None if decoded_value is None else as_dict(decoded_value),
        }
    except (MalformedMessage, ValueError, IndexError) as error:
        return {"key": key, "value": value, "note": f"not decoded: {error}"}


def as_dict(message: Struct) -> Any:
    """A message as a dictionary, with UUIDs in Kafka's text form."""
    found: Entry = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if isinstance(value, Struct):
            value = as_dict(value)
        elif isinstance(value, list):
            uuids = field.kind == "array" and field.struct is None and field.item_kind == "uuid"
            value = [as_dict(v) if isinstance(v, Struct) else uuid_to_base64(v) if uuids else v for v in value]
        elif field.kind == "uuid" and isinstance(value, bytes):
            value = uuid_to_base64(value)
        elif isinstance(value, bytes | memoryview):
            value = bytes(value)
        found[field.name] = value
    return found


# --- indexes, snapshots, checkpoints ---------------------------------------------------------------------------------


def index_entries(data: bytes, size: int) -> tuple[bytes, int]:
    """The entries without the zeros that Kafka preallocates, and the number of extra bytes after the last whole
    entry.
    """
    used = -(-len(data.rstrip(b"\0")) // size) * size
    return data[: min(used, len(data) // size * size)], len(data) % size


def dump_index(path: Path) -> Iterator[Entry]:
    data = path.read_bytes()
    entries, rest = index_entries(data, OffsetIndex.ENTRY.size)
    base = base_offset_of(path)
    for relative, position in OffsetIndex.ENTRY.iter_unpack(entries):
        yield {"kind": "entry", "offset": base + relative, "position": position}
    yield from _ragged(rest)


def dump_time_index(path: Path) -> Iterator[Entry]:
    data = path.read_bytes()
    entries, rest = index_entries(data, TimeIndex.ENTRY.size)
    base = base_offset_of(path)
    for timestamp, relative in TimeIndex.ENTRY.iter_unpack(entries):
        yield {"kind": "entry", "timestamp": timestamp, "offset": base + relative}
    yield from _ragged(rest)


def dump_txn_index(path: Path) -> Iterator[Entry]:
    data = path.read_bytes()
    size = TransactionIndex.ENTRY.size
    for version, producer_id, first, last, stable in TransactionIndex.ENTRY.iter_unpack(
        data[: len(data) // size * size]
    ):
        yield {
            "kind": "aborted",
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }
    yield from _ragged(len(data) % size)


def _ragged(rest: int) -> Iterator[Entry]:
    if rest:
        yield {"kind": "tail", "bytes": rest, "problem": "the last entry is incomplete"}


def dump_snapshot(path: Path) -> Iterator[Entry]:
    try:
        states = decode_snapshot(path.read_bytes())
    except CorruptSnapshot as error:
        yield {"kind": "snapshot", "problem": error.message}
        return
    if not states:
        yield {"kind": "snapshot", "producers": 0}
    for state in states:
        last = state.batches[-1] if state.batches else None
        yield {
            "kind": "producer",
            "producer_id": state.producer_id,
            "producer_epoch": state.epoch,
            "last_sequence": state.last_sequence,
            "last_offset": -1 if last is None else last.last_offset,
            "offset_delta": 0 if last is None else last.offset_delta,
            "last_timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_first_offset": state.txn_first_offset,
        }


def dump_text(path: Path) -> Iterator[Entry]:
    text = path.read_text("utf-8", "replace")
    name = path.name
    if name == "leader-epoch-checkpoint":
        columns: tuple[str, ...] = ("epoch", "start_offset")
    elif name.endswith("-checkpoint"):
        columns = ("topic", "partition", "offset")
    elif name in ("quorum-state", ".kafka_cleanshutdown"):
        try:
            content = json.loads(text or "{}")
            yield {"kind": name.lstrip("."), **content}
        except ValueError as error:
            yield {"kind": name.lstrip("."), "problem": f"not JSON: {error}"}
        return
    else:
        separator = ": " if name == "partition.metadata" else "="
        pairs = [line.partition(separator) for line in text.splitlines() if line and not line.startswith("#")]
        yield {"kind": "properties", **{key.strip(): value.strip() for key, _, value in pairs}}
        return
    lines = text.splitlines()
    for line in lines[2:]:
        cells = line.split()
        problem = {} if len(cells) == len(columns) else {"problem": f"not {len(columns)} columns: {line!r}"}
        yield {"kind": "entry", **{c: _number(cell) for c, cell in zip(columns, cells, strict=False)}, **problem}
    if len(lines) >= 2 and lines[1].strip() != str(len(lines) - 2):
        yield {"kind": "tail", "problem": f"{len(lines) - 2} lines, but the file says {lines[1].strip()}"}


def _number(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text
