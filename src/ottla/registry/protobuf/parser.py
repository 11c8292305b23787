"""Parses the text of .proto files: proto2, proto3 and editions."""

from __future__ import annotations

from ..errors import InvalidSchema
from ..json_text import MAX_NESTING
from .model import (
    MAX_ENUM,
    MAX_TAG,
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
from .tokens import Token, place, tokenize, unquote

LABELS = ("optional", "required", "repeated")


def parse(text: str) -> ProtoFile:
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.depth = 0

    # Tokens.

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def fail(self, expected: str) -> InvalidSchema:
        where = place(self.text, self.token.position)
        return InvalidSchema(f"Syntax error in {where}: expected {expected}, found {self.token.text[:50]}")

    def take(self, kind: str, expected: str) -> str:
        if self.token.kind != kind:
            raise self.fail(expected)
        self.index += 1
        return self.tokens[self.index - 1].text

    def accept(self, text: str) -> bool:
        """Skip the next token if it is this sign or word."""
        if self.token.text == text and self.token.kind in ("sign", "word"):
            self.index += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.fail(f"'{text}'")

    def name(self) -> str:
        word = self.take("word", "a name")
        if "." in word:
            self.index -= 1
            raise self.fail("a name without dots")
        return word

    def string(self) -> str:
        """A string literal; adjacent ones are joined."""
        parts = [unquote(self.take("string", "a string"))]
        while self.token.kind == "string":
            parts.append(unquote(self.take("string", "a string")))
        return "".join(parts)

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        text = self.take("number", "a number")
        try:
            digits = text.lower()
            octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
            return sign * (int(digits, 8) if octal else int(digits, 0))
        except ValueError:
            self.index -= 1
            raise self.fail("a whole number") from None

    def block(self, what: str) -> bool:
        """Whether more of an open block follows; skips its closing brace."""
        if self.token.kind == "end":
            raise self.fail(f"'}}' at the end of {what}")
        return not self.accept("}")

    # Files.

    def file(self) -> ProtoFile:
        file = ProtoFile()
        if self.token.text in ("syntax", "edition"):
            which = self.name()
            self.expect("=")
            value = self.string()
            self.expect(";")
            if which == "edition":
                file.edition = value
            elif value in ("proto2", "proto3"):
                file.syntax = value
            else:
                raise InvalidSchema(f"Unexpected syntax: {value}; it is proto2 or proto3")
        while self.token.kind != "end":
            self.file_element(file)
        return file

    def file_element(self, file: ProtoFile) -> None:
        if self.accept(";"):
            return
        if self.accept("package"):
            if file.package:
                raise self.fail("only one package")
            file.package = self.take("word", "a package name")
            self.expect(";")
        elif self.accept("import"):
            kind = next((word for word in ("public", "weak") if self.accept(word)), "")
            imports = {"public": file.public_imports, "weak": file.weak_imports}.get(kind, file.imports)
            imports.append(self.string())
            self.expect(";")
        elif self.accept("option"):
            file.options.append(self.option_statement())
        elif self.accept("message"):
            file.messages.append(self.message(self.name()))
        elif self.accept("enum"):
            file.enums.append(self.enum())
        elif self.accept("extend"):
            file.extends.append(self.extend())
        elif self.accept("service"):
            file.services.append(self.service())
        else:
            raise self.fail("a message, an enum, a service, an import, an option or a package")

    # Messages.

    def message(self, name: str) -> Message:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise InvalidSchema(f"messages are nested deeper than {MAX_NESTING} levels")
        message = Message(name)
        self.expect("{")
        while self.block(f"message {name}"):
            self.message_element(message)
        self.depth -= 1
        return message

    def message_element(self, message: Message) -> None:
        # A word that opens a statement is the name of a type if a name and a "=" follow.
        if self.accept(";"):
            return
        if self.looks_like_field():
            message.fields.append(self.field())
        elif self.accept("option"):
            message.options.append(self.option_statement())
        elif self.accept("message"):
            message.messages.append(self.message(self.name()))
        elif self.accept("enum"):
            message.enums.append(self.enum())
        elif self.accept("extend"):
            message.extends.append(self.extend())
        elif self.accept("oneof"):
            message.oneofs.append(self.oneof())
        elif self.accept("reserved"):
            message.reserved.append(self.reserved(MAX_TAG))
        elif self.accept("extensions"):
            ranges = [item for item in self.reserved(MAX_TAG, end=False) if isinstance(item, Range)]
            options = self.field_options()
            self.expect(";")
            message.extensions.append(Extensions(ranges, options))
        else:
            message.fields.append(self.field())

    def looks_like_field(self) -> bool:
        following = self.tokens[self.index + 1 : self.index + 3]
        return (
            self.token.text != "option"
            and len(following) == 2
            and following[0].kind == "word"
            and following[1].text == "="
        )

    def field(self) -> Field:
        label = next((word for word in LABELS if self.token.text == word and self.accept(word)), "")
        if self.token.text == "group" and self.tokens[self.index + 1].text[:1].isupper():
            return self.group(label)
        if self.token.text == "map" and self.tokens[self.index + 1].text == "<":
            type_: str | MapType = self.map_type()
        else:
            type_ = self.take("word", "the type of a field")
        field = Field(self.name(), 0, type_, label)
        self.expect("=")
        field.tag = self.integer()
        self.set_options(field)
        self.expect(";")
        return field

    def group(self, label: str) -> Field:
        self.expect("group")
        name = self.name()
        self.expect("=")
        field = Field(name, self.integer(), name, label)
        self.set_options(field)
        field.group = self.message(name)
        return field

    def map_type(self) -> MapType:
        self.expect("map")
        self.expect("<")
        key = self.take("word", "the type of a map's keys")
        self.expect(",")
        value = self.take("word", "the type of a map's values")
        self.expect(">")
        return MapType(key, value)

    def set_options(self, field: Field) -> None:
        for option in self.field_options():
            if option.name == "default":
                field.default = option.value
            elif option.name == "json_name" and isinstance(option.value, str):
                field.json_name = option.value
            else:
                field.options.append(option)

    def oneof(self) -> OneOf:
        oneof = OneOf(self.name())
        self.expect("{")
        while self.block(f"oneof {oneof.name}"):
            if self.accept(";"):
                continue
            if self.accept("option"):
                oneof.options.append(self.option_statement())
            else:
                oneof.fields.append(self.field())
        return oneof

    def reserved(self, maximum: int, end: bool = True) -> list[Range | str]:
        values: list[Range | str] = []
        while True:
            if self.token.kind == "string":
                values.append(self.string())
            elif self.token.kind == "word":
                values.append(self.name())
            else:
                first = self.integer()
                last = first
                if self.accept("to"):
                    last = maximum if self.accept("max") else self.integer()
                values.append(Range(first, last))
            if not self.accept(","):
                break
        if end:
            self.expect(";")
        return values

    def extend(self) -> Extend:
        extend = Extend(self.take("word", "the message to extend"))
        self.expect("{")
        while self.block(f"extend {extend.type}"):
            if not self.accept(";"):
                extend.fields.append(self.field())
        return extend

    def enum(self) -> Enum:
        enum = Enum(self.name())
        self.expect("{")
        while self.block(f"enum {enum.name}"):
            if self.accept(";"):
                continue
            follows = self.tokens[self.index + 1].text
            if self.token.text == "option" and follows != "=":
                self.expect("option")
                enum.options.append(self.option_statement())
            elif self.token.text == "reserved" and follows != "=":
                self.expect("reserved")
                enum.reserved.append(self.reserved(MAX_ENUM))
            else:
                name = self.name()
                self.expect("=")
                enum.constants.append(EnumConstant(name, self.integer(), self.field_options()))
                self.expect(";")
        return enum

    # Services.

    def service(self) -> Service:
        service = Service(self.name())
        self.expect("{")
        while self.block(f"service {service.name}"):
            if self.accept(";"):
                continue
            if self.accept("option"):
                service.options.append(self.option_statement())
            elif self.accept("rpc"):
                service.methods.append(self.method())
            else:
                raise self.fail("an rpc or an option")
        return service

    def method(self) -> Method:
        name = self.name()
        request_streams, request = self.method_type()
        self.expect("returns")
        response_streams, response = self.method_type()
        method = Method(name, request, response, request_streams, response_streams)
        if self.accept("{"):
            while self.block(f"rpc {name}"):
                if not self.accept(";"):
                    self.expect("option")
                    method.options.append(self.option_statement())
        else:
            self.expect(";")
        return method

    def method_type(self) -> tuple[bool, str]:
        self.expect("(")
        streams = self.token.text == "stream" and self.tokens[self.index + 1].kind == "word" and self.accept("stream")
        type_ = self.take("word", "a message type")
        self.expect(")")
        return streams, type_

    # Options.

    def option_statement(self) -> Option:
        option = self.option()
        self.expect(";")
        return option

    def field_options(self) -> list[Option]:
        options: list[Option] = []
        if self.accept("["):
            options.append(self.option())
            while self.accept(","):
                options.append(self.option())
            self.expect("]")
        return options

    def option(self) -> Option:
        parts: list[str] = []
        while True:
            if self.accept("("):
                parts.append(f"({self.take('word', 'the name of an option')})")
                self.expect(")")
            else:
                parts.append(self.take("word", "the name of an option").removeprefix("."))
            # The part after a closing parenthesis starts with a dot, which belongs to the word.
            if self.token.text == ".":
                self.expect(".")
            elif not (self.token.kind == "word" and self.token.text.startswith(".")):
                break
        self.expect("=")
        return Option(".".join(parts), self.value())

    def value(self) -> object:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise InvalidSchema(f"options are nested deeper than {MAX_NESTING} levels")
        try:
            if self.token.kind == "string":
                return self.string()
            if self.accept("{"):
                return self.map_value("}")
            if self.accept("<"):
                return self.map_value(">")
            if self.accept("["):
                return self.list_value()
            sign = "-" if self.accept("-") else ""
            self.accept("+")
            if self.token.kind not in ("word", "number"):
                raise self.fail("a value")
            self.index += 1
            return Word(sign + self.tokens[self.index - 1].text)
        finally:
            self.depth -= 1

    def list_value(self) -> list[object]:
        values: list[object] = []
        while not self.accept("]"):
            values.append(self.value())
            if not self.accept(",") and self.token.text != "]":
                raise self.fail("',' or ']'")
        return values

    def map_value(self, end: str) -> dict[str, object]:
        values: dict[str, object] = {}
        while not self.accept(end):
            if self.accept("["):
                key = f"[{self.take('word', 'the name of an extension')}"
                while self.accept("/"):
                    key += "/" + self.take("word", "the name of a type")
                key += "]"
                self.expect("]")
            else:
                key = self.take("word", "the name of a field")
            if not self.accept(":") and self.token.text not in ("{", "<"):
                raise self.fail("':'")
            value = self.value()
            if key in values:
                # A field that is set more than once becomes a list.
                earlier = values[key]
                value = [*(earlier if isinstance(earlier, list) else [earlier]), value]
            values[key] = value
            if not self.accept(","):
                self.accept(";")
        return values
