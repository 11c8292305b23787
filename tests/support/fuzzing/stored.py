"""Targets for data that a broker reads back (files of a data folder, records of internal topics, settings) and for data
that clients nest in requests. They may raise only the errors that mean damage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ottla.clock import ManualClock
from ottla.config import ConfigError
from ottla.config.properties import parse_properties
from ottla.coordinator.groups import records as group_records
from ottla.coordinator.groups.classic import consumer_metadata
from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.coordinator.share_state import records as share_records
from ottla.coordinator.transactions import records as transaction_records
from ottla.errors import KafkaError
from ottla.log import checkpoints
from ottla.log.files import MemoryDisk
from ottla.log.index import CorruptIndex, OffsetIndex, TimeIndex, TransactionIndex
from ottla.log.loader import open_log
from ottla.log.options import LogConfig
from ottla.log.producers import CorruptSnapshot, decode_snapshot
from ottla.records import legacy, streaming
from ottla.records.batch import Batch, Record, build_batch
from ottla.records.checksum import crc32c
from ottla.records.conversion import down_convert
from ottla.records.validation import ValidationOptions, validate
from ottla.registry.records import CorruptRecord as CorruptSchemaRecord
from ottla.registry.records import StoredRecord, read_record
from ottla.server.net.buffers import ReceiveBuffers
from ottla.server.net.framing import FrameError, FrameReader
from ottla.server.security.jaas import parse_jaas
from ottla.server.security.jwt import split_token
from ottla.server.security.mechanisms import InvalidToken
from ottla.wire.primitives import MalformedMessage
from ottla.wire.stored.coding import UnknownRecordType, decode_metadata_record

CLOCK = ManualClock(1_700_000_000_000)
OPTIONS = ValidationOptions(decompressed_limit=1 << 20, max_message_bytes=1 << 20)
FRAME_MAX = 1 << 16


def halves(data: bytes) -> tuple[bytes, bytes]:
    """A key and a value: the first byte sets the length of the key."""
    size = data[0] if data else 0
    return data[1 : 1 + size], data[1 + size :]


def frames(data: bytes) -> None:
    """A stream in pieces, whose sizes are also in it. Every byte becomes part of one frame or is refused."""
    reader = FrameReader(ReceiveBuffers(), 4, FRAME_MAX)
    position = 0
    given = 0
    with suppress(FrameError):
        while position < len(data):
            piece = data[position : position + 1 + data[position] % 64][: len(reader.room)]
            reader.room[: len(piece)] = piece
            reader.received(len(piece))
            position += len(piece)
            while (frame := reader.next()) is not None:
                given += 4 + len(frame)
        assert given <= len(data)


def message_set(data: bytes) -> None:
    """Formats 0 and 1, as old producers send them, and their conversion for older readers."""
    with suppress(KafkaError):
        validate(bytearray(data), OPTIONS, CLOCK.now_ms(), 2)
    with suppress(KafkaError):
        for entry in legacy.any_batches(data):
            list(entry.records(1 << 20))
            break


def payload(data: bytes) -> None:
    """A compressed payload in pieces gives the same result as in one piece, or an error in both cases."""
    codec = data[0] % 6 if data else 0
    with suppress(KafkaError):
        for piece in streaming.decompressed(codec, data[1:]):
            assert len(piece) <= len(data) * 24 + streaming.WINDOW_BYTES


def conversion(data: bytes) -> None:
    """Converts a stored batch for an old reader."""
    buffer = bytearray(data[1:])
    if len(buffer) >= 61:
        buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
        buffer[16] = 2
        buffer[17:21] = crc32c(bytes(buffer[21:])).to_bytes(4, "big")
    with suppress(KafkaError):
        down_convert(bytes(buffer), data[0] & 1 if data else 0)
    with suppress(KafkaError):
        if len(buffer) >= 61:
            for _ in Batch(buffer).record_times():
                pass


def indexes(data: bytes) -> None:
    """An intact log with arbitrary indexes: reads still find every record."""
    disk = MemoryDisk(CLOCK)
    disk.mkdir("t-0")
    log = open_log(disk, "t", 0, LogConfig(index_interval_bytes=1), CLOCK)
    for number in range(4):
        log.append([Batch(build_batch([Record(0, CLOCK.now_ms() + number, b"k", b"v" * 40)]))], 0)
    log.close()
    suffix = ("index", "timeindex", "txnindex")[data[0] % 3 if data else 0]
    path = f"t-0/{0:020d}.{suffix}"
    disk.remove(path)
    disk.open(path).append([data[1:]])
    again = open_log(disk, "t", 0, LogConfig(), CLOCK, clean=True, recovery_point=4)
    for offset in range(4):
        assert len(again.read(offset, 1 << 20).records), f"offset {offset} was not found"
    again.offset_for_timestamp(CLOCK.now_ms() + 2)
    again.aborted_transactions(0, 4)
    for kind in (OffsetIndex, TimeIndex):
        with suppress(CorruptIndex, KafkaError):
            kind(disk.open(path), 0).load()
    with suppress(CorruptIndex, KafkaError):
        TransactionIndex(disk, path, True).check(0, len(data) - 1)


def snapshot(data: bytes) -> None:
    """A producer snapshot with a correct checksum."""
    with suppress(CorruptSnapshot):
        decode_snapshot(data)
    if len(data) >= 10:
        fixed = b"\0\1" + crc32c(data[6:]).to_bytes(4, "big") + data[6:]
        with suppress(CorruptSnapshot):
            decode_snapshot(fixed)


def checkpoint(data: bytes) -> None:
    disk = MemoryDisk(CLOCK)
    disk.mkdir("t-0")
    for path in ("recovery-point-offset-checkpoint", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata"):
        disk.open(path).append([data])
    checkpoints.read_offsets(disk, "recovery-point-offset-checkpoint")
    checkpoints.read_partition_metadata(disk, "t-0")
    open_log(disk, "t", 0, LogConfig(), CLOCK).close()


def metadata_record(data: bytes) -> None:
    with suppress(MalformedMessage, UnknownRecordType):
        decode_metadata_record(data)


def coordinator_record(data: bytes) -> None:
    key, value = halves(data)
    for decode in (group_records.decode_record, transaction_records.decode_record, share_records.decode_record):
        for given in (value, None):
            with suppress(CorruptRecord):
                decode(key, given)


def member_metadata(data: bytes) -> None:
    """The metadata that members of a classic group send in JoinGroup and SyncGroup."""
    for decode in (
        consumer_metadata.decode_topics,
        consumer_metadata.decode_subscription,
        consumer_metadata.decode_assignment,
    ):
        with suppress(consumer_metadata.MalformedMetadata):
            decode(data)


def schemas_record(data: bytes) -> None:
    """A record of `_schemas`."""
    key, value = halves(data)
    for given in (value, None):
        with suppress(CorruptSchemaRecord):
            read_record(StoredRecord(0, 0, key, given))


def properties(data: bytes) -> None:
    with suppress(ConfigError):
        parse_properties(data.decode("utf-8", "replace"))


def jaas(data: bytes) -> None:
    with suppress(ConfigError):
        parse_jaas(data.decode("utf-8", "replace"), "sasl.jaas.config")


def token(data: bytes) -> None:
    with suppress(InvalidToken):
        split_token(data.decode("latin-1"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "frames": frames,
    "message-set": message_set,
    "payload": payload,
    "conversion": conversion,
    "indexes": indexes,
    "snapshot": snapshot,
    "checkpoint": checkpoint,
    "metadata-record": metadata_record,
    "coordinator-record": coordinator_record,
    "member-metadata": member_metadata,
    "schemas-record": schemas_record,
    "properties": properties,
    "jaas": jaas,
    "token": token,
}
