"""Encodes and decodes by walking over the fields. Bytes, objects and errors are those of the compiled functions.

Generating and compiling a function takes as long as twenty to forty walks. So a message is interpreted the first few
times, and most messages of a broker are never compiled. Compiling the codecs of a first test with one producer and one
consumer group would take 25 ms of CPU, and those of a start 8 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as layout_error
from typing import Any, NoReturn

from .construction import layout, least_size, message_of
from .primitives import (
    ELEMENTS_MAX,
    REPLACING,
    STRING_BYTES_MAX,
    Buffer,
    MalformedMessage,
    decode_uvarint,
    encode_uvarint,
    skip_tags,
)
from .schema import FIXED, Decoder, Encoder, Field, Message, Struct

Add = Callable[[Any], None]


def interpreting_encoder(cls: type[Message], version: int) -> Encoder:
    walk = _Encoding(version, cls.is_flexible(version))
    return lambda message, parts: walk.struct(cls, message, parts.append)


def interpreting_item_encoder(cls: type[Struct], version: int) -> Encoder:
    walk = _Encoding(version, message_of(cls).is_flexible(version))
    return lambda item, parts: walk.struct(cls, item, parts.append)


def interpreting_decoder(cls: type[Message], version: int) -> Decoder:
    return _Decoding(cls, version).decode


class _Encoding:
    __slots__ = ("flexible", "version")

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def struct(self, cls: type[Struct], source: Any, add: Add) -> None:
        version, flexible = self.version, self.flexible
        tagged = []
        for field in cls.FIELDS:
            if not field.exists(version):
                continue
            if flexible and field.is_tagged(version):
                tagged.append(field)
            else:
                self.field(field, getattr(source, field.name), add)
        if flexible:
            sent = [field for field in tagged if self.differs(field, getattr(source, field.name))]
            add(encode_uvarint(len(sent)))
            for field in sorted(sent, key=lambda field: field.tag or 0):
                parts: list[Any] = []
                self.field(field, getattr(source, field.name), parts.append, as_tag=True)
                add(encode_uvarint(field.tag or 0) + encode_uvarint(sum(map(len, parts))))
                for part in parts:
                    add(part)

    def differs(self, field: Field, value: Any) -> bool:
        """Whether a tagged field must be sent: only if it differs from its default."""
        nullable = field.is_nullable(self.version)
        if field.default is None and (field.kind != "struct" or nullable):
            return value is not None
        if field.kind == "array":
            return (nullable and value is None) or len(value) > 0
        if field.kind != "struct":
            return bool(value != field.default)
        if value is None:
            return nullable
        item = field.struct
        assert item is not None
        return any(
            self.differs(inner, getattr(value, inner.name)) for inner in item.FIELDS if inner.exists(self.version)
        )

    def field(self, field: Field, value: Any, add: Add, as_tag: bool = False) -> None:
        if field.kind in FIXED:
            add(layout(FIXED[field.kind]).pack(value))
        elif field.kind == "array":
            self.array(field, value, add)
        elif field.kind == "struct":
            item = field.struct
            assert item is not None
            if field.is_nullable(self.version):
                # Null is -1 in a byte; within a tag it is 0 in a varint.
                add(b"\x01" if value is not None else b"\x00" if as_tag else b"\xff")
            if value is not None or not field.is_nullable(self.version):
                self.struct(item, value, add)
        else:
            self.run_of_bytes(field.kind, value, field.is_nullable(self.version), add)

    def length(self, code: str, length: int, add: Add) -> None:
        """-1 means null."""
        add(encode_uvarint(length + 1) if self.flexible else layout(code).pack(length))

    def run_of_bytes(self, kind: str, value: Any, nullable: bool, add: Add) -> None:
        code = "h" if kind == "string" else "i"
        if value is None and nullable:
            self.length(code, -1, add)
            return
        data = value.encode() if kind == "string" else value
        self.length(code, len(data), add)
        if len(data):
            add(data)

    def array(self, field: Field, items: Any, add: Add) -> None:
        if items is None and field.is_nullable(self.version):
            self.length("i", -1, add)
            return
        self.length("i", len(items), add)
        item = field.struct
        for each in items:
            if field.ready_made and each.__class__ is bytes:
                add(each)
            elif item is not None:
                self.struct(item, each, add)
            elif field.item_kind in FIXED:
                add(layout(FIXED[field.item_kind]).pack(each))
            else:
                self.run_of_bytes(field.item_kind, each, False, add)


class _Decoding:
    __slots__ = ("buffer", "cls", "end", "errors", "flexible", "is_request", "label", "left", "position", "version")

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.label = f"{cls.__name__} v{version}"
        self.is_request = cls.__name__.endswith("Request")
        self.errors = REPLACING if self.is_request else "strict"

    def decode(self, buffer: Buffer, position: int, left: int = ELEMENTS_MAX) -> tuple[Any, int]:
        self.buffer, self.position, self.end, self.left = buffer, position, len(buffer), left
        try:
            message = self.struct(self.cls)
        except (layout_error, IndexError):
            raise MalformedMessage(f"{self.label} ends too early") from None
        except UnicodeDecodeError:
            raise MalformedMessage(f"{self.label} holds a string that is not UTF-8") from None
        return message, self.position

    def refuse(self, what: str) -> NoReturn:
        raise MalformedMessage(f"{self.label}: {what}")

    def fixed(self, code: str) -> Any:
        form = layout(code)
        (value,) = form.unpack_from(self.buffer, self.position)
        self.position += form.size
        return value

    def uvarint(self) -> int:
        value, self.position = decode_uvarint(self.buffer, self.position)
        return value

    def length(self, code: str) -> int:
        """A negative value means null."""
        return self.uvarint() - 1 if self.flexible else int(self.fixed(code))

    def struct(self, cls: type[Struct]) -> Any:
        made = object.__new__(cls)
        tagged = []
        for field in cls.FIELDS:
            if not field.exists(self.version):
                setattr(made, field.name, field.fresh_default())
            elif self.flexible and field.is_tagged(self.version):
                setattr(made, field.name, field.fresh_default())
                tagged.append(field)
            else:
                setattr(made, field.name, self.field(field))
        if self.flexible:
            self.tags(made, tagged)
        return made

    def tags(self, made: Struct, tagged: list[Field]) -> None:
        count = self.uvarint()
        if not tagged:
            self.position = skip_tags(self.buffer, self.position, count, self.end)
            return
        known = {field.tag: field for field in tagged}
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            stop = self.position + size
            if stop > self.end:
                self.refuse("a tagged field reaches beyond the message")
            field = known.get(tag)
            if field is not None:
                setattr(made, field.name, self.field(field, as_tag=True))
            else:
                self.position = stop
            if self.position != stop:
                self.refuse("a tagged field is not as long as it says")

    def field(self, field: Field, as_tag: bool = False) -> Any:
        if field.kind in FIXED:
            return self.fixed(FIXED[field.kind])
        if field.kind == "array":
            return self.array(field)
        if field.kind != "struct":
            return self.run_of_bytes(field.kind, field.name, field.is_nullable(self.version))
        item = field.struct
        assert item is not None
        # Null is -1 in a byte; within a tag it is 0 in a varint.
        if field.is_nullable(self.version) and (self.fixed("B") == 0 if as_tag else self.fixed("b") < 0):
            return None
        return self.struct(item)

    def run_of_bytes(self, kind: str, what: str, nullable: bool) -> Any:
        length = self.length("h" if kind == "string" else "i")
        if length < 0 and nullable:
            return None
        if kind == "string" and self.is_request and length > STRING_BYTES_MAX:
            self.refuse(f"{what} is longer than {STRING_BYTES_MAX} bytes")
        stop = self.position + length
        if not self.position <= stop <= self.end:
            self.refuse(f"{what} has an impossible length")
        if kind == "records":
            data: Any = memoryview(self.buffer)[self.position : stop]
        else:
            data = bytes(self.buffer[self.position : stop])
        self.position = stop
        return str(data, "utf-8", self.errors) if kind == "string" else data

    def array(self, field: Field) -> list[Any] | None:
        count = self.length("i")
        if count < 0 and field.is_nullable(self.version):
            return None
        item = field.struct
        kind = "" if item is not None else field.item_kind
        if item is not None:
            size = max(1, least_size(item, self.version, self.flexible))
        elif kind in FIXED:
            size = layout(FIXED[kind]).size
        else:
            size = 1 if self.flexible else 2 if kind == "string" else 4
        if not 0 <= count * size <= self.end - self.position:
            self.refuse(f"{field.name} has an impossible count")
        if self.is_request:
            self.left -= count
            if self.left < 0:
                self.refuse("too many elements")
        if item is not None:
            return [self.struct(item) for _ in range(count)]
        if kind in FIXED:
            return [self.fixed(FIXED[kind]) for _ in range(count)]
        return [self.run_of_bytes(kind, field.name, nullable=False) for _ in range(count)]
