"""Puts a .proto file in a fixed order with full names, so that equivalent files have the same text.

The order of messages does not change, because records identify a message by its position in the file.
"""

from __future__ import annotations

from dataclasses import replace

from .model import (
    SCALARS,
    Enum,
    EnumConstant,
    Extend,
    Extensions,
    Field,
    MapType,
    Message,
    OneOf,
    Option,
    ProtoFile,
    Range,
    Service,
)  # fmt: skip
from .types import Scope, Types


def normalized(file: ProtoFile, types: Types) -> ProtoFile:
    return _Normalizer(types).file(file)


class _Normalizer:
    def __init__(self, types: Types) -> None:
        self.types = types

    def file(self, file: ProtoFile) -> ProtoFile:
        return ProtoFile(
            # A file without a syntax line is proto2.
            "" if file.syntax == "proto2" else file.syntax,
            file.edition,
            file.package,
            sorted({*file.imports, *file.weak_imports}),
            sorted(set(file.public_imports)),
            [],
            self.options(file.options, ()),
            [self.message(message, ()) for message in file.messages],
            [self.enum(enum, ()) for enum in file.enums],
            self.extends(file.extends, ()),
            [self.service(service) for service in file.services],
        )

    def message(self, message: Message, scope: Scope) -> Message:
        path = (*scope, message.name)
        fields = [self.field(field, path) for field in message.fields]
        oneofs = [self.oneof(oneof, path) for oneof in message.oneofs if oneof.fields]
        return Message(
            message.name,
            sorted(fields, key=lambda field: field.tag),
            sorted(oneofs, key=lambda oneof: oneof.fields[0].tag),
            [self.message(inner, path) for inner in message.messages],
            [self.enum(enum, path) for enum in message.enums],
            self.options(message.options, path),
            _reserved(message.reserved),
            sorted(
                (
                    Extensions([one], self.options(item.options, path))
                    for item in message.extensions
                    for one in item.ranges
                ),
                key=lambda item: item.ranges[0],
            ),
            self.extends(message.extends, path),
        )

    def field(self, field: Field, scope: Scope) -> Field:
        group = None if field.group is None else self.message(field.group, scope)
        type_: str | MapType
        label = field.label
        if isinstance(field.type, MapType):
            type_ = MapType(field.type.key, self.type_name(field.type.value, scope))
            label = ""
        else:
            type_ = field.type if group is not None else self.type_name(field.type, scope)
        return replace(field, type=type_, label=label, options=self.options(field.options, scope), group=group)

    def type_name(self, name: str, scope: Scope) -> str:
        return name if name in SCALARS else f".{self.types.require(name, scope)}"

    def oneof(self, oneof: OneOf, scope: Scope) -> OneOf:
        fields = sorted((self.field(field, scope) for field in oneof.fields), key=lambda field: field.tag)
        return OneOf(oneof.name, fields, self.options(oneof.options, scope))

    def enum(self, enum: Enum, scope: Scope) -> Enum:
        path = (*scope, enum.name)
        constants = [
            EnumConstant(constant.name, constant.tag, self.options(constant.options, path))
            for constant in enum.constants
        ]
        constants.sort(key=lambda constant: (constant.tag, constant.name))
        return Enum(enum.name, constants, self.options(enum.options, path), _reserved(enum.reserved))

    def extends(self, extends: list[Extend], scope: Scope) -> list[Extend]:
        by_type: dict[str, list[Field]] = {}
        for extend in extends:
            found = self.types.resolve(extend.type, scope)
            fields = by_type.setdefault(extend.type if found is None else f".{found}", [])
            fields += [self.field(field, scope) for field in extend.fields]
        return [Extend(name, sorted(fields, key=lambda field: field.tag)) for name, fields in by_type.items()]

    def service(self, service: Service) -> Service:
        methods = [
            replace(
                method,
                request=f".{self.types.require(method.request, ())}",
                response=f".{self.types.require(method.response, ())}",
                options=self.options(method.options, ()),
            )
            for method in service.methods
        ]
        return Service(service.name, methods, self.options(service.options, ()))

    def options(self, options: list[Option], scope: Scope) -> list[Option]:
        return sorted((self.option(option, scope) for option in options), key=lambda option: option.name)

    def option(self, option: Option, scope: Scope) -> Option:
        value = _sorted_value(option.value)
        if not option.is_custom:
            return Option(option.name, value)
        name, closing, rest = option.name[1:].partition(")")
        found = self.types.resolve_extension(name, scope)
        return Option(f"({found or name}{closing}{rest}", value)


def _reserved(reserved: list[list[Range | str]]) -> list[list[Range | str]]:
    """One value per statement, numbers first."""
    values = [value for statement in reserved for value in statement]
    ordered: list[Range | str] = [*sorted(value for value in values if isinstance(value, Range))]
    ordered += sorted(value for value in values if isinstance(value, str))
    return [[value] for value in ordered]


def _sorted_value(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted_value(value[key]) for key in sorted(value) if value[key] != []}
    if isinstance(value, list):
        return [_sorted_value(item) for item in value]
    return value
