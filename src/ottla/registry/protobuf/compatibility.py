"""Whether data written with one Protobuf file can be read with another: the rules of Confluent's registry.

Fields are identified by number, types by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..formats import Difference
from .model import SCALARS, Field, MapType, Message, ProtoFile
from .types import Scope, TypeInfo, Types, groups

# Scalars by their form on the wire: one may replace another of the same form.
SCALAR_KINDS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool", "enum"), "general number"),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "string or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
# Only incompatible differences are reported; these are their texts.
DESCRIPTIONS = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {{reader}} schema does not match the package in the"
    " {{writer}} schema",
    "MESSAGE_REMOVED": "The {{reader}} schema is missing a MESSAGE type at path '{path}' in the {{writer}} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {{reader}} schema does not match the"
    " {{writer}} schema",
    "FIELD_SCALAR_KIND_CHANGED": "The kind of a SCALAR field at path '{path}' in the {{reader}} schema does not"
    " match its kind in the {{writer}} schema",
    "FIELD_NAMED_TYPE_CHANGED": "The type of a MESSAGE field at path '{path}' in the {{reader}} schema does not"
    " match its type in the {{writer}} schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label for a NUMERIC field at path '{path}' in the {{reader}} schema does"
    " not match its label in the {{writer}} schema",
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {{reader}} schema is missing in the"
    " {{writer}} schema",
    "REQUIRED_FIELD_REMOVED": "The {{reader}} schema is missing a required field at path: '{path}' in the"
    " {{writer}} schema",
    "ONEOF_FIELD_REMOVED": "The {{reader}} schema is missing a oneof field at path '{path}' in the {{writer}} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "Multiple fields in the oneof at path '{path}' in the {{reader}} schema are"
    " outside a oneof in the {{writer}} schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "A field in the oneof at path '{path}' in the {{reader}} schema is outside an"
    " existing oneof in the {{writer}} schema",
}
# A type that is used in many places is compared in each of them, so one change may be found many times.
MAX_FOUND = 100


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a comparison: the scope of the messages, the packages of both sides, and the path to report."""

    scope: Scope
    path: Scope
    old_package: str
    new_package: str

    def into(self, *path: str) -> _Place:
        return _Place(self.scope, (*self.path, *path), self.old_package, self.new_package)


def find_differences(old: ProtoFile, old_types: Types, new: ProtoFile, new_types: Types) -> list[Difference]:
    comparison = _Comparison(old_types, new_types)
    if old.package != new.package:
        comparison.add("PACKAGE_CHANGED", ())
    start = _Place((), (), old.package, new.package)
    comparison.messages(old.messages, new.messages, start)
    return comparison.found[:MAX_FOUND]


