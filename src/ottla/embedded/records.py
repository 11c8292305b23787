"""Records as tests see them: decoded, comparable, printable, and as lines of JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ottla.embedded.decoding import TopicDecoder

Given: TypeAlias = "bytes | str | Mapping[str, Any] | list[Any] | int | float | tuple[Any, ...] | Record | None"
"""The types that can be appended: a value, `(key, value)`, `(key, value, headers)`, or a `Record` from elsewhere."""

_SHOWN_BYTES = 120


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    decoder: TopicDecoder | None = field(default=None, compare=False, repr=False)

    @property
    def decoded(self) -> Any:
        """The value, decoded with the schema that it was written with; ValueError if that is not possible."""
        return self._decoded("value", self.value)

    @property
    def decoded_key(self) -> Any:
        """The key, decoded with the schema that it was written with."""
        return self._decoded("key", self.key)

    def _decoded(self, part: str, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            if self.decoder is None:
                raise ValueError("this record was not read from a broker")
            return self.decoder.decode(data, self.headers, is_key=part == "key")
        except ValueError as error:
            place = f"{self.topic}-{self.partition}@{self.offset}"
            raise ValueError(f"the {part} of {place} cannot be decoded: {error}") from error

    @property
    def text(self) -> str | None:
        """The value as UTF-8 text."""
        return None if self.value is None else self.value.decode()

    @property
    def json(self) -> Any:
        """The value, parsed as JSON."""
        if self.value is None:
            return None
        try:
            return json.loads(self.value)
        except ValueError as error:
            place = f"{self.topic}-{self.partition}@{self.offset}"
            raise ValueError(f"the value of {place} is not JSON: {self.value[:80]!r} ({error})") from None

    @property
    def key_text(self) -> str | None:
        return None if self.key is None else self.key.decode()

    def header(self, name: str) -> bytes | None:
        """The last header of this name, as Kafka's clients choose."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def __str__(self) -> str:
        headers = "".join(f" {name}={shown(value)}" for name, value in self.headers)
        key = "" if self.key is None else f"{self.shown_part('key')} → "
        return f"{self.topic}-{self.partition}@{self.offset}: {key}{self.shown_part('value')}{headers}"

    def shown_part(self, part: str) -> str:
        """The key or the value for people, decoded if it has a schema."""
        data = self.key if part == "key" else self.value
        if self.decoder is not None and data is not None and data[:1] == b"\0":
            with suppress(ValueError):
                return clipped(json.dumps(self._decoded(part, data), ensure_ascii=False, default=str))
        return shown(data)

    def to_dict(self) -> dict[str, Any]:
        """The record as an object for a line of JSON."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp_ms,
            "key": _to_json(self.key),
            "value": _to_json(self.value),
            "headers": [[name, _to_json(value)] for name, value in self.headers],
        }

    @classmethod
    def from_dict(cls, topic: str, line: Mapping[str, Any], decoder: TopicDecoder | None = None) -> Record:
        return cls(
            topic,
            line.get("partition", 0),
            line.get("offset", -1),
            line.get("timestamp", -1),
            from_json(line.get("key")),
            from_json(line.get("value")),
            tuple((name, from_json(value)) for name, value in line.get("headers", ())),
            decoder,
        )


def shown(data: bytes | None) -> str:
    """Bytes for people: as text if possible, and shortened if they are too long."""
    if data is None:
        return "null"
    try:
        text = json.dumps(data.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        text = data.hex(" ")
    return clipped(text, f" ({len(data)} bytes)")


def clipped(text: str, size: str = "") -> str:
    """Text, shortened if it is too long for a line."""
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}…{size}"


def to_bytes(value: Any) -> bytes | None:
    """A key or a value: bytes unchanged, text as UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except TypeError as error:
        raise TypeError(
            f"{type(value).__name__} is neither bytes, text nor JSON: encode the value before appending it"
        ) from error


def parts(given: Given) -> tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]:
    """The (key, value, headers) of a record to append."""
    if isinstance(given, Record):
        return given.key, given.value, given.headers
    if not isinstance(given, tuple):
        return None, to_bytes(given), ()
    if not 2 <= len(given) <= 3:
        raise ValueError(f"append takes values, (key, value) or (key, value, headers), not a tuple of {len(given)}")
    headers: Any = given[2] if len(given) == 3 else ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return to_bytes(given[0]), to_bytes(given[1]), [(name, to_bytes(value)) for name, value in pairs]


def _to_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(value: Any) -> bytes | None:
    """A key or a value from JSON: text, {"base64": …} for other bytes, or JSON itself."""
    if isinstance(value, Mapping) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"])
    return to_bytes(value)
