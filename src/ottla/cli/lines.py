"""Records as lines of text and back.

A JSON line holds a complete record, so `produce --format json` can write the output of `consume --format json`
without loss. UTF-8 bytes are a string, other bytes are `{"base64": "…"}`, and null is null:

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": null,
     "value": "text", "headers": [["trace", {"base64": "/w=="}], ["empty", null]]}

The lines of a console export are accepted too: {"text": "…"} or {"base64": "…"} with further fields, and headers as
{"name": …, "value": …}.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

FORMATS: Final = ("raw", "json", "hex", "base64")
NO_TIMESTAMP: Final = -1
INT64: Final = 1 << 63


# A key or value as the console exports it: text or base64, its length, and its value decoded with a schema.
_EXPORTED: Final = {"text", "base64", "bytes", "decoded"}

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.S)
_UNESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


class LineError(ValueError):
    """A line that is not a record; the message says why."""


class Line(NamedTuple):
    """A record from a line; None for fields that the line does not have."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []
    topic: str | None = None
    partition: int | None = None
    timestamp: int | None = None
    offset: int | None = None


def unescaped(text: str) -> bytes:
    r"""A separator as typed: `\t`, `\n`, `\0`, `\x1f` and `\\` stand for one character."""
    try:
        return _ESCAPE.sub(lambda found: _UNESCAPED.get(found[1]) or chr(int(found[1][1:], 16)), text).encode()
    except ValueError:
        raise LineError(f"'{text}': after a backslash use t, n, r, 0, \\ or two hex digits as in \\x1f") from None


# --- JSON ------------------------------------------------------------------------------------------------------------


def to_json_bytes(data: bytes | None) -> Any:
    """A string where that is lossless, base64 otherwise."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json_bytes(value: Any, what: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise LineError(f"{what} has half of a surrogate pair, which is not valid text") from None
    if isinstance(value, dict) and "text" in value and value.keys() <= _EXPORTED:
        return from_json_bytes(value["text"], what)
    if isinstance(value, dict) and value.keys() <= _EXPORTED and isinstance(value.get("base64"), str):
        return _decode_base64(value["base64"], what)
    raise LineError(f'{what} must be a string, null or {{"base64": "…"}}')


def to_json(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> str:
    """One line, without the line break."""
    fields = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": to_json_bytes(key),
        "value": to_json_bytes(value),
        "headers": [[name, to_json_bytes(content)] for name, content in headers],
    }
    # Characters outside ASCII are escaped: line separators among them would end the line for some readers.
    return json.dumps(fields, separators=(", ", ": "))


_KNOWN: Final = {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
# The console's export contains more fields, which are not needed for writing the record.
_PASSED_OVER: Final = {"transactional"}


def from_json(text: str | bytes) -> Line:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise LineError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise LineError("a line must be a JSON object")
    unknown = fields.keys() - _KNOWN - _PASSED_OVER
    if unknown:
        raise LineError(f"unknown field '{min(unknown)}'; fields are {', '.join(sorted(_KNOWN))}")
    if "value" not in fields:
        raise LineError('"value" is missing; a tombstone says "value": null')
    return Line(
        from_json_bytes(fields["value"], "value"),
        from_json_bytes(fields.get("key"), "key"),
        _headers(fields.get("headers")),
        _text(fields.get("topic"), "topic"),
        _number(fields.get("partition"), "partition", 0, (1 << 31) - 1),
        _number(fields.get("timestamp"), "timestamp", NO_TIMESTAMP, INT64 - 1),
        _number(fields.get("offset"), "offset", -1, INT64 - 1),
    )


def _headers(value: Any) -> list[tuple[str, bytes | None]]:
    if value is None:
        return []
    if isinstance(value, dict):  # easier to write by hand, but names cannot repeat
        value = list(value.items())
    if not isinstance(value, list):
        raise LineError("headers must be a list of [name, value] pairs")
    found = []
    for pair in value:
        if isinstance(pair, dict) and pair.keys() == {"name", "value"}:
            pair = [pair["name"], pair["value"]]
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise LineError("headers must be a list of [name, value] pairs")
        found.append((pair[0], from_json_bytes(pair[1], f"header '{pair[0]}'")))
    return found


def _text(value: Any, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise LineError(f"{what} must be a string")
    return value


def _number(value: Any, what: str, low: int, high: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise LineError(f"{what} must be a whole number from {low} to {high}")
    return value


# --- plain lines -----------------------------------------------------------------------------------------------------


def _decode_base64(text: str | bytes, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LineError(f"{what} is not base64") from None


def _decode_hex(text: bytes, what: str) -> bytes:
    try:
        return bytes.fromhex(text.decode())
    except ValueError:
        raise LineError(f"{what} is not hexadecimal") from None


ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "raw": bytes,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
}
DECODERS: Final[dict[str, Callable[[bytes, str], bytes]]] = {
    "raw": lambda data, _: bytes(data),
    "hex": _decode_hex,
    "base64": lambda data, what: _decode_base64(bytes(data), what),
}


def from_plain(line: bytes, form: str, key_separator: bytes | None, null: bytes | None) -> Line:
    """A line in raw, hex or base64: the value, or the key, a separator and the value."""
    decode = DECODERS[form]
    key: bytes | None = None
    if key_separator is not None:
        first, found, rest = line.partition(key_separator)
        if not found:
            raise LineError(f"no key separator {key_separator.decode(errors='replace')!r} in the line")
        line = rest
        key = None if first == null else decode(first, "key")
    return Line(None if line == null else decode(line, "value"), key)


def to_plain(key: bytes | None, value: bytes | None, form: str, key_separator: bytes | None, null: bytes) -> bytes:
    encode = ENCODERS[form]
    text = null if value is None else encode(value)
    if key_separator is None:
        return text
    return (null if key is None else encode(key)) + key_separator + text


_PLACEHOLDER: Final = re.compile(rb"%([topTkKvShN%])|\\([ntr0\\])")
_ESCAPED: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def compile_template(template: str, form: str, null: bytes) -> Callable[..., bytes]:
    """`%t %p %o %T %k %v %h`: topic, partition, offset, timestamp, key, value, headers; `%K %S %N` are their sizes."""
    source = template.encode()
    encode = ENCODERS[form]

    def render(
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> bytes:
        def put(match: re.Match[bytes]) -> bytes:
            if match[2] is not None:
                return _ESCAPED[match[2]]
            what = match[1]
            if what == b"k":
                return null if key is None else encode(key)
            if what == b"v":
                return null if value is None else encode(value)
            if what == b"h":
                return b",".join(
                    name.encode() + b"=" + (null if content is None else encode(content)) for name, content in headers
                )
            plain = {
                b"t": topic,
                b"p": partition,
                b"o": offset,
                b"T": timestamp,
                b"K": -1 if key is None else len(key),
                b"S": -1 if value is None else len(value),
                b"N": len(headers),
                b"%": "%",
            }
            return str(plain[what]).encode()

        return _PLACEHOLDER.sub(put, source)

    return render
