"""The types that a .proto file can refer to: its own and those of its imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..entities import Reference
from ..errors import InvalidSchema
from .model import SCALARS, Enum, Extend, Field, MapType, Message, ProtoFile

# A path of names, without the package.
Scope = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A message or enum, with its package and the reference that it comes from; None for the file itself."""

    element: Message | Enum
    package: str
    local_name: str
    reference: Reference | None = None

    @property
    def is_enum(self) -> bool:
        return isinstance(self.element, Enum)


@dataclass
class Types:
    """All types by their full name, without a leading dot."""

    package: str
    known: dict[str, TypeInfo] = field(default_factory=dict)
    # Full names of fields that extend other messages. Custom options are such fields.
    extensions: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, file: ProtoFile, dependencies: Iterable[tuple[ProtoFile, Reference | None]] = ()) -> Types:
        types = cls(file.package)
        for dependency, reference in dependencies:
            types._add(dependency, reference)
        types._add(file, None)
        return types

    def _add(self, file: ProtoFile, reference: Reference | None) -> None:
        for path, element in elements(file):
            local_name = ".".join(path)
            name = f"{file.package}.{local_name}" if file.package else local_name
            self.known[name] = TypeInfo(element, file.package, local_name, reference)
        for path, extended in _extend_fields(file):
            self.extensions.add(".".join((*filter(None, (file.package,)), *path, extended.name)))

    def resolve(self, name: str, scope: Scope, package: str | None = None) -> str | None:
        """The full name of a type that is used in a scope: the innermost match."""
        return self._resolve(name, scope, self.known.__contains__, package)

    def resolve_extension(self, name: str, scope: Scope) -> str | None:
        return self._resolve(name, scope, self.extensions.__contains__, None)

    def _resolve(self, name: str, scope: Scope, known: object, package: str | None) -> str | None:
        assert callable(known)
        if name.startswith("."):
            return name[1:] if known(name[1:]) else None
        home = self.package if package is None else package
        prefix = [*home.split("."), *scope] if home else list(scope)
        while True:
            candidate = ".".join((*prefix, name))
            if known(candidate):
                return candidate
            if not prefix:
                return None
            prefix.pop()

    def require(self, name: str, scope: Scope) -> str:
        found = self.resolve(name, scope)
        if found is None:
            raise InvalidSchema(f"Could not resolve type: {name}")
        return found


def elements(file: ProtoFile) -> Iterator[tuple[Scope, Message | Enum]]:
    """Every message and enum, including groups, with its path of names."""
    yield from (((enum.name,), enum) for enum in file.enums)
    for message in file.messages:
        yield from _within((), message)


def _within(scope: Scope, message: Message) -> Iterator[tuple[Scope, Message | Enum]]:
    path = (*scope, message.name)
    yield path, message
    yield from (((*path, enum.name), enum) for enum in message.enums)
    for inner in (*message.messages, *groups(message)):
        yield from _within(path, inner)


def groups(message: Message) -> list[Message]:
    """The messages that groups define."""
    fields = [*message.fields, *(field for oneof in message.oneofs for field in oneof.fields)]
    return [field.group for field in fields if field.group is not None]


def _extend_fields(file: ProtoFile) -> Iterator[tuple[Scope, Field]]:
    yield from (((), field) for extend in file.extends for field in extend.fields)
    for path, element in elements(file):
        if isinstance(element, Message):
            yield from ((path, field) for extend in element.extends for field in extend.fields)


def check_types(file: ProtoFile, types: Types) -> None:
    """Refuse a file that refers to an unknown type."""
    for path, element in elements(file):
        if isinstance(element, Message):
            for one in [*element.fields, *(field for oneof in element.oneofs for field in oneof.fields)]:
                _check_field(one, path, types)
            _check_extends(element.extends, path, types)
    _check_extends(file.extends, (), types)
    for service in file.services:
        for method in service.methods:
            types.require(method.request, ())
            types.require(method.response, ())


def _check_extends(extends: list[Extend], scope: Scope, types: Types) -> None:
    for extend in extends:
        for one in extend.fields:
            _check_field(one, scope, types)


def _check_field(one: Field, scope: Scope, types: Types) -> None:
    if one.group is not None:
        return
    name = one.type.value if isinstance(one.type, MapType) else one.type
    if name not in SCALARS:
        types.require(name, scope)
