"""How kafka-console-consumer prints a record: Kafka's formatters, by their properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from uuid import UUID

from ottla.cli.common import CommandError
from ottla.client.routing import TopicPartition
from ottla.records.batch import Record

Deserializer = Callable[[bytes], bytes]


def _number(layout: str) -> Deserializer:
    def deserialize(data: bytes) -> bytes:
        if len(data) != size:
            raise CommandError(f"Size of data received by the deserializer is not {size}")
        return str(unpack(data)[0]).encode()

    unpack, size = Struct(layout).unpack, Struct(layout).size
    return deserialize


SERIALIZATION = "org.apache.kafka.common.serialization."
DESERIALIZERS: Mapping[str, Deserializer] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "DoubleDeserializer": _number(">d"),
    "UUIDDeserializer": lambda data: str(UUID(data.decode())).encode(),
}


class Line:
    """DefaultMessageFormatter."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        def on(name: str, default: str = "false") -> bool:
            return properties.get(f"print.{name}", default).strip().lower() == "true"

        self._timestamp, self._partition, self._offset = on("timestamp"), on("partition"), on("offset")
        self._headers, self._key, self._value = on("headers"), on("key"), on("value", "true")
        self._between = properties.get("key.separator", "\t").encode()
        self._headers_between = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._end = properties.get("line.separator", "\n").encode()
        self._read = {kind: _deserializer(properties, kind) for kind in ("key", "value", "headers")}

    def __call__(self, tp: TopicPartition, record: Record) -> bytes:
        parts: list[bytes] = []
        if self._timestamp:
            parts.append(b"NO_TIMESTAMP" if record.timestamp < 0 else f"CreateTime:{record.timestamp}".encode())
        if self._partition:
            parts.append(f"Partition:{tp[1]}".encode())
        if self._offset:
            parts.append(f"Offset:{record.offset}".encode())
        if self._headers:
            shown = [b"%s:%s" % (name.encode(), self._text("headers", value)) for name, value in record.headers]
            parts.append(self._headers_between.join(shown) or b"NO_HEADERS")
        if self._key:
            parts.append(self._text("key", record.key))
        if self._value:
            parts.append(self._text("value", record.value))
        return self._between.join(parts) + self._end

    def _text(self, kind: str, data: bytes | None) -> bytes:
        return self._null if data is None else self._read[kind](bytes(data))


def _deserializer(properties: Mapping[str, str], kind: str) -> Deserializer:
    name = properties.get(f"{kind}.deserializer", "StringDeserializer").removeprefix(SERIALIZATION)
    if name not in DESERIALIZERS:
        raise CommandError(f"there is no deserializer {name} here; use one of {', '.join(DESERIALIZERS)}")
    return DESERIALIZERS[name]


FORMATTERS: Mapping[str, Callable[[Mapping[str, str]], Callable[[TopicPartition, Record], bytes]]] = {
    "org.apache.kafka.tools.consumer.DefaultMessageFormatter": Line,
    "kafka.tools.DefaultMessageFormatter": Line,
    "org.apache.kafka.tools.consumer.NoOpMessageFormatter": lambda _: lambda *_: b"",
    "kafka.tools.NoOpMessageFormatter": lambda _: lambda *_: b"",
}
