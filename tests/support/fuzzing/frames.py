"""Frames that a broker should never get: requests of every API and version with odd values, then with odd bytes."""

import random
import struct
from typing import Any

from ottla.enums import ApiKey
from ottla.records.batch import Record, build_batch
from ottla.wire.frames import request_header_version
from ottla.wire.schema import Field, Message

BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
TOPICS = ("t", "x", "compacted")
TEXTS = (
    *TOPICS * 3,
    "g",
    "g2",
    "tx",
    "member",
    "range",
    "consumer",
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    "",
    ".",
    "..",
    "../../etc",
    "a" * 300,
    "\0",
    "\n",
    "é" * 40,
    "0",
    "-1",
    "cleanup.policy",
    "segment.bytes",
    "compact",
    "earliest",
    "uniform",
    ".*",
    "(((((a*)*)*)*)*)*",
    "\N{GRINNING FACE}",
)
CODECS = (0, 1, 2, 3, 4)
NUMBERS = ((0, ">q"), (8, ">i"), (12, ">i"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"), (53, ">i"), (57, ">i"))
"""Fields of a batch header, by position."""
EXTREMES = {">q": ((1 << 63) - 1, -(1 << 63), (1 << 62)), ">i": ((1 << 31) - 1, -(1 << 31), 1 << 20)}
SLOW = frozenset({4, 5, 6, 7})
"""Requests between brokers that Apache Kafka 4 does not serve either."""
ENDS_THE_TARGET = frozenset({ApiKey.UNREGISTER_BROKER})
"""An unregistered broker leaves the metadata, as in Kafka, and then serves no client any more."""


class FrameMaker:
    """Endless frames from one seed. `requests` are the message classes of the APIs that are served."""

    def __init__(self, seed: int, requests: list[type[Message]], topic_ids: list[bytes]) -> None:
        self.chance = random.Random(seed)
        self._requests = requests
        self._ids = topic_ids

    def frame(self) -> bytes:
        """A frame with its size in front. Every other frame also has changed bytes."""
        chance = self.chance
        cls = chance.choice(self._requests)
        version = chance.randint(cls.MIN_VERSION, cls.MAX_VERSION)
        body = self.make(cls, version).encode(version)
        head = struct.pack(">hhih", cls.API_KEY, version, chance.randint(0, 1 << 30), 3) + b"fuz"
        if request_header_version(cls.API_KEY, version) >= 2:
            head += b"\0"
        frame = bytearray(head + body)
        if chance.random() < 0.5:
            self._mutate(frame)
        size = len(frame)
        if chance.random() < 0.01:
            size = chance.choice((0, 1, 9, -1, -(1 << 31), (1 << 31) - 1, size + 1, max(size - 1, 0)))
        return struct.pack(">i", size) + bytes(frame)

    def make(self, cls: type[Any], version: int) -> Any:
        chance = self.chance
        values: dict[str, Any] = {}
        for field in cls.FIELDS:
            if not field.exists(version) or (field.is_tagged(version) and chance.random() < 0.5):
                continue
            if field.is_nullable(version) and chance.random() < 0.15:
                values[field.name] = None
            else:
                values[field.name] = self._value(field, version)
        return cls(**values)

    def _value(self, field: Field, version: int) -> Any:
        if field.kind == "struct":
            assert field.struct is not None
            return self.make(field.struct, version)
        if field.kind != "array":
            return self._scalar(field.kind, field.name)
        count = self.chance.choice((0, 1, 1, 1, 2, 3))
        if field.struct is not None:
            return [self.make(field.struct, version) for _ in range(count)]
        return [self._scalar(field.item_kind, field.name) for _ in range(count)]

    def _scalar(self, kind: str, name: str) -> Any:
        chance = self.chance
        if kind in BITS:
            bits = BITS[kind]
            low, high = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            if "wait" in name or "timeout" in name:
                return chance.choice((0, 0, 1, -1, low))  # no long polls
            return chance.choice((0, 0, 1, 1, 2, -1 if low else 0, -2 if low else 3, 5, low, high, low + 1, high - 1))
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "float64":
            return chance.choice((0.0, -1.0, 1e308, float("nan"), float("inf"), 100.0))
        if kind == "uuid":
            return chance.choice((*self._ids, bytes(16), chance.randbytes(16)))
        if kind == "string":
            return chance.choice(TEXTS)
        if kind == "records":
            return self.records()
        return chance.choice((b"", b"\0" * 8, chance.randbytes(20), self.records()))

    def records(self) -> bytes:
        """A mostly valid batch with numbers at their limits."""
        chance = self.chance
        count = chance.choice((1, 1, 2, 5))
        rows = [
            Record(n, chance.choice((0, 1_700_000_000_000, (1 << 62))), chance.choice((None, b"", b"k")), b"v" * n)
            for n in range(count)
        ]
        data = build_batch(
            rows,
            0,
            chance.choice(CODECS),
            chance.choice((-1, -1, 0, 1, (1 << 63) - 1)),
            chance.choice((-1, 0, 1, 32767)),
            chance.choice((-1, 0, 1, (1 << 31) - 1)),
            transactional=chance.random() < 0.2,
        )
        if chance.random() < 0.5:
            if chance.random() < 0.5:
                at, numbers = chance.choice(NUMBERS)
                struct.pack_into(numbers, data, at, chance.choice((0, -1, 1, *EXTREMES[numbers])))
            else:
                data[chance.randrange(min(len(data), 61))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            if chance.random() < 0.6:
                _fix_crc(data)
        if chance.random() < 0.1:
            data = data[: chance.randrange(len(data))]
        return bytes(data)

    def _mutate(self, frame: bytearray) -> None:
        chance = self.chance
        for _ in range(chance.choice((1, 1, 2, 5))):
            kind = chance.randrange(6)
            at = chance.randrange(len(frame)) if frame else 0
            if kind == 0 and frame:
                frame[at] ^= 1 << chance.randrange(8)
            elif kind == 1 and frame:
                frame[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            elif kind == 2:
                del frame[at : at + chance.choice((1, 2, 4, 30))]
            elif kind == 3:
                frame[at:at] = chance.randbytes(chance.choice((1, 2, 4, 30)))
            elif kind == 4:
                frame[at : at + 4] = struct.pack(">i", chance.choice((-1, -2, (1 << 31) - 1, -(1 << 31), 1 << 20)))
            else:
                frame[at : at + 5] = b"\xff\xff\xff\xff\x0f"


def _fix_crc(data: bytearray) -> None:
    from ottla.records.checksum import crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
