"""Decodes keys and values with the schemas that they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..formats import Source
from .codec import BadValue, Codec, codec_of, jsonable
from .framing import Framed, unframe


class Writer(NamedTuple):
    """The schema that a value was written with."""

    schema_type: str
    source: Source


FindWriter = Callable[[int | str], Writer]
"""A schema by its id or its GUID; LookupError if there is none."""


class Decoder:
    """Keeps a codec for each schema that it has seen."""

    def __init__(self, find: FindWriter) -> None:
        self._find = find
        self._codecs: dict[int | str, Codec] = {}

    def decode(self, data: bytes, headers: Iterable[tuple[str, bytes | None]] = (), *, is_key: bool = False) -> Any:
        """Decode a key or a value. Raises NotFramed or BadValue, which are ValueErrors, or LookupError."""
        framed = unframe(data, headers, is_key=is_key)
        return self._codec(framed).decode(framed)

    def decode_json(
        self, data: bytes, headers: Iterable[tuple[str, bytes | None]] = (), *, is_key: bool = False
    ) -> tuple[int | str, Any]:
        """The id or GUID of the schema, and the value converted for JSON."""
        framed = unframe(data, headers, is_key=is_key)
        codec = self._codec(framed)
        return framed.schema, jsonable(codec.decode(framed), codec.bytes_as)

    def _codec(self, framed: Framed) -> Codec:
        codec = self._codecs.get(framed.schema)
        if codec is None:
            writer = self._find(framed.schema)
            codec = self._codecs[framed.schema] = codec_of(writer.schema_type, writer.source)
        return codec


__all__ = ["BadValue", "Decoder", "FindWriter", "Framed", "Writer"]
