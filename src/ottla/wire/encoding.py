"""Generates an encoder: one flat function for a message and version.

As in decoders, a run of fixed-width fields becomes a single `pack`, together with the length after it (a compact length
below 128 is one more byte in the same call) and the empty tag sections in between (a pad byte).
"""

from __future__ import annotations

from typing import Any

from .construction import layout, materialize, message_of
from .primitives import SMALL_UVARINTS, RunOf, encode_uvarint
from .schema import FIXED, Encoder, Field, Message, Struct

BASE_NAMESPACE: dict[str, Any] = {
    "small": SMALL_UVARINTS,
    "uvarint": encode_uvarint,
    **{f"pack_run_{kind}": RunOf("pack", code) for kind, code in FIXED.items()},
    # Preceded by their count, as one byte or as four.
    **{f"pack_compact_run_{kind}": RunOf("pack", code, "B") for kind, code in FIXED.items()},
    **{f"pack_classic_run_{kind}": RunOf("pack", code, "i") for kind, code in FIXED.items()},
}


class EncoderWriter:
    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.namespace: dict[str, Any] = dict(BASE_NAMESPACE)
        self.lines: list[str] = []
        self.indent = 1
        self.run: list[tuple[str, str | None]] = []  # (format, expression) to pack; None is a pad byte
        self.serial = 0
        self.add = "add"

    def write(self) -> Encoder:
        self.struct(self.cls, "o")
        self.flush()
        head = ["def encode(o, parts):", "    add = parts.append"]
        made: Encoder = materialize(
            "encode", [*head, *self.lines], self.namespace, f"{self.cls.__name__} v{self.version} encoder"
        )
        return made

    # Output

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def packed(self, run: list[tuple[str, str | None]]) -> str:
        """The expression that packs a run."""
        code = "".join(code for code, _ in run)
        values = [value for _, value in run if value is not None]
        if not values:
            return repr(bytes(len(code)))
        if code == "?":
            return f"small[1 if {values[0]} else 0]"
        if code == "B":
            return f"small[{values[0]}]"
        pack = "pack_" + code.replace("?", "o")
        self.namespace[pack] = layout(code).pack
        return f"{pack}({', '.join(values)})"

    def flush(self) -> None:
        if self.run:
            self.emit(f"{self.add}({self.packed(self.run)})")
            self.run = []

    def length(self, code: str, name: str, then: str = "") -> None:
        """Write the run and the length `name` that ends it, and the bytes `then` after them."""
        run, self.run = self.run, []
        plus = f" + {then}" if then else ""
        if not self.flexible:
            self.emit(f"{self.add}({self.packed([*run, (code, name)])}{plus})")
            return
        short = self.packed([*run, ("B", name)]) if run else f"small[{name}]"
        long = f"{self.packed(run)} + uvarint({name})" if run else f"uvarint({name})"
        choice = f"{short} if {name} < 128 else {long}"
        self.emit(f"{self.add}(({choice}){plus})" if plus else f"{self.add}({choice})")

    # Structs

    def struct(self, cls: type[Struct], source: str) -> None:
        tagged = []
        for field in cls.FIELDS:
            if not field.exists(self.version):
                continue
            if self.flexible and field.is_tagged(self.version):
                tagged.append(field)
            else:
                self.field(field, f"{source}.{field.name}")
        if self.flexible:
            self.tags(tagged, source)

    def tags(self, tagged: list[Field], source: str) -> None:
        if not tagged:
            self.run.append(("x", None))
            return
        # Usually none is sent, so this check comes first.
        rushed = [self.differs(field, f"{source}.{field.name}", at_a_glance=True) for field in tagged]
        run, self.run = self.run, []
        self.emit(f"if {' or '.join(rushed)}:")
        self.indent += 1
        marks = [self.name("t") for _ in tagged]
        for field, mark in zip(tagged, marks, strict=True):
            self.emit(f"{mark} = {self.differs(field, f'{source}.{field.name}')}")
        self.run = [*run, ("B", " + ".join(marks) if len(marks) > 1 else f"1 if {marks[0]} else 0")]
        self.flush()
        for field, mark in sorted(zip(tagged, marks, strict=True), key=lambda pair: pair[0].tag or 0):
            self.emit(f"if {mark}:")
            self.indent += 1
            self.tag(field, f"{source}.{field.name}")
            self.indent -= 1
        self.indent -= 1
        self.emit("else:")
        self.indent += 1
        self.run = [*run, ("x", None)]
        self.flush()
        self.indent -= 1

    def tag(self, field: Field, source: str) -> None:
        outer, parts = self.add, self.name("parts")
        self.add = f"{parts}.append"
        self.emit(f"{parts} = []")
        self.field(field, source, as_tag=True)
        self.flush()
        self.add = outer
        size = self.name("n")
        self.emit(f"{size} = sum(map(len, {parts}))")
        self.emit(f"{outer}({encode_uvarint(field.tag or 0)!r} + uvarint({size}))")
        self.emit(f"for part in {parts}:")
        self.emit(f"    {outer}(part)")

    def differs(self, field: Field, source: str, at_a_glance: bool = False) -> str:
        """Whether a tagged field must be sent: only if it is not the default. With `at_a_glance`, structs are not
        compared."""
        if field.kind == "array":
            if field.default is not None:
                return (
                    f"{source} is None or len({source}) > 0"
                    if field.is_nullable(self.version)
                    else f"len({source}) > 0"
                )
            return f"{source} is not None"
        if field.kind != "struct":
            return f"{source} is not None" if field.default is None else f"{source} != {field.default!r}"
        nullable = field.is_nullable(self.version)
        if field.default is None and (nullable or at_a_glance):
            return f"{source} is not None"
        item = field.struct
        assert item is not None
        tests = [self.differs(inner, f"{source}.{inner.name}") for inner in item.FIELDS if inner.exists(self.version)]
        if nullable:
            return f"{source} is None or {' or '.join(tests)}"
        return f"{source} is not None and ({' or '.join(tests)})"

    # Fields

    def field(self, field: Field, source: str, as_tag: bool = False) -> None:
        if field.kind in FIXED:
            self.run.append((FIXED[field.kind], source))
        elif field.kind == "array":
            self.array(field, source)
        elif field.kind == "struct":
            self.struct_field(field, source, as_tag)
        else:
            self.run_of_bytes(field.kind, source, field.is_nullable(self.version))

    def struct_field(self, field: Field, source: str, as_tag: bool) -> None:
        item = field.struct
        assert item is not None
        inner = self.name("o")
        self.emit(f"{inner} = {source}")
        if not field.is_nullable(self.version):
            self.struct(item, inner)
            return
        before = list(self.run)
        self.emit(f"if {inner} is None:")
        self.indent += 1
        # Null is -1 in a byte; within a tag it is 0 in a varint.
        self.run.append(("b", "0" if as_tag else "-1"))
        self.flush()
        self.indent -= 1
        self.emit("else:")
        self.indent += 1
        self.run = [*before, ("b", "1")]
        self.struct(item, inner)
        self.flush()
        self.indent -= 1

    def run_of_bytes(self, kind: str, source: str, nullable: bool) -> None:
        """A string, octets or records."""
        data, size = self.name("s"), self.name("n")
        extra = 1 if self.flexible else 0
        plus = " + 1" if extra else ""
        code = "h" if kind == "string" else "i"
        encode = ".encode()" if kind == "string" else ""
        if nullable:
            self.emit(f"{data} = {source}")
            self.emit(f"if {data} is None:")
            self.emit(f"    {data} = b''")
            self.emit(f"    {size} = {extra - 1}")
            self.emit("else:")
            if encode:
                self.emit(f"    {data} = {data}{encode}")
            self.emit(f"    {size} = len({data}){plus}")
        else:
            self.emit(f"{data} = {source}{encode}")
            self.emit(f"{size} = len({data}){plus}")
        if kind == "string":
            self.length(code, size, then=data)
            return
        # Octets can be long, and records are not even bytes: both are passed by reference.
        self.length(code, size)
        self.emit(f"if {size} > {extra}:")
        self.emit(f"    {self.add}({data})")

    def array(self, field: Field, source: str) -> None:
        items, count = self.name("items"), self.name("n")
        extra = 1 if self.flexible else 0
        plus = " + 1" if extra else ""
        self.emit(f"{items} = {source}")
        if field.is_nullable(self.version):
            self.emit(f"if {items} is None:")
            self.emit(f"    {items} = ()")
            self.emit(f"    {count} = {extra - 1}")
            self.emit("else:")
            self.emit(f"    {count} = len({items}){plus}")
        else:
            self.emit(f"{count} = len({items}){plus}")
        item = field.struct
        kind = "" if item is not None else field.item_kind
        if kind in FIXED:
            self.fixed_items(kind, items, count)
            return
        self.length("i", count)
        each = self.name("o")
        self.emit(f"for {each} in {items}:")
        self.indent += 1
        if field.ready_made:
            self.emit(f"if {each}.__class__ is bytes:")
            self.emit(f"    {self.add}({each})")
            self.emit("    continue")
        if item is not None:
            self.struct(item, each)
        else:
            self.run_of_bytes(kind, each, nullable=False)
        self.flush()
        self.indent -= 1

    def fixed_items(self, kind: str, items: str, count: str) -> None:
        """The count and the items, in one call if nothing else must be packed with the count."""
        run = f"run_{kind}[len({items})]"
        if not self.run and not self.flexible:
            self.emit(f"{self.add}(pack_classic_{run}({count}, *{items}))")
        elif not self.run:
            self.emit(f"if {count} < 128:")
            self.emit(f"    {self.add}(pack_compact_{run}({count}, *{items}))")
            self.emit("else:")
            self.emit(f"    {self.add}(uvarint({count}) + pack_{run}(*{items}))")
        else:
            self.length("i", count)
            self.emit(f"if {items}:")
            self.emit(f"    {self.add}(pack_{run}(*{items}))")


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    return EncoderWriter(cls, version, cls.is_flexible(version)).write()


def compile_item_encoder(cls: type[Struct], version: int) -> Encoder:
    """The encoder of a single struct. The message it belongs to determines whether the version is flexible."""
    return EncoderWriter(cls, version, message_of(cls).is_flexible(version)).write()
