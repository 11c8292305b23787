"""The kinds of differences between two JSON Schemas: which of them are compatible, and how the others are described."""

from __future__ import annotations

from ..formats import Difference

# A reader may differ from the writer in these ways. Every other difference is incompatible.
COMPATIBLE = frozenset(
    [
        "ID_CHANGED",
        "DESCRIPTION_CHANGED",
        "TITLE_CHANGED",
        "DEFAULT_CHANGED",
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "MAX_LENGTH_INCREASED",
        "MAX_LENGTH_REMOVED",
        "MIN_LENGTH_DECREASED",
        "MIN_LENGTH_REMOVED",
        "PATTERN_REMOVED",
        "MAXIMUM_INCREASED",
        "MAXIMUM_REMOVED",
        "MINIMUM_DECREASED",
        "MINIMUM_REMOVED",
        "EXCLUSIVE_MAXIMUM_INCREASED",
        "EXCLUSIVE_MAXIMUM_REMOVED",
        "EXCLUSIVE_MINIMUM_DECREASED",
        "EXCLUSIVE_MINIMUM_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "MAX_PROPERTIES_INCREASED",
        "MAX_PROPERTIES_REMOVED",
        "MIN_PROPERTIES_DECREASED",
        "MIN_PROPERTIES_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "MAX_ITEMS_INCREASED",
        "MAX_ITEMS_REMOVED",
        "MIN_ITEMS_DECREASED",
        "MIN_ITEMS_REMOVED",
        "MAX_CONTAINS_INCREASED",
        "MAX_CONTAINS_REMOVED",
        "MIN_CONTAINS_DECREASED",
        "MIN_CONTAINS_REMOVED",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
    ]
)
# The LENIENT policy also allows these.
COMPATIBLE_LENIENT = COMPATIBLE | frozenset(
    [
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ]
)

_KEYWORD = "The keyword at path '{path}' in the {{reader}} schema is not present in the {{writer}} schema"
_MORE = "The value at path '{path}' in the {{reader}} schema is more than its value in the {{writer}} schema"
_LESS = "The value at path '{path}' in the {{reader}} schema is less than its value in the {{writer}} schema"
_OTHER = "The value at path '{path}' is different between the {{reader}} and {{writer}} schema"
_FEWER = (
    "An array or combined type at path '{path}' has fewer elements in the {{reader}} schema than the {{writer}} schema"
)
_LONGER = (
    "An array or combined type at path '{path}' has more elements in the {{reader}} schema than the {{writer}} schema"
)
_TYPE = "A type at path '{path}' is different between the {{reader}} schema and the {{writer}} schema"
_ADDED_TO_OPEN = (
    "The {{reader}} schema has an open content model and has a property or item at path '{path}' which is missing in"
    " the {{writer}} schema"
)
_REMOVED_FROM_CLOSED = (
    "The {{reader}} has a closed content model and is missing a property or item present at path '{path}' in the"
    " {{writer}} schema"
)
_REMOVED_NOT_COVERED = (
    "A property or item is missing in the {{reader}} schema but present at path '{path}' in the {{writer}} schema and"
    " is not covered by its partially open content model"
)
_ADDED_NOT_COVERED = (
    "The {{reader}} schema has a property or item at path '{path}' which is missing in the {{writer}} schema and is not"
    " covered by its partially open content model"
)
_DESCRIPTIONS = {
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "The {{reader}} schema has an unopen content model and has a"
    " required property at path '{path}' which is missing in the {{writer}} schema",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": _REMOVED_FROM_CLOSED,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": _REMOVED_FROM_CLOSED,
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED_NOT_COVERED,
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED_NOT_COVERED,
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED_NOT_COVERED,
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED_NOT_COVERED,
    "TYPE_NARROWED": _TYPE,
    "TYPE_CHANGED": _TYPE,
    "COMBINED_TYPE_CHANGED": _TYPE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _TYPE,
    "ENUM_ARRAY_CHANGED": _TYPE,
    "PATTERN_CHANGED": _OTHER,
    "MULTIPLE_OF_CHANGED": _OTHER,
    "DEPENDENCY_ARRAY_CHANGED": _OTHER,
    "DEPENDENCY_ARRAY_EXTENDED": _LONGER,
    "PRODUCT_TYPE_EXTENDED": _LONGER,
    "SUM_TYPE_EXTENDED": _LONGER,
    "NOT_TYPE_EXTENDED": _LONGER,
    "MULTIPLE_OF_EXPANDED": _MORE,
    # Confluent has no text for this one.
    "SCHEMA_ADDED": "",
}
_BY_ENDING = {
    "_ADDED": _KEYWORD,
    "_REMOVED": _KEYWORD,
    "_INCREASED": _MORE,
    "_DECREASED": _LESS,
    "_NARROWED": _FEWER,
}


def difference(type_: str, path: str) -> Difference:
    template = _DESCRIPTIONS.get(type_)
    if template is None:
        template = next((text for ending, text in _BY_ENDING.items() if type_.endswith(ending)), "")
    # Braces in a property's name must not be taken for placeholders.
    description = template.replace("{path}", path).replace("{{", "{").replace("}}", "}") if template else ""
    return Difference(type_, path, description, closing="'")
