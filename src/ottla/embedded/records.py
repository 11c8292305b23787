"""Records as tests see them: decoded, comparable, printable, and as lines of JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Given: TypeAlias = "bytes | str | Mapping[str, Any] | list[Any] | int | float | tuple[Any, ...] | Record | None"
"""What can be appended: a value, `(key, value)`, `(key, value, headers)`, or a `Record` from elsewhere."""

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
        key = "" if self.key is None else f"{shown(self.key)} → "
        return f"{self.topic}-{self.partition}@{self.offset}: {key}{shown(self.value)}{headers}"

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a JSON line."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp_ms,
            "key": _to_json(self.key),
            "value": _to_json(self.value),
            "headers": [[name, _to_json(value)] for name, value in self.headers],
        }

    @classmethod
    def from_dict(cls, topic: str, line: Mapping[str, Any]) -> Record:
        return cls(
            topic,
            line.get("partition", 0),
            line.get("offset", -1),
            line.get("timestamp", -1),
            from_json(line.get("key")),
            from_json(line.get("value")),
            tuple((name, from_json(value)) for name, value in line.get("headers", ())),
        )


def shown(data: bytes | None) -> str:
    """Bytes for people: text where it is text, and not too much of it."""
    if data is None:
        return "null"
    try:
        text = json.dumps(data.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        text = data.hex(" ")
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}… ({len(data)} bytes)"


def to_bytes(value: Any) -> bytes | None:
    """A key or a value: bytes as they are, text as UTF-8, anything else as JSON."""
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
    """(key, value, headers) of what somebody wants to append."""
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
    """A key or a value as it stands in JSON: text, {"base64": …} for other bytes, or JSON itself."""
    if isinstance(value, Mapping) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"])
    return to_bytes(value)
