"""Whether data written with one Avro schema can be read with another: the Avro specification's resolution rules.

Finds the same incompatibilities, in the same order and with the same messages, as Apache Avro's Java library, because
registries report those. Like that library, it compares names without their namespace.
"""

from __future__ import annotations

from ..formats import Difference
from .text import to_text
from .types import PRIMITIVES, AvroType

# The types that a reader of each type accepts besides its own.
PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
DESCRIPTIONS = {
    "FIXED_SIZE_MISMATCH": "The size of FIXED type field at path '{path}' in the {{reader}} schema does not match with"
    " the {{writer}} schema",
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the {{reader}} schema does not match with the {{writer}}"
    " schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": "The {{reader}} schema is missing enum symbols '{info}' at path '{path}' in the {{writer}}"
    " schema",
    "MISSING_UNION_BRANCH": "The {{reader}} schema is missing a type inside a union field at path '{path}' in the"
    " {{writer}} schema",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{info}' at path '{path}' in the {{reader}} schema has no default"
    " value and is missing in the {{writer}} schema",
}

# A path within a schema, linked from the inside out. Most paths are never printed, so building one must be cheap.
Path = tuple["Path", str | int] | None


def find_differences(reader: AvroType, writer: AvroType) -> list[Difference]:
    try:
        return _Checker().check(reader, writer, None)
    except _AmbiguousField as error:
        return [Difference("", "/", f"Unexpected exception during compatibility check: {error}")]


class _AmbiguousField(Exception):
    """A field whose name and aliases match several of the writer's fields. Avro then gives up and reports no type."""


class _Checker:
    """Remembers every pair it compared. A pair that recurs within its own comparison counts as compatible."""

    def __init__(self) -> None:
        # Holds the types as well, so that their ids are not reused.
        self.results: dict[tuple[int, int], tuple[AvroType, AvroType, list[Difference]]] = {}

    def check(self, reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
        if reader.kind == writer.kind and reader.kind in PRIMITIVES:
            return []
        pair = (id(reader), id(writer))
        known = self.results.get(pair)
        if known is not None:
            return known[2]
        self.results[pair] = (reader, writer, [])
        found = self._compare(reader, writer, path)
        self.results[pair] = (reader, writer, found)
        return found

    def _compare(self, reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
        kind = _kind(reader)
        if kind == _kind(writer):
            return self._same_kind(kind, reader, writer, path)
        if writer.kind == "union":
            return [
                found
                for index, branch in enumerate(writer.branches)
                for found in self.check(reader, branch, (path, index))
            ]
        if kind == "union":
            if any(not self.check(branch, writer, None) for branch in reader.branches):
                return []
            return [_difference("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {_shown(writer)}")]
        if writer.kind in PROMOTIONS.get(kind, ()):
            return []
        message = f"reader type: {_shown(reader)} not compatible with writer type: {_shown(writer)}"
        return [_difference("TYPE_MISMATCH", path, message)]

    def _same_kind(self, kind: str, reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
        if kind == "array":
            return self.check(reader.element, writer.element, (path, "items"))
        if kind == "map":
            return self.check(reader.element, writer.element, (path, "values"))
        if kind == "union":
            return [
                _difference(
                    "MISSING_UNION_BRANCH", (path, index), f"reader union lacking writer type: {_shown(branch)}"
                )
                for index, branch in enumerate(writer.branches)
                if self.check(reader, branch, None)
            ]
        if kind == "record":
            return _names(reader, writer, path) + self._fields(reader, writer, (path, "fields"))
        if kind == "enum":
            return _names(reader, writer, path) + _symbols(reader, writer, (path, "symbols"))
        if kind == "fixed":
            return _names(reader, writer, path) + _sizes(reader, writer, (path, "size"))
        return []

    def _fields(self, reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
        written = {field.name: field for field in writer.fields}
        found: list[Difference] = []
        for index, field in enumerate(reader.fields):
            here = (path, index)
            # An alias that equals the name counts twice, as in Avro.
            sources = [name for name in (field.name, *field.aliases) if name in written]
            if len(sources) > 1:
                shown = f"{field.name} type:{_shown(field.type)} pos:{index}"
                raise _AmbiguousField(
                    f"Reader record field {shown} matches multiple fields in writer record schema {to_text(writer)}"
                )
            if sources:
                found += self.check(field.type, written[sources[0]].type, (here, "type"))
            elif field.has_default:
                continue
            elif field.type.kind == "enum" and field.type.enum_default is not None:
                # Avro compares the enum with the whole record here. They never match, and the type of the error shows
                # this.
                found += self.check(field.type, writer, (here, "type"))
            else:
                found.append(_difference("READER_FIELD_MISSING_DEFAULT_VALUE", here, field.name))
        return found


def _names(reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return []
    return [_difference("NAME_MISMATCH", (path, "name"), f"expected: {writer.full_name}")]


def _symbols(reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.enum_default is not None:
        return []
    return [_difference("MISSING_ENUM_SYMBOLS", path, f"[{', '.join(missing)}]")]


def _sizes(reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
    if reader.size == writer.size:
        return []
    return [_difference("FIXED_SIZE_MISMATCH", path, f"expected: {writer.size}, found: {reader.size}")]


def _kind(type_: AvroType) -> str:
    return "record" if type_.kind == "error" else type_.kind


def _shown(type_: AvroType) -> str:
    return _kind(type_).upper()


def _difference(type_: str, path: Path, info: str) -> Difference:
    pointer = _pointer(path)
    return Difference(type_, pointer, DESCRIPTIONS[type_].format(path=pointer, info=info), info)


def _pointer(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, part = path
        parts.append(str(part))
    return "/" + "/".join(reversed(parts))
