"""Converts between the model of a .proto file and its FileDescriptorProto, which Python and Node clients use."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)  # fmt: skip

from .meta import meta_options, set_meta
from .model import (
    MAX_TAG,
    SCALARS,
    Enum,
    EnumConstant,
    Extend,
    Extensions,
    Field,
    MapType,
    Message,
    Method,
    OneOf,
    Option,
    ProtoFile,
    Range,
    Service,
    Word,
)  # fmt: skip
from .types import Scope, Types

_LABELS = {
    "": FieldDescriptorProto.LABEL_OPTIONAL,
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_NAMES_OF_LABELS = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional",
    FieldDescriptorProto.LABEL_REQUIRED: "required",
    FieldDescriptorProto.LABEL_REPEATED: "repeated",
}


def to_descriptor(file: ProtoFile, types: Types, name: str = "default") -> FileDescriptorProto:
    return _ToDescriptor(file, types).file(name)


class _ToDescriptor:
    def __init__(self, file: ProtoFile, types: Types) -> None:
        self.source = file
        self.types = types
        self.proto3 = file.syntax == "proto3"

    def file(self, name: str) -> FileDescriptorProto:
        source = self.source
        file = FileDescriptorProto(name=name, package=source.package or None)
        if source.edition:
            file.syntax = "editions"
            file.edition = getattr(descriptor_pb2, f"EDITION_{source.edition}", 0)
        elif source.syntax:
            file.syntax = source.syntax
        for path in source.all_imports:
            if path in source.public_imports:
                file.public_dependency.append(len(file.dependency))
            elif path in source.weak_imports:
                file.weak_dependency.append(len(file.dependency))
            file.dependency.append(path)
        _set_options(file, source.options)
        for message in source.messages:
            self.message(message, file.message_type.add(), ())
        for enum in source.enums:
            _enum(enum, file.enum_type.add())
        self.extends(source.extends, file.extension, ())
        for service in source.services:
            self.service(service, file.service.add())
        return file

    def message(self, source: Message, message: DescriptorProto, scope: Scope) -> None:
        path = (*scope, source.name)
        message.name = source.name
        _set_options(message, source.options)
        for index, oneof in enumerate(source.oneofs):
            declared = message.oneof_decl.add(name=oneof.name)
            _set_options(declared, oneof.options)
            for field in oneof.fields:
                self.field(field, message, path).oneof_index = index
        # Use the order of the text, so that fields without a oneof keep the order of the file.
        for field in source.fields:
            made = self.field(field, message, path)
            if self.proto3 and field.label == "optional":
                made.proto3_optional = True
        for made in message.field:
            if made.proto3_optional:
                # An optional field has its own oneof to track whether it is set. These come after the real oneofs.
                made.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=_unused(f"_{made.name}", message))
        for inner in source.messages:
            self.message(inner, message.nested_type.add(), path)
        for enum in source.enums:
            _enum(enum, message.enum_type.add())
        for item in source.extensions:
            for one in item.ranges:
                message.extension_range.add(start=one.first, end=one.last + 1)
        for statement in source.reserved:
            for value in statement:
                if isinstance(value, Range):
                    message.reserved_range.add(start=value.first, end=value.last + 1)
                else:
                    message.reserved_name.append(value)
        self.extends(source.extends, message.extension, path)

    def field(self, source: Field, message: DescriptorProto, scope: Scope) -> FieldDescriptorProto:
        field = message.field.add(name=source.name, number=source.tag, label=_LABELS[source.label])
        if isinstance(source.type, MapType):
            self.map_field(source, source.type, field, message, scope)
        elif source.group is not None:
            field.name = source.name.lower()
            field.type = FieldDescriptorProto.TYPE_GROUP
            field.type_name = "." + ".".join(filter(None, (self.source.package, *scope, source.name)))
            self.message(source.group, message.nested_type.add(), scope)
        else:
            self.set_type(field, source.type, scope)
        self.set_extras(field, source)
        return field

    def set_extras(self, field: FieldDescriptorProto, source: Field) -> None:
        if source.default is not None:
            field.default_value = str(source.default)
        if source.json_name is not None:
            field.json_name = source.json_name
        _set_options(field, source.options)

    def set_type(self, field: FieldDescriptorProto, name: str, scope: Scope) -> None:
        if name in SCALARS:
            field.type = getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
            return
        full_name = self.types.require(name, scope)
        is_enum = self.types.known[full_name].is_enum
        field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{full_name}"

    def map_field(
        self, source: Field, type_: MapType, field: FieldDescriptorProto, message: DescriptorProto, scope: Scope
    ) -> None:
        """A map is a repeated message with key and value, which protoc names after the field."""
        entry_name = "".join(part[:1].upper() + part[1:] for part in source.name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL)
        self.set_type(key, type_.key, scope)
        self.set_type(value, type_.value, scope)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = "." + ".".join(filter(None, (self.source.package, *scope, entry_name)))

    def extends(self, sources: list[Extend], extensions: Any, scope: Scope) -> None:
        for source in sources:
            extended = self.types.resolve(source.type, scope)
            if extended is None:
                # Extensions of unknown files are only useful to their compiler plug-ins.
                continue
            for one in source.fields:
                if isinstance(one.type, MapType) or one.group is not None:
                    continue
                field = extensions.add(name=one.name, number=one.tag, label=_LABELS[one.label], extendee=f".{extended}")
                self.set_type(field, one.type, scope)
                self.set_extras(field, one)
                if self.proto3 and one.label == "optional":
                    field.proto3_optional = True

    def service(self, source: Service, service: ServiceDescriptorProto) -> None:
        service.name = source.name
        _set_options(service, source.options)
        for one in source.methods:
            method = service.method.add(
                name=one.name,
                input_type=f".{self.types.require(one.request, ())}",
                output_type=f".{self.types.require(one.response, ())}",
            )
            if one.request_streams:
                method.client_streaming = True
            if one.response_streams:
                method.server_streaming = True
            _set_options(method, one.options)


def _enum(source: Enum, enum: EnumDescriptorProto) -> None:
    enum.name = source.name
    _set_options(enum, source.options)
    for constant in source.constants:
        _set_options(enum.value.add(name=constant.name, number=constant.tag), constant.options)
    for statement in source.reserved:
        for value in statement:
            if isinstance(value, Range):
                enum.reserved_range.add(start=value.first, end=value.last)
            else:
                enum.reserved_name.append(value)


def _unused(name: str, message: DescriptorProto) -> str:
    taken = {one.name for one in (*message.field, *message.oneof_decl, *message.nested_type)}
    while name in taken:
        name = f"X{name}"
    return name


def _set_options(element: Any, options: list[Option]) -> None:
    """Set the options that Protobuf and Confluent define. Others need the files that define them, and are left out."""
    set_meta(element, options)
    known = element.options.DESCRIPTOR.fields_by_name
    for option in options:
        field = known.get(option.name)
        if field is None or not isinstance(option.value, str):
            continue
        try:
            if field.cpp_type == field.CPPTYPE_BOOL:
                setattr(element.options, option.name, option.value == "true")
            elif field.cpp_type == field.CPPTYPE_ENUM:
                setattr(element.options, option.name, field.enum_type.values_by_name[option.value].number)
            elif field.cpp_type == field.CPPTYPE_STRING:
                setattr(element.options, option.name, str(option.value))
        except (KeyError, TypeError, ValueError, AttributeError):
            # An invalid value of an option does not affect how data is read.
            continue


def from_descriptor(file: FileDescriptorProto) -> ProtoFile:
    """The model of a descriptor, with names as in a hand-written file."""
    return _FromDescriptor(file).file()


class _FromDescriptor:
    def __init__(self, file: FileDescriptorProto) -> None:
        self.source = file
        self.proto3 = file.syntax == "proto3"

    def file(self) -> ProtoFile:
        source = self.source
        file = ProtoFile(package=source.package, options=_options(source))
        if source.syntax in ("proto2", "proto3"):
            file.syntax = source.syntax
        elif source.syntax == "editions":
            file.edition = descriptor_pb2.Edition.Name(source.edition).removeprefix("EDITION_")
        for index, path in enumerate(source.dependency):
            if index in source.public_dependency:
                file.public_imports.append(path)
            elif index in source.weak_dependency:
                file.weak_imports.append(path)
            else:
                file.imports.append(path)
        file.messages = [self.message(message, ()) for message in source.message_type]
        file.enums = [_enum_model(enum) for enum in source.enum_type]
        file.extends = self.extends(source.extension, ())
        file.services = [self.service(service) for service in source.service]
        return file

    def message(self, source: DescriptorProto, scope: Scope) -> Message:
        path = (*scope, source.name)
        prefix = "." + ".".join(filter(None, (self.source.package, *path))) + "."
        entries = {f"{prefix}{one.name}": one for one in source.nested_type if one.options.map_entry}
        inner = {f"{prefix}{one.name}": one for one in source.nested_type if not one.options.map_entry}
        message = Message(source.name, options=_options(source))
        oneofs = [OneOf(one.name, options=_options(one)) for one in source.oneof_decl]
        group_names = set()
        for field in source.field:
            made = self.field(field, path, entries)
            if field.type == FieldDescriptorProto.TYPE_GROUP:
                group_names.add(field.type_name)
                made.group = self.message(inner[field.type_name], path)
                made.name = made.type = inner[field.type_name].name
            if field.HasField("oneof_index") and not field.proto3_optional:
                made.label = ""
                oneofs[field.oneof_index].fields.append(made)
            else:
                message.fields.append(made)
        message.oneofs = [oneof for oneof in oneofs if oneof.fields]
        message.messages = [self.message(one, path) for name, one in inner.items() if name not in group_names]
        message.enums = [_enum_model(enum) for enum in source.enum_type]
        message.reserved = [[Range(one.start, min(one.end - 1, MAX_TAG))] for one in source.reserved_range]
        message.reserved += [[name] for name in source.reserved_name]
        message.extensions = [
            Extensions([Range(one.start, min(one.end - 1, MAX_TAG))]) for one in source.extension_range
        ]
        message.extends = self.extends(source.extension, path)
        return message

    def field(self, source: FieldDescriptorProto, scope: Scope, entries: dict[str, DescriptorProto]) -> Field:
        label = _NAMES_OF_LABELS[source.label]
        if (self.proto3 or self.source.syntax == "editions") and label == "optional" and not source.proto3_optional:
            label = ""
        type_: str | MapType = self.type_name(source, scope)
        if source.type_name in entries:
            entry = entries[source.type_name]
            type_ = MapType(*(self.type_name(one, scope) for one in sorted(entry.field, key=lambda one: one.number)))
            label = ""
        field = Field(source.name, source.number, type_, label, _options(source))
        if source.HasField("default_value"):
            quoted = source.type in (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
            field.default = source.default_value if quoted else Word(source.default_value)
        if source.HasField("json_name") and source.json_name != _default_json_name(source.name):
            field.json_name = source.json_name
        return field

    def type_name(self, source: FieldDescriptorProto, scope: Scope) -> str:
        if not source.type_name:
            return str(FieldDescriptorProto.Type.Name(source.type)).removeprefix("TYPE_").lower()
        return self.relative(source.type_name, scope)

    def relative(self, name: str, scope: Scope) -> str:
        """A full name as one would write it within a scope: without the common prefix."""
        if not name.startswith("."):
            return name
        package = f".{self.source.package}." if self.source.package else "."
        if not name.startswith(package):
            return name[1:]
        parts = name[len(package) :].split(".")
        common = 0
        while common < min(len(parts) - 1, len(scope)) and parts[common] == scope[common]:
            common += 1
        return ".".join(parts[common:])

    def extends(self, sources: Any, scope: Scope) -> list[Extend]:
        by_type: dict[str, Extend] = {}
        for source in sources:
            name = self.relative(source.extendee, scope)
            by_type.setdefault(name, Extend(name)).fields.append(self.field(source, scope, {}))
        return list(by_type.values())

    def service(self, source: ServiceDescriptorProto) -> Service:
        methods = [
            Method(
                one.name,
                self.relative(one.input_type, ()),
                self.relative(one.output_type, ()),
                one.client_streaming,
                one.server_streaming,
                _options(one),
            )
            for one in source.method
        ]
        return Service(source.name, methods, _options(source))


def _enum_model(source: EnumDescriptorProto) -> Enum:
    constants = [EnumConstant(value.name, value.number, _options(value)) for value in source.value]
    reserved: list[list[Range | str]] = [[Range(one.start, one.end)] for one in source.reserved_range]
    return Enum(source.name, constants, _options(source), [*reserved, *([name] for name in source.reserved_name)])


def _default_json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _options(element: Any) -> list[Option]:
    """The set options that Protobuf and Confluent define."""
    options = []
    for field, value in element.options.ListFields():
        if field.name == "map_entry" or field.is_extension or field.is_repeated:
            continue
        if field.cpp_type == field.CPPTYPE_BOOL:
            options.append(Option(field.name, Word("true" if value else "false")))
        elif field.cpp_type == field.CPPTYPE_ENUM:
            options.append(Option(field.name, Word(field.enum_type.values_by_number[value].name)))
        elif field.cpp_type == field.CPPTYPE_STRING:
            options.append(Option(field.name, value))
    return options + meta_options(element)
