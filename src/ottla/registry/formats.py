"""The interface of schema formats, and the parser for each type name. A format is imported when it is first used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.lazy_imports import lazy

from . import errors
from .entities import AVRO, JSON, PROTOBUF, Reference

if TYPE_CHECKING:
    from ottla.registry.avro import schema as avro_schema
    from ottla.registry.json_schema import schema as json_schema
    from ottla.registry.protobuf import schema as protobuf_schema
else:
    avro_schema = lazy("ottla.registry.avro.schema")
    json_schema = lazy("ottla.registry.json_schema.schema")
    protobuf_schema = lazy("ottla.registry.protobuf.schema")

SCHEMA_TYPES = (JSON, PROTOBUF, AVRO)


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a reader's schema does not accept everything that a writer's schema allows.

    `description` has the placeholders {reader} and {writer}, because either schema can be the "new" or the "old" one.
    """

    # Confluent's name for it; empty if there is none.
    type: str
    path: str
    description: str
    # Avro's own message; the other formats have none.
    info: str | None = None
    # The closing quote of the description. Confluent's JSON Schema messages open with a double quote and close with a
    # single one.
    closing: str = '"'

    def render(self, reader: str, writer: str) -> str:
        text = self.description.replace("{reader}", reader, 1).replace("{writer}", writer, 1)
        if not self.type:
            return text
        if self.info is not None:
            return f"{{errorType:'{self.type}', description:'{text}', additionalInfo:'{self.info}'}}"
        return f'{{errorType:"{self.type}", description:"{text}{self.closing}}}'


class ParsedSchema(Protocol):
    """A parsed schema. Its `references` have their version numbers filled in."""

    @property
    def schema_type(self) -> str: ...

    @property
    def references(self) -> tuple[Reference, ...]: ...

    def canonical(self) -> str:
        """The text that is stored."""

    def formatted(self, name: str) -> str:
        """The text in another format; for an unknown format, the stored text."""

    def normalized(self) -> ParsedSchema:
        """The same schema with everything in a fixed order, so that a different spelling is not a different schema."""

    def resolved(self) -> str:
        """A string that is equal for two schemas that differ only in their references."""

    def has_field(self, name: str) -> bool:
        """Whether the outermost record, object or message has the field."""

    def check(self, fields_too: bool) -> None:
        """Raise InvalidSchema if it is inconsistent; `fields_too` also rejects reserved field names."""

    def cannot_read(self, writer: ParsedSchema, lenient: bool) -> list[Difference]:
        """Why data written with `writer` cannot be read with this schema; empty if it can."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text to parse, and the schemas that it refers to, as pairs of name and text, inner ones first."""

    text: str
    references: tuple[Reference, ...] = ()
    resolved: tuple[tuple[str, str], ...] = ()
    # A schema that is being registered is checked more strictly than a stored one.
    new: bool = False


def parse(schema_type: str, source: Source) -> ParsedSchema:
    """Parse a schema. Raises InvalidSchema with the reason, or RegistryError for an unknown type."""
    if schema_type == AVRO:
        return avro_schema.AvroSchema.parse(source)
    if schema_type == JSON:
        return json_schema.JsonSchema.parse(source)
    if schema_type == PROTOBUF:
        return protobuf_schema.ProtobufSchema.parse(source)
    raise errors.invalid_schema(f"Invalid schema type {schema_type}")
