"""The compatibility rules for objects and arrays.

They depend on the content model of an object: open if any additional property is allowed, closed if none is, and
partially open if additional properties must fit a schema. Tuples, which list their items one by one, follow the same
rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .limits import compare_limits
from .patterns import matches

if TYPE_CHECKING:
    from .compatibility import Comparison, Found
    from .model import Node


def compare_objects(comparison: Comparison, old: Node, new: Node) -> Found:
    found = _required(comparison, old, new)
    for name in dict.fromkeys((*old.properties, *new.properties)):
        found += comparison.at("properties", comparison.at(name, _property(comparison, old, new, name)))
    found += comparison.at("dependencies", _dependencies(comparison, old, new))
    found += _extra(
        comparison, old.extra("additionalProperties"), new.extra("additionalProperties"), "additionalProperties",
        "ADDITIONAL_PROPERTIES",
    )  # fmt: skip
    found += _unevaluated(comparison, old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
    for keyword, name in (("maxProperties", "MAX_PROPERTIES"), ("minProperties", "MIN_PROPERTIES")):
        found += compare_limits(comparison, old.raw.get(keyword), new.raw.get(keyword), keyword, name)
    return found


def _required(comparison: Comparison, old: Node, new: Node) -> Found:
    found: Found = []
    for name in old.properties:
        if name in new.properties and name in new.required and name not in old.required:
            default = "_WITH_DEFAULT" if new.properties[name].has_default else ""
            found += comparison.found(f"REQUIRED_ATTRIBUTE{default}_ADDED", "required", name)
    return found


def _property(comparison: Comparison, old: Node, new: Node, name: str) -> Found:
    before, after = old.properties.get(name), new.properties.get(name)
    if before is not None and after is not None:
        return comparison.compare(before, after)
    if before is not None:
        return _removed(comparison, before, _is_open(new), _cover(new, name), "PROPERTY")
    assert after is not None
    required = name in new.required
    default = "_WITH_DEFAULT" if after.has_default else ""
    if _is_open(old):
        if after.target.is_empty and after.kind != "reference":
            return comparison.found("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")
        kind = f"REQUIRED_PROPERTY{default}" if required else "OPTIONAL_PROPERTY"
        return comparison.found(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL")
    found: Found = []
    if (cover := _cover(old, name)) is not None:
        found += _covered(comparison, cover, after, "PROPERTY_ADDED")
    kind = f"REQUIRED_PROPERTY{default}" if required else "OPTIONAL_PROPERTY"
    return found + comparison.found(f"{kind}_ADDED_TO_UNOPEN_CONTENT_MODEL")


def _removed(comparison: Comparison, before: Node, is_open: bool, cover: Node | None, word: str) -> Found:
    """A property or item that the reader no longer lists."""
    if is_open:
        return comparison.found(f"{word}_REMOVED_FROM_OPEN_CONTENT_MODEL")
    if cover is not None:
        return _covered(comparison, before, cover, f"{word}_REMOVED")
    if before.kind == "false":
        return comparison.found(f"{word}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
    return comparison.found(f"{word}_REMOVED_FROM_CLOSED_CONTENT_MODEL")


def _covered(comparison: Comparison, before: Node, after: Node, words: str) -> Found:
    inner = comparison.compare(before, after)
    return inner + comparison.found(f"{words}_{'NOT' if inner else 'IS'}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")


def _is_open(node: Node) -> bool:
    permitted, schema = node.extra("additionalProperties")
    if not permitted or schema is not None or node.pattern_properties:
        return False
    unevaluated = node.unevaluated("unevaluatedProperties")
    return unevaluated is None or unevaluated.is_empty


def _cover(node: Node, name: str) -> Node | None:
    """The schema for a property that the object does not list; None in a closed model."""
    for pattern, schema in node.pattern_properties.items():
        if matches(pattern, name):
            return schema
    permitted, schema_of_others = node.extra("additionalProperties")
    return schema_of_others or _unevaluated_cover(node, permitted, "unevaluatedProperties")


def _unevaluated_cover(node: Node, permitted: bool, keyword: str) -> Node | None:
    unevaluated = node.unevaluated(keyword) if permitted else None
    if unevaluated is None or unevaluated.is_empty or unevaluated.kind == "false":
        return None
    return unevaluated


def _dependencies(comparison: Comparison, old: Node, new: Node) -> Found:
    found: Found = []
    for name in dict.fromkeys((*old.property_dependencies, *new.property_dependencies)):
        before, after = old.property_dependencies.get(name), new.property_dependencies.get(name)
        if before == after:
            continue
        if before is None or after is None:
            found += comparison.found(f"DEPENDENCY_ARRAY_{'ADDED' if before is None else 'REMOVED'}", name)
        else:
            change = "EXTENDED" if after >= before else "NARROWED" if before >= after else "CHANGED"
            found += comparison.found(f"DEPENDENCY_ARRAY_{change}", name)
    for name in dict.fromkeys((*old.schema_dependencies, *new.schema_dependencies)):
        one, other = old.schema_dependencies.get(name), new.schema_dependencies.get(name)
        if one is None or other is None:
            found += comparison.found(f"DEPENDENCY_SCHEMA_{'ADDED' if one is None else 'REMOVED'}", name)
        else:
            found += comparison.at(name, comparison.compare(one, other))
    return found


def _extra(
    comparison: Comparison, old: tuple[bool, Node | None], new: tuple[bool, Node | None], keyword: str, name: str
) -> Found:
    """Compare `additionalProperties` or `additionalItems`: whether they are allowed, and with which schema."""
    if old[0] != new[0]:
        return comparison.found(f"{name}_{'ADDED' if new[0] else 'REMOVED'}", keyword)
    if (old[1] is None) != (new[1] is None):
        return comparison.found(f"{name}_{'NARROWED' if old[1] is None else 'EXTENDED'}", keyword)
    return comparison.at(keyword, comparison.compare(old[1], new[1]))


def _unevaluated(comparison: Comparison, old: Node, new: Node, keyword: str, name: str) -> Found:
    before, after = old.unevaluated(keyword), new.unevaluated(keyword)
    if before is None and after is None:
        return []
    was_false = before is not None and before.kind == "false"
    is_false = after is not None and after.kind == "false"
    if was_false != is_false:
        return comparison.found(f"{name}_{'ADDED' if was_false else 'REMOVED'}", keyword)
    # From here on, the only possible difference is between "anything" and a schema.
    if before is None or (after is not None and before.is_empty and not after.is_empty):
        return comparison.found(f"{name}_NARROWED", keyword)
    if after is None or (after.is_empty and not before.is_empty):
        return comparison.found(f"{name}_EXTENDED", keyword)
    return comparison.at(keyword, comparison.compare(before, after))


def compare_arrays(comparison: Comparison, old: Node, new: Node) -> Found:
    found = comparison.at("items", comparison.compare(old.all_items, new.all_items))
    found += _listed_items(comparison, old, new)
    found += _extra(comparison, old.extra_items, new.extra_items, "additionalItems", "ADDITIONAL_ITEMS")
    found += _unevaluated(comparison, old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")
    for keyword, name in (("maxItems", "MAX_ITEMS"), ("minItems", "MIN_ITEMS")):
        found += compare_limits(comparison, old.raw.get(keyword), new.raw.get(keyword), keyword, name)
    before, after = old.raw.get("uniqueItems") is True, new.raw.get("uniqueItems") is True
    if before != after:
        found += comparison.found(f"UNIQUE_ITEMS_{'REMOVED' if before else 'ADDED'}", "uniqueItems")
    for keyword, name in (("maxContains", "MAX_CONTAINS"), ("minContains", "MIN_CONTAINS")):
        found += compare_limits(comparison, old.contains_limit(keyword), new.contains_limit(keyword), keyword, name)
    return found


def _listed_items(comparison: Comparison, old: Node, new: Node) -> Found:
    before, after = old.listed_items, new.listed_items
    found: Found = []
    for index in range(max(len(before), len(after))):
        if index >= len(after):
            here = _removed(comparison, before[index], _items_open(new), _items_cover(new), "ITEM")
        elif index >= len(before):
            here = _added_item(comparison, old, after[index])
        else:
            here = comparison.compare(before[index], after[index])
        found += comparison.at("items", comparison.at(str(index), here))
    return found


def _added_item(comparison: Comparison, old: Node, after: Node) -> Found:
    if _items_open(old):
        empty = "_WITH_EMPTY_SCHEMA" if after.is_empty else ""
        return comparison.found(f"ITEM{empty}_ADDED_TO_OPEN_CONTENT_MODEL")
    cover = _items_cover(old)
    if cover is not None:
        return _covered(comparison, cover, after, "ITEM_ADDED")
    return comparison.found("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")


def _items_open(node: Node) -> bool:
    permitted, schema = node.extra_items
    unevaluated = node.unevaluated("unevaluatedItems")
    return permitted and schema is None and (unevaluated is None or unevaluated.is_empty)


def _items_cover(node: Node) -> Node | None:
    permitted, schema = node.extra_items
    return schema or _unevaluated_cover(node, permitted, "unevaluatedItems")
