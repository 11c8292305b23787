"""Targets of a coverage-guided fuzzer: they get bytes, and may raise only the error meant for invalid input."""

from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from ottla.clock import ManualClock
from ottla.errors import KafkaError
from ottla.log.files import MemoryDisk
from ottla.log.loader import open_log
from ottla.log.options import LogConfig
from ottla.records.batch import batches
from ottla.records.checksum import crc32c
from ottla.records.validation import ValidationOptions, validate
from ottla.wire.frames import decode_request_header
from ottla.wire.messages import REQUESTS
from ottla.wire.primitives import MalformedMessage
from support.fuzzing import outside, stored

CLOCK = ManualClock(1_700_000_000_000)
OPTIONS = {
    compacted: ValidationOptions(compacted=compacted, decompressed_limit=1 << 20, max_message_bytes=1 << 20)
    for compacted in (False, True)
}
HEADER_BYTES = 61


def request(data: bytes) -> None:
    """A frame: header, then the body that the header announces."""
    with suppress(MalformedMessage, UnicodeDecodeError):
        header, position = decode_request_header(memoryview(data))
        cls = REQUESTS.get(header.api_key)
        if cls is not None and cls.MIN_VERSION <= header.api_version <= cls.MAX_VERSION:
            decoded, _ = cls.decoder(header.api_version)(memoryview(data), position)
            decoded.encode(header.api_version)  # what was decoded can be encoded


def batch(data: bytes) -> None:
    """A batch from a producer, with a correct checksum, because a fuzzer cannot guess one."""
    buffer = bytearray(data[1:])
    if len(buffer) >= HEADER_BYTES:
        buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
        buffer[16] = 2
        buffer[17:21] = crc32c(bytes(buffer[21:])).to_bytes(4, "big")
    with suppress(KafkaError):
        checked = validate(buffer, OPTIONS[bool(data[:1] and data[0] & 1)], CLOCK.now_ms(), 9)
        if checked is not None:
            for _ in checked.batch.records():
                pass


def recovery(data: bytes) -> None:
    """A log whose newest segment is arbitrary bytes: it opens, and ends after its last valid batch.

    Earlier batches may be out of order, as in Kafka: no checksum covers their offsets.
    """
    disk = MemoryDisk(CLOCK)
    disk.mkdir("t-0")
    disk.open("t-0/00000000000000000000.log").append([data])
    disk.open("t-0/00000000000000000000.index").append([data[: crc32(data) % 64]])
    log = open_log(disk, "t", 0, LogConfig(), CLOCK, clean=bool(len(data) & 1))
    left = [batch for segment in log.segments for batch in segment.locate_from(0)]
    assert log.log_end_offset == (left[-1].last_offset + 1 if left else 0)
    with suppress(KafkaError):
        log.offset_for_timestamp(1)
        log.read(log.log_start_offset, 1 << 20)
    list(batches(data[:0]))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "request": request,
    "batch": batch,
    "recovery": recovery,
    **stored.TARGETS,
    **outside.TARGETS,
}
