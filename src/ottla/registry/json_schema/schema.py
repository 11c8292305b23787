"""A JSON Schema as the registry sees it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..entities import JSON, Reference
from ..errors import InvalidSchema
from ..formats import Difference, ParsedSchema, Source
from ..json_text import dumps, loads, sorted_keys
from .compatibility import find_differences
from .documents import Documents, check_against_draft
from .model import Builder, Node
from .patterns import check_pattern


class JsonSchema:
    schema_type = JSON

    def __init__(self, value: Any, source: Source, references: tuple[Reference, ...]) -> None:
        self.value = value
        self.source = source
        self.references = references

    @classmethod
    def parse(cls, source: Source) -> JsonSchema:
        value = loads(source.text)
        if not isinstance(value, (dict, bool)):
            raise InvalidSchema(
                f"Invalid JSON schema: expected an object or boolean at the root, found {source.text[:50]}"
            )
        return cls(value, source, source.references)

    @cached_property
    def root(self) -> Node:
        return Builder(Documents(self.value, self.source.resolved)).root()

    def canonical(self) -> str:
        return dumps(self.value)

    def formatted(self, name: str) -> str:
        return self.canonical()

    def resolved(self) -> str:
        return self.canonical()

    def normalized(self) -> JsonSchema:
        references = tuple(sorted(set(self.references), key=lambda r: (r.subject, r.version, r.name)))
        return JsonSchema(sorted_keys(self.value), self.source, references)

    def has_field(self, name: str) -> bool:
        properties = self.value.get("properties") if isinstance(self.value, dict) else None
        return isinstance(properties, dict) and name in properties

    def check(self, fields_too: bool) -> None:
        check_against_draft(self.value)
        _walk(self.root)
        names = self.root.properties if self.root.kind == "object" else ()
        if fields_too and (reserved := next((name for name in names if name.startswith("$$")), None)):
            raise InvalidSchema(f"#/properties/{reserved}: Field names cannot start with $$ prefix")

    def cannot_read(self, writer: ParsedSchema, lenient: bool) -> list[Difference]:
        assert isinstance(writer, JsonSchema)
        return find_differences(writer.root, self.root, lenient)


def _walk(root: Node) -> None:
    """Visit every node once, so that every reference is resolved and every pattern is checked."""
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        nearby = [*node.parts]
        if node.kind == "reference":
            nearby.append(node.target)
        elif node.kind == "object":
            for pattern in node.pattern_properties:
                check_pattern(pattern)
            nearby += [*node.properties.values(), *node.pattern_properties.values(), *node.schema_dependencies.values()]
            nearby += [schema for schema in (node.extra("additionalProperties")[1],) if schema is not None]
        elif node.kind == "array":
            nearby += [
                *node.listed_items,
                *(item for item in (node.all_items, node.extra_items[1]) if item is not None),
            ]
        elif node.kind == "string" and isinstance(node.raw.get("pattern"), str):
            check_pattern(node.raw["pattern"])
        elif node.kind == "not":
            nearby.append(node.child(node.raw["not"]))
        for other in nearby:
            if id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
