"""A .proto file as text, in the layout that Confluent's registry stores."""

from __future__ import annotations

from collections.abc import Iterable

from .model import (
    MAX_ENUM,
    MAX_TAG,
    Enum,
    Extend,
    Extensions,
    Field,
    Message,
    Method,
    OneOf,
    Option,
    ProtoFile,
    Range,
    Service,
    Word,
)  # fmt: skip

_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", "'": "\\'",
    '"': '\\"',
}  # fmt: skip
CONFLUENT_OPTIONS = "(confluent."


def to_text(file: ProtoFile, custom: bool = True) -> str:
    """The whole file. `custom=False` omits options and extensions that only other programs understand."""
    writer = _Writer(custom)
    sections: list[list[str]] = [
        [f'import "{name}";' for name in (*file.imports, *file.weak_imports)]
        + [f'import public "{name}";' for name in file.public_imports],
        writer.options(file.options),
        [line for message in file.messages for line in writer.message(message)]
        + [line for enum in file.enums for line in writer.enum(enum)],
        [line for extend in file.extends for line in writer.extend(extend)] if custom else [],
        [line for service in file.services for line in writer.service(service)],
    ]
    lines = []
    if file.syntax:
        lines.append(f'syntax = "{file.syntax}";')
    if file.edition:
        lines.append(f'edition = "{file.edition}";')
    if file.package:
        lines.append(f"package {file.package};")
    for section in sections:
        if section:
            lines += ["", *section]
    return "".join(f"{line}\n" for line in lines)


class _Writer:
    """Every method returns lines; text within braces is indented by two spaces."""

    def __init__(self, custom: bool) -> None:
        self.custom = custom

    def _kept(self, options: Iterable[Option]) -> list[Option]:
        return [
            option
            for option in options
            if self.custom or not option.is_custom or option.name.startswith(CONFLUENT_OPTIONS)
        ]

    def options(self, options: Iterable[Option]) -> list[str]:
        return [
            line for option in self._kept(options) for line in _joined("option ", _assignment(option), ";").split("\n")
        ]

    def message(self, message: Message) -> list[str]:
        plain = [field for field in message.fields if field.group is None]
        groups = [field for field in message.fields if field.group is not None]
        sections = [
            [_reserved(values, MAX_TAG) for values in message.reserved],
            self.options(message.options),
            [line for field in plain for line in self.field(field)],
            [line for oneof in message.oneofs for line in self.oneof(oneof)],
            [line for field in groups for line in self.group(field)],
            [line for item in message.extensions for line in self.extensions(item)] if self.custom else [],
            [line for extend in message.extends for line in self.extend(extend)] if self.custom else [],
            [line for inner in message.messages for line in self.message(inner)]
            + [line for enum in message.enums for line in self.enum(enum)],
        ]
        return _braces(f"message {message.name}", sections)

    def field(self, field: Field) -> list[str]:
        label = f"{field.label} " if field.label else ""
        return self._with_options(f"{label}{field.type} {field.name} = {field.tag}", _field_options(field))

    def _with_options(self, text: str, options: Iterable[Option]) -> list[str]:
        kept = self._kept(options)
        if not kept:
            return [f"{text};"]
        if len(kept) == 1:
            return _joined(f"{text} [", _assignment(kept[0]), "];").split("\n")
        lines = [f"{text} ["]
        for index, option in enumerate(kept):
            comma = "," if index < len(kept) - 1 else ""
            lines += _indented(_joined("", _assignment(option), comma).split("\n"))
        return [*lines, "];"]

    def oneof(self, oneof: OneOf) -> list[str]:
        plain = [line for field in oneof.fields if field.group is None for line in self.field(field)]
        groups = [line for field in oneof.fields if field.group is not None for line in self.group(field)]
        return _braces(f"oneof {oneof.name}", [self.options(oneof.options), plain, groups])

    def group(self, field: Field) -> list[str]:
        assert field.group is not None
        label = f"{field.label} " if field.label else ""
        body = self.message(field.group)
        return [f"{label}group {field.name} = {field.tag} {{{body[0].partition('{')[2]}", *body[1:]]

    def extensions(self, item: Extensions) -> list[str]:
        ranges = ", ".join(_range(one, MAX_TAG) for one in item.ranges)
        return self._with_options(f"extensions {ranges}", item.options)

    def extend(self, extend: Extend) -> list[str]:
        return _braces(f"extend {extend.type}", [[line for field in extend.fields for line in self.field(field)]])

    def enum(self, enum: Enum) -> list[str]:
        constants = [
            line
            for constant in enum.constants
            for line in self._with_options(f"{constant.name} = {constant.tag}", constant.options)
        ]
        # Unlike messages, enums have no blank line between their parts.
        reserved = [_reserved(values, MAX_ENUM) for values in enum.reserved]
        return _braces(f"enum {enum.name}", [[*reserved, *self.options(enum.options), *constants]])

    def service(self, service: Service) -> list[str]:
        methods = [line for method in service.methods for line in self.method(method)]
        return _braces(f"service {service.name}", [self.options(service.options), methods])

    def method(self, method: Method) -> list[str]:
        request = f"stream {method.request}" if method.request_streams else method.request
        response = f"stream {method.response}" if method.response_streams else method.response
        head = f"rpc {method.name} ({request}) returns ({response})"
        options = self.options(method.options)
        return [f"{head} {{", *_indented(options), "};"] if options else [f"{head};"]


def _field_options(field: Field) -> list[Option]:
    options = list(field.options)
    if field.default is not None:
        options.append(Option("default", field.default))
    if field.json_name is not None:
        options.append(Option("json_name", field.json_name))
    return options


def _braces(head: str, sections: list[list[str]]) -> list[str]:
    """A block with a blank line between its sections; a block without sections is closed immediately."""
    filled = [section for section in sections if section]
    if not filled:
        return [f"{head} {{}}"]
    lines = [f"{head} {{"]
    for index, section in enumerate(filled):
        if index:
            lines.append("")
        lines += _indented(section)
    return [*lines, "}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _joined(before: str, text: str, after: str) -> str:
    return f"{before}{text}{after}"


def _assignment(option: Option) -> str:
    return f"{option.name} = {_value(option.value, top=True)}"


def _value(value: object, top: bool = False) -> str:
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(char, char) for char in value) + '"'
    if isinstance(value, dict):
        return _many("{", [f"{key}: {_value(item)}" for key, item in value.items()], "}")
    assert isinstance(value, list)
    if top and len(value) == 1:
        return f"[{_value(value[0])}]"
    return _many("[", [_value(item) for item in value], "]")


def _many(start: str, items: list[str], end: str) -> str:
    lines = [start]
    for index, item in enumerate(items):
        comma = "," if index < len(items) - 1 else ""
        lines += _indented(f"{item}{comma}".split("\n"))
    return "\n".join([*lines, end])


def _reserved(values: list[Range | str], maximum: int) -> str:
    shown = (f'"{value}"' if isinstance(value, str) else _range(value, maximum) for value in values)
    return f"reserved {', '.join(shown)};"


def _range(value: Range, maximum: int) -> str:
    if value.first == value.last:
        return str(value.first)
    return f"{value.first} to {'max' if value.last >= maximum else value.last}"