class _Comparison:
    def __init__(self, old_types: Types, new_types: Types) -> None:
        self.old_types = old_types
        self.new_types = new_types
        self.found: list[Difference] = []
        # Messages whose fields are being compared. A recursive message is not entered again.
        self.open: set[tuple[int, int]] = set()
        # Whether the comparison of a pair of imported messages found differences.
        self.compared: dict[tuple[int, int], bool] = {}

    def add(self, type_: str, path: Scope) -> None:
        pointer = "#/" + "/".join(path)
        self.found.append(Difference(type_, pointer, DESCRIPTIONS[type_].format(path=pointer)))

    def messages(self, old: list[Message], new: list[Message], place: _Place) -> None:
        updated = {message.name: message for message in new}
        for message in old:
            here = _Place(
                (*place.scope, message.name), (*place.path, message.name), place.old_package, place.new_package
            )
            if message.name in updated:
                self.message(message, updated[message.name], here)
            else:
                self.add("MESSAGE_REMOVED", here.path)

    def message(self, old: Message, new: Message, place: _Place) -> None:
        pair = (id(old), id(new))
        if pair in self.open:
            return
        self.open.add(pair)
        self.fields(old, new, place)
        self.messages([*old.messages, *groups(old)], [*new.messages, *groups(new)], place)
        self.open.remove(pair)

    def fields(self, old: Message, new: Message, place: _Place) -> None:
        before, old_oneofs = _by_tag(old)
        after, new_oneofs = _by_tag(new)
        self.new_exclusions(new, before, old_oneofs, place)
        dropped = _dropped_oneofs(old, new, after)
        for tag in sorted({*before, *after}):
            if tag not in after:
                oneof = old_oneofs.get(tag)
                if oneof is None:
                    if before[tag].label == "required":
                        self.add("REQUIRED_FIELD_REMOVED", (*place.path, str(tag)))
                elif oneof not in dropped:
                    self.add("ONEOF_FIELD_REMOVED", (*place.path, oneof, str(tag)))
            elif tag not in before:
                if tag not in new_oneofs and after[tag].label == "required":
                    self.add("REQUIRED_FIELD_ADDED", (*place.path, str(tag)))
            else:
                within = (new_oneofs[tag],) if tag in new_oneofs else ()
                self.field(before[tag], after[tag], place.into(*within, str(tag)))

    def new_exclusions(self, new: Message, before: dict[int, Field], old_oneofs: dict[int, str], place: _Place) -> None:
        """Find fields that could be set together before and no longer can."""
        for oneof in new.oneofs:
            tags = [field.tag for field in oneof.fields if field.tag in before]
            alone = [tag for tag in tags if tag not in old_oneofs]
            together = {old_oneofs[tag] for tag in tags if tag in old_oneofs}
            if len(alone) + len(together) > 1:
                many = len(alone) > 1
                type_ = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if many else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self.add(type_, (*place.path, oneof.name))

    def field(self, old: Field, new: Field, place: _Place) -> None:
        self.types(old.type, new.type, place, (old.label, new.label))

    def types(self, old: str | MapType, new: str | MapType, place: _Place, labels: tuple[str, str] = ("", "")) -> None:
        old_info = self.info(old, place, self.old_types, place.old_package)
        new_info = self.info(new, place, self.new_types, place.new_package)
        kind = _kind(old, old_info)
        if kind != _kind(new, new_info):
            self.add("FIELD_KIND_CHANGED", place.path)
        elif isinstance(old, MapType) and isinstance(new, MapType):
            self.types(old.key, new.key, place)
            self.types(old.value, new.value, place)
        elif kind == "scalar":
            self.scalars(_scalar_kind(old, old_info), _scalar_kind(new, new_info), labels, place)
        elif old_info is None or new_info is None:
            if old != new:
                self.add("FIELD_NAMED_TYPE_CHANGED", place.path)
        else:
            self.named(old_info, new_info, place)

    def info(self, type_: str | MapType, place: _Place, types: Types, package: str) -> TypeInfo | None:
        if isinstance(type_, MapType) or type_ in SCALARS:
            return None
        name = types.resolve(type_, place.scope, package)
        return None if name is None else types.known[name]

    def scalars(self, old: str, new: str, labels: tuple[str, str], place: _Place) -> None:
        if old != new:
            self.add("FIELD_SCALAR_KIND_CHANGED", place.path)
        elif all(labels) and labels[0] != labels[1] and old != "string or bytes":
            self.add("FIELD_NUMERIC_LABEL_CHANGED", place.path)

    def named(self, old: TypeInfo, new: TypeInfo, place: _Place) -> None:
        if old.local_name != new.local_name:
            self.add("FIELD_NAMED_TYPE_CHANGED", place.path)
            return
        if old.reference is None and new.reference is None:
            # Both are in the files themselves, where they are compared anyway.
            return
        if old.reference and new.reference and old.reference[1:] == new.reference[1:]:
            return
        assert isinstance(old.element, Message) and isinstance(new.element, Message)
        pair = (id(old.element), id(new.element))
        if pair not in self.compared:
            self.compared[pair] = False
            count = len(self.found)
            scope = tuple(old.local_name.split("."))
            self.message(old.element, new.element, _Place(scope, scope, old.package, new.package))
            self.compared[pair] = len(self.found) > count
        if self.compared[pair]:
            self.add("FIELD_NAMED_TYPE_CHANGED", place.path)


def _by_tag(message: Message) -> tuple[dict[int, Field], dict[int, str]]:
    """All fields by number, and the name of the oneof of those that are in one."""
    fields = {field.tag: field for field in message.fields}
    oneofs = {}
    for oneof in message.oneofs:
        for field in oneof.fields:
            fields[field.tag] = field
            oneofs[field.tag] = oneof.name
    return fields, oneofs


def _dropped_oneofs(old: Message, new: Message, after: dict[int, Field]) -> set[str]:
    """Oneofs that were removed with all their fields, which is allowed."""
    kept = {oneof.name for oneof in new.oneofs}
    return {
        oneof.name
        for oneof in old.oneofs
        if oneof.name not in kept and not any(field.tag in after for field in oneof.fields)
    }


def _kind(type_: str | MapType, info: TypeInfo | None) -> str:
    if isinstance(type_, MapType):
        return "map"
    return "scalar" if type_ in SCALARS or (info is not None and info.is_enum) else "message"


def _scalar_kind(type_: str | MapType, info: TypeInfo | None) -> str:
    return SCALAR_KINDS["enum" if info is not None else str(type_)]
