"""A .proto file as objects, without its comments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

SCALARS = frozenset(
    [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    ]
)
# The highest field number; "max" in a range.
MAX_TAG = 2**29 - 1
MAX_ENUM = 2**31 - 1


class Word(str):
    """A value without quotes: a number, true, false, or the name of an enum constant."""


@dataclass(slots=True)
class Option:
    """`name` as written, with the parentheses of a custom option: `java_package`, `(my.option).part`."""

    name: str
    value: object

    @property
    def is_custom(self) -> bool:
        return self.name.startswith("(")


class Range(NamedTuple):
    """Field numbers or enum values from first to last, both included."""

    first: int
    last: int


@dataclass(slots=True)
class MapType:
    key: str
    value: str

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(slots=True)
class Field:
    name: str
    tag: int
    type: str | MapType
    # "optional", "required", "repeated", or empty if there is none.
    label: str = ""
    options: list[Option] = field(default_factory=list)
    default: object = None
    json_name: str | None = None
    # A group defines a field and the type of its values together.
    group: Message | None = None


@dataclass(slots=True)
class OneOf:
    name: str
    fields: list[Field] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class EnumConstant:
    name: str
    tag: int
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Enum:
    name: str
    constants: list[EnumConstant] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    # One list of ranges and names per statement.
    reserved: list[list[Range | str]] = field(default_factory=list)


@dataclass(slots=True)
class Extensions:
    ranges: list[Range]
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Extend:
    """Fields added to a message of another file."""

    type: str
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class Message:
    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: list[OneOf] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[list[Range | str]] = field(default_factory=list)
    extensions: list[Extensions] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)


@dataclass(slots=True)
class Method:
    name: str
    request: str
    response: str
    request_streams: bool = False
    response_streams: bool = False
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    name: str
    methods: list[Method] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class ProtoFile:
    # "proto2", "proto3", or empty if the file has no syntax line.
    syntax: str = ""
    edition: str = ""
    package: str = ""
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    weak_imports: list[str] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    extends: list[Extend] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)

    @property
    def all_imports(self) -> list[str]:
        return [*self.imports, *self.public_imports, *self.weak_imports]
