"""A JSON Schema as a tree of nodes, each with one constraint. The compatibility rules compare nodes.

One JSON object may have several constraints: `{"type": "string", "enum": […]}` becomes two nodes under an implicit
"all of". Nodes are created on demand, and once per JSON object, so recursive schemas are cycles of nodes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..errors import InvalidSchema
from ..json_text import dumps, sorted_keys
from .documents import MODERN_DRAFTS, Documents

ARRAY_KEYWORDS = ("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains")
OBJECT_KEYWORDS = (
    "properties", "required", "minProperties", "maxProperties", "dependencies", "patternProperties",
    "additionalProperties", "propertyNames",
)  # fmt: skip
NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRING_KEYWORDS = ("minLength", "maxLength", "pattern")
MODERN_ARRAY_KEYWORDS = (*ARRAY_KEYWORDS, "prefixItems", "unevaluatedItems", "minContains", "maxContains")
MODERN_OBJECT_KEYWORDS = (*OBJECT_KEYWORDS, "dependentRequired", "dependentSchemas", "unevaluatedProperties")
KINDS = {
    "string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null",
    "array": "array", "object": "object",
}  # fmt: skip
CRITERIA = ("allOf", "anyOf", "oneOf")


class Node:
    """One constraint on values. `raw` is its JSON object, whose other keywords belong to other nodes."""

    def __init__(self, builder: Builder, resolver: Any, kind: str, raw: dict[str, Any], whole: bool = True) -> None:
        self.builder = builder
        self.resolver = resolver
        self.kind = kind
        self.raw = raw
        # Whether the node represents its whole JSON object, so that title, default and the like belong to it.
        self.whole = whole
        self.integer = False
        self.criterion = ""
        self.parts: list[Node] = []

    def child(self, value: Any) -> Node:
        return self.builder.node(value, self.resolver)

    @cached_property
    def target(self) -> Node:
        """The node itself, or the target of a reference."""
        if self.kind != "reference":
            return self
        seen, node = {id(self)}, self
        while node.kind == "reference":
            value, resolver = self.builder.documents.resolve(node.raw["$ref"], node.resolver)
            node = self.builder.node(value, resolver)
            if id(node) in seen:
                raise InvalidSchema(f"$ref '{self.raw['$ref']}' refers to itself")
            seen.add(id(node))
        return node

    @property
    def is_empty(self) -> bool:
        return self.kind in ("empty", "true")

    @property
    def has_default(self) -> bool:
        return self.whole and "default" in self.raw

    @cached_property
    def key(self) -> str:
        """Equal for equivalent nodes."""
        return f"{self.kind} {self.criterion} {self.integer} {dumps(sorted_keys(self.raw))}"

    @cached_property
    def properties(self) -> dict[str, Node]:
        return {name: self.child(value) for name, value in (self.raw.get("properties") or {}).items()}

    @cached_property
    def required(self) -> set[str]:
        required = self.raw.get("required")
        # In draft 3 it was a boolean, which is ignored here.
        return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()

    @cached_property
    def pattern_properties(self) -> dict[str, Node]:
        return {pattern: self.child(value) for pattern, value in (self.raw.get("patternProperties") or {}).items()}

    def extra(self, keyword: str) -> tuple[bool, Node | None]:
        """Whether additional properties or items are permitted, and the schema that they must fit."""
        value = self.raw.get(keyword, True)
        if isinstance(value, bool):
            return value, None
        return True, self.child(value)

    def unevaluated(self, keyword: str) -> Node | None:
        """`unevaluatedProperties` or `unevaluatedItems`, which older drafts do not have."""
        if keyword not in self.raw or not self.builder.modern:
            return None
        return self.child(self.raw[keyword])

    @cached_property
    def property_dependencies(self) -> dict[str, set[str]]:
        both = {**(self.raw.get("dependencies") or {}), **(self.raw.get("dependentRequired") or {})}
        return {name: set(map(str, value)) for name, value in both.items() if isinstance(value, list)}

    @cached_property
    def schema_dependencies(self) -> dict[str, Node]:
        both = {**(self.raw.get("dependencies") or {}), **(self.raw.get("dependentSchemas") or {})}
        return {name: self.child(value) for name, value in both.items() if not isinstance(value, list)}

    @cached_property
    def all_items(self) -> Node | None:
        """The schema for all items, if they are not listed one by one."""
        items = self.raw.get("items")
        if items is None or isinstance(items, list) or "prefixItems" in self.raw:
            return None
        if self.builder.modern and isinstance(items, bool):
            return None
        return self.child(items)

    @cached_property
    def listed_items(self) -> list[Node]:
        items = self.raw.get("prefixItems") if self.builder.modern else None
        if items is None:
            items = self.raw.get("items")
        return [self.child(item) for item in items] if isinstance(items, list) else []

    @cached_property
    def extra_items(self) -> tuple[bool, Node | None]:
        items = self.raw.get("items", True)
        if self.builder.modern and not isinstance(items, list):
            if isinstance(items, bool):
                return items, None
            return (True, self.child(items)) if "prefixItems" in self.raw else (True, None)
        permitted, schema = self.extra("additionalItems")
        # If one schema applies to every item, there are no additional items to forbid.
        return permitted or self.all_items is not None, schema

    def contains_limit(self, name: str) -> Any:
        value = self.raw.get(name)
        if value is None and name == "minContains" and self.builder.modern and "contains" in self.raw:
            return 1
        return value


class Builder:
    """Creates nodes from JSON."""

    def __init__(self, documents: Documents) -> None:
        self.documents = documents
        self.modern = documents.draft in MODERN_DRAFTS
        # Holds the JSON object as well, so that its id is not reused.
        self.nodes: dict[int, tuple[Any, Node]] = {}
        # One node each: with several nodes for the same boolean, the same comparison would be repeated.
        resolver = documents.resolver
        self.booleans = {True: Node(self, resolver, "true", {}), False: Node(self, resolver, "false", {})}

    def root(self) -> Node:
        return self.node(self.documents.root, self.documents.resolver)

    def node(self, value: Any, resolver: Any) -> Node:
        if isinstance(value, bool):
            return self.booleans[value]
        if not isinstance(value, dict):
            raise InvalidSchema(f"expected an object or a boolean as schema, found {dumps(value)[:100]}")
        known = self.nodes.get(id(value))
        if known is None:
            if isinstance(value.get("$id"), str) and value is not self.documents.root:
                resolver = self.documents.within(value, resolver)
            known = (value, self._build(value, resolver))
            self.nodes[id(value)] = known
        return known[1]

    def _build(self, raw: dict[str, Any], resolver: Any) -> Node:
        parts = self._parts(raw, resolver)
        if not parts:
            return Node(self, resolver, "empty", raw)
        if len(parts) == 1:
            return parts[0]
        node = Node(self, resolver, "combined", raw)
        node.criterion = "allOf"
        node.parts = parts
        for part in parts:
            part.whole = False
        return node

    def _parts(self, raw: dict[str, Any], resolver: Any) -> list[Node]:
        parts: list[Node] = []
        if isinstance(raw.get("$ref"), str):
            parts.append(Node(self, resolver, "reference", raw))
            if not self.modern:
                # Up to draft 7, all other keywords next to a $ref are ignored.
                return parts
        parts += [Node(self, resolver, kind, raw) for kind in ("enum", "const", "not") if kind in raw]
        parts += [self._combined(criterion, raw, resolver) for criterion in CRITERIA if criterion in raw]
        if "if" in raw:
            parts.append(Node(self, resolver, "conditional", raw))
        types = raw.get("type")
        kinds = {KINDS[name] for name in (types if isinstance(types, list) else [types]) if name in KINDS}
        if isinstance(types, list):
            union = Node(self, resolver, "combined", raw)
            union.criterion = "anyOf"
            union.parts = [self._typed(name, raw, resolver) for name in dict.fromkeys(types)]
            for part in union.parts:
                part.whole = False
            parts.append(union)
        elif types is not None:
            parts.append(self._typed(types, raw, resolver))
        parts += [Node(self, resolver, kind, raw) for kind in self._implied(raw) if kind not in kinds]
        return parts

    def _typed(self, name: str, raw: dict[str, Any], resolver: Any) -> Node:
        if name not in KINDS:
            raise InvalidSchema(f"unknown type: [{name}]")
        node = Node(self, resolver, KINDS[name], raw)
        node.integer = name == "integer"
        return node

    def _combined(self, criterion: str, raw: dict[str, Any], resolver: Any) -> Node:
        node = Node(self, resolver, "combined", raw)
        node.criterion = criterion
        subschemas = raw[criterion]
        if not isinstance(subschemas, list):
            raise InvalidSchema(f"{criterion} is not an array")
        node.parts = [self.node(value, resolver) for value in subschemas]
        return node

    def _implied(self, raw: dict[str, Any]) -> list[str]:
        """The types that keywords imply without naming them."""
        keywords = {
            "array": MODERN_ARRAY_KEYWORDS if self.modern else ARRAY_KEYWORDS,
            "object": MODERN_OBJECT_KEYWORDS if self.modern else OBJECT_KEYWORDS,
            "number": NUMBER_KEYWORDS,
            "string": STRING_KEYWORDS if self.modern else (*STRING_KEYWORDS, "format"),
        }
        return [kind for kind, names in keywords.items() if any(name in raw for name in names)]
