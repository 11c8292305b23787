"""An Avro schema as the registry sees it."""

from __future__ import annotations

from dataclasses import dataclass

from ..entities import AVRO, Reference
from ..errors import InvalidSchema
from ..formats import Difference, ParsedSchema, Source
from ..json_text import loads
from .compatibility import find_differences
from .parser import Parser
from .text import to_normalized_text, to_text
from .types import AvroType


@dataclass(frozen=True)
class AvroSchema:
    root: AvroType
    references: tuple[Reference, ...]
    # The types that the references define; the text does not repeat them.
    known: tuple[AvroType, ...]
    source: Source
    schema_type: str = AVRO

    @classmethod
    def parse(cls, source: Source) -> AvroSchema:
        parser = Parser(strict=source.new)
        for name, text in source.resolved:
            try:
                parser.parse(loads(text))
            except InvalidSchema as error:
                raise InvalidSchema(f"in the reference {name}: {error}") from error
        known = tuple(parser.names.values())
        return cls(parser.parse(loads(source.text)), source.references, known, source)

    def canonical(self) -> str:
        return to_text(self.root, self.known)

    def formatted(self, name: str) -> str:
        return self.resolved() if name == "resolved" else self.canonical()

    def resolved(self) -> str:
        return to_text(self.root)

    def normalized(self) -> AvroSchema:
        text = to_normalized_text(self.root, self.known)
        references = tuple(sorted(set(self.references), key=lambda r: (r.subject, r.version, r.name)))
        return AvroSchema.parse(Source(text, references, self.source.resolved, self.source.new))

    def has_field(self, name: str) -> bool:
        return any(field.name == name for field in self.root.fields)

    def check(self, fields_too: bool) -> None:
        """Nothing to do: parsing has already checked everything."""

    def cannot_read(self, writer: ParsedSchema, lenient: bool) -> list[Difference]:
        assert isinstance(writer, AvroSchema)
        return find_differences(self.root, writer.root)
