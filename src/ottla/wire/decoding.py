"""Generates a decoder: one flat function for a message and version.

A single `unpack_from` reads a run of fixed-width fields, up to and including the length of the variable field after
them (or the first byte of a varint length). Nested structs and arrays are inlined. The generated code checks each
length and count against the remaining bytes before it reads or allocates anything.
"""

from __future__ import annotations

from struct import error as layout_error
from typing import Any

from .construction import bind_class, fresh_default, layout, least_size, materialize
from .primitives import (
    ELEMENTS_MAX,
    REPLACING,
    STRING_BYTES_MAX,
    MalformedMessage,
    RunOf,
    decode_uvarint,
    skip_tags,
    uvarint_tail,
)
from .schema import FIXED, Decoder, Field, Message, Struct

BASE_NAMESPACE: dict[str, Any] = {
    "new": object.__new__,
    "Malformed": MalformedMessage,
    "uvarint": decode_uvarint,
    "uvarint_tail": uvarint_tail,
    "skip_tags": skip_tags,
    **{f"unpack_run_{kind}": RunOf("unpack_from", code) for kind, code in FIXED.items()},
}


class DecoderWriter:
    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.namespace: dict[str, Any] = dict(BASE_NAMESPACE)
        self.lines: list[str] = []
        self.indent = 2
        self.run: list[tuple[str, str]] = []  # (format, target) not yet emitted
        self.serial = 0
        self.uses_view = False
        self.is_request = cls.__name__.endswith("Request")
        # A broker accepts any bytes as text from a client. Stored data and responses must be valid text.
        self.text = f"'utf-8', {REPLACING!r}" if self.is_request else "'utf-8'"

    def write(self) -> Decoder:
        self.struct(self.cls, "o")
        self.flush()
        label = f"{self.cls.__name__} v{self.version}"
        # A request's decoder limits the total number of array elements.
        left = f", left={ELEMENTS_MAX}" if self.is_request else ""
        head = [f"def decode(buf, pos{left}):", "    end = len(buf)"]
        if self.uses_view:
            head.append("    view = memoryview(buf)")
        tail = [
            "    except (layout_error, IndexError):",
            f"        raise Malformed('{label} ends too early') from None",
            "    except UnicodeDecodeError:",
            f"        raise Malformed('{label} holds a string that is not UTF-8') from None",
            "    return o, pos",
        ]
        self.namespace["layout_error"] = layout_error
        made: Decoder = materialize(
            "decode", [*head, "    try:", *self.lines, *tail], self.namespace, f"{label} decoder"
        )
        return made

    # Output

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def refuse(self, condition: str, what: str) -> None:
        self.emit(f"if {condition}:")
        self.emit(f"    raise Malformed({f'{self.cls.__name__} v{self.version}: {what}'!r})")

    def flush(self) -> None:
        if not self.run:
            return
        code = "".join(code for code, _ in self.run)
        targets = [target for _, target in self.run]
        self.run = []
        size = layout(code).size
        if code == "B":
            self.emit(f"{targets[0]} = buf[pos]")
        elif code == "?":
            self.emit(f"{targets[0]} = buf[pos] != 0")
        else:
            unpack = "unpack_" + code.replace("?", "o")
            self.namespace[unpack] = layout(code).unpack_from
            self.emit(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {unpack}(buf, pos)")
        self.emit(f"pos += {size}")

    def length(self, code: str, name: str, string: str = "") -> int:
        """Read a length or count into `name`. Returns the wire's addend (compact lengths carry n + 1).

        In a request, the length of the field `string` is limited if it takes more than a byte; others fit anyway.

        A value below the addend means null: Kafka treats every negative number as null, not only -1.
        """
        if self.flexible:
            self.run.append(("B", name))
            self.flush()
            self.emit(f"if {name} > 127:")
            self.emit(f"    {name}, pos = uvarint_tail(buf, pos, {name})")
            if string and self.is_request:
                self.indent += 1
                self.refuse(f"{name} > {STRING_BYTES_MAX + 1}", f"{string} is longer than {STRING_BYTES_MAX} bytes")
                self.indent -= 1
            return 1
        self.run.append((code, name))
        self.flush()
        return 0

    # Structs

    def struct(self, cls: type[Struct], target: str) -> None:
        self.emit(f"{target} = new({bind_class(cls, self.namespace)})")
        tagged = []
        for field in cls.FIELDS:
            place = f"{target}.{field.name}"
            if not field.exists(self.version):
                self.emit(f"{place} = {fresh_default(field, self.namespace)}")
            elif self.flexible and field.is_tagged(self.version):
                self.emit(f"{place} = {fresh_default(field, self.namespace)}")
                tagged.append(field)
            else:
                self.field(field, place)
        if self.flexible:
            self.tags(tagged, target)

    def tags(self, tagged: list[Field], target: str) -> None:
        count = self.name("n")
        self.run.append(("B", count))
        self.flush()
        self.emit(f"if {count}:")
        self.indent += 1
        self.emit(f"if {count} > 127:")
        self.emit(f"    {count}, pos = uvarint_tail(buf, pos, {count})")
        if not tagged:
            self.emit(f"pos = skip_tags(buf, pos, {count}, end)")
            self.indent -= 1
            return
        tag, size, stop = self.name("tag"), self.name("n"), self.name("stop")
        self.emit(f"for _ in range({count}):")
        self.indent += 1
        self.emit(f"{tag}, pos = uvarint(buf, pos)")
        self.emit(f"{size}, pos = uvarint(buf, pos)")
        self.emit(f"{stop} = pos + {size}")
        self.refuse(f"{stop} > end", "a tagged field reaches beyond the message")
        word = "if"
        for field in tagged:
            self.emit(f"{word} {tag} == {field.tag}:")
            self.indent += 1
            self.field(field, f"{target}.{field.name}", as_tag=True)
            self.flush()
            self.indent -= 1
            word = "elif"
        self.emit("else:")
        self.emit(f"    pos = {stop}")
        self.refuse(f"pos != {stop}", "a tagged field is not as long as it says")
        self.indent -= 2

    # Fields

    def field(self, field: Field, place: str, as_tag: bool = False) -> None:
        if field.kind in FIXED:
            self.run.append((FIXED[field.kind], place))
        elif field.kind == "array":
            self.array(field, place)
        elif field.kind == "struct":
            self.struct_field(field, place, as_tag)
        else:
            self.run_of_bytes(field.kind, place, field.name, field.is_nullable(self.version))

    def struct_field(self, field: Field, place: str, as_tag: bool) -> None:
        item = field.struct
        assert item is not None
        inner = self.name("o")
        nullable = field.is_nullable(self.version)
        if nullable:
            mark = self.name("n")
            # Null is -1 in a byte; within a tag it is 0 in a varint.
            self.run.append(("B" if as_tag else "b", mark))
            self.flush()
            self.emit(f"if {mark} {'== 0' if as_tag else '< 0'}:")
            self.emit(f"    {place} = None")
            self.emit("else:")
            self.indent += 1
        self.struct(item, inner)
        self.emit(f"{place} = {inner}")
        if nullable:
            self.flush()
            self.indent -= 1

    def run_of_bytes(self, kind: str, place: str, what: str, nullable: bool) -> None:
        """A string, octets or records."""
        size, stop = self.name("n"), self.name("q")
        extra = self.length("h", size, string=what) if kind == "string" else self.length("i", size)
        if nullable:
            self.emit(f"if {size} < {extra}:")
            self.emit(f"    {place} = None")
            self.emit("else:")
            self.indent += 1
        self.emit(f"{stop} = pos + {size}{' - 1' if extra else ''}")
        self.refuse(f"not pos <= {stop} <= end", f"{what} has an impossible length")
        if kind == "string":
            self.emit(f"{place} = str(buf[pos:{stop}], {self.text})")
        elif kind == "octets":
            self.emit(f"{place} = bytes(buf[pos:{stop}])")
        else:
            self.uses_view = True
            self.emit(f"{place} = view[pos:{stop}]")
        self.emit(f"pos = {stop}")
        if nullable:
            self.indent -= 1

    def array(self, field: Field, place: str) -> None:
        count = self.name("n")
        extra = self.length("i", count)
        nullable = field.is_nullable(self.version)
        if nullable:
            self.emit(f"if {count} < {extra}:")
            self.emit(f"    {place} = None")
            self.emit("else:")
            self.indent += 1
        if extra:
            self.emit(f"{count} -= 1")
        item = field.struct
        kind = "" if item is not None else field.item_kind
        if item is not None:
            size = max(1, least_size(item, self.version, self.flexible))
        elif kind in FIXED:
            size = layout(FIXED[kind]).size
        else:
            size = 1 if self.flexible else 2 if kind == "string" else 4
        needed = count if size == 1 else f"{count} * {size}"
        self.refuse(f"not 0 <= {needed} <= end - pos", f"{field.name} has an impossible count")
        if self.is_request:
            self.emit(f"left -= {count}")
            self.refuse("left < 0", "too many elements")
        if kind in FIXED:
            self.emit(f"{place} = list(unpack_run_{kind}[{count}](buf, pos))")
            self.emit(f"pos += {needed}")
        else:
            items, each = self.name("items"), self.name("o")
            self.emit(f"{place} = {items} = []")
            self.emit(f"for _ in range({count}):")
            self.indent += 1
            if item is not None:
                self.struct(item, each)
            else:
                self.run_of_bytes(kind, each, field.name, nullable=False)
            self.emit(f"{items}.append({each})")
            self.flush()
            self.indent -= 1
        if nullable:
            self.indent -= 1


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    return DecoderWriter(cls, version).write()
