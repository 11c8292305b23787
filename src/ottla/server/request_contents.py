"""The subjects of a request: its topics, partitions, groups and transactional ids.

Found by the shape of the message definitions, so a new API needs no change here: a struct with "Topic" in
its name has a topic's name or id and, in arrays, its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.enums import CoordinatorType
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Field, Struct

Target: TypeAlias = tuple[str, int | None]
"""A topic and a partition, or None if a request names only the topic."""

NameOf: TypeAlias = Callable[[bytes], str | None]

_INDEX_FIELDS: Final = ("partition_index", "partition", "index", "partition_id")
_GROUP_FIELDS: Final = ("group_id", "groups_names", "group_ids", "groups")
_COORDINATOR_KEYS: Final = ("key", "coordinator_keys")


def _is_topic(cls: type[Struct]) -> bool:
    names = {field.name for field in cls.FIELDS}
    return "Topic" in cls.__name__ and bool({"name", "topic", "topic_name"} & names)


def _topic_name(item: Struct, name_of: NameOf) -> str | None:
    for field in ("name", "topic", "topic_name"):
        name = getattr(item, field, None)
        if name:
            return str(name)
    topic_id = getattr(item, "topic_id", ZERO_UUID)
    return name_of(topic_id) if topic_id != ZERO_UUID else None


def index_of(item: Struct) -> int | None:
    """The partition index of a struct below a topic."""
    for field in _INDEX_FIELDS:
        index = getattr(item, field, None)
        if isinstance(index, int):
            return index
    return None


def _arrays(item: Struct) -> Iterator[tuple[Field, list[Any]]]:
    for field in item.FIELDS:
        if field.kind == "array":
            value = getattr(item, field.name)
            if value:
                yield field, value


def targets(message: Struct, name_of: NameOf) -> Iterator[Target]:
    """The topics and partitions that a request or a response names."""
    for field, items in _arrays(message):
        for item in items:
            if isinstance(item, Struct):
                if _is_topic(type(item)):
                    yield from _targets_of_topic(item, name_of)
                else:
                    yield from targets(item, name_of)
            elif isinstance(item, str) and "topic" in field.name:
                yield item, None


def _targets_of_topic(topic: Struct, name_of: NameOf) -> Iterator[Target]:
    name = _topic_name(topic, name_of)
    if name is None:
        return
    found = False
    for _, items in _arrays(topic):
        for item in items:
            index = item if isinstance(item, int) else index_of(item) if isinstance(item, Struct) else None
            if index is not None:
                found = True
                yield name, index
    if not found:
        yield name, None


def narrowed(message: Struct, keep: Callable[[Target], bool], name_of: NameOf) -> Any:
    """A copy of a request that names only some of its topics and partitions."""
    copy = clone(message)
    for field, items in _arrays(message):
        kept: list[Any] = []
        for item in items:
            if isinstance(item, Struct) and _is_topic(type(item)):
                name = _topic_name(item, name_of)
                if name is not None:
                    kept += _narrowed_topic(item, name, keep)
            elif isinstance(item, Struct):
                kept.append(narrowed(item, keep, name_of))
            elif not (isinstance(item, str) and "topic" in field.name) or keep((item, None)):
                kept.append(item)
        setattr(copy, field.name, kept)
    return copy


def _narrowed_topic(topic: Struct, name: str, keep: Callable[[Target], bool]) -> list[Struct]:
    copy = clone(topic)
    had_partitions = has_partitions = False
    for field, items in _arrays(topic):
        kept = []
        for item in items:
            index = item if isinstance(item, int) else index_of(item) if isinstance(item, Struct) else None
            had_partitions = had_partitions or index is not None
            if index is None or keep((name, index)):
                kept.append(item)
                has_partitions = has_partitions or index is not None
        setattr(copy, field.name, kept)
    return [copy] if has_partitions or (not had_partitions and keep((name, None))) else []


def merge(into: Struct, other: Struct) -> None:
    """Add the topics of the response `other` to the response `into`."""
    for field, items in _arrays(other):
        setattr(into, field.name, [*(getattr(into, field.name) or ()), *items])


def groups(request: Struct) -> Iterator[str]:
    """The groups that a request names."""
    yield from _named(request, _GROUP_FIELDS, "group_id")
    if getattr(request, "key_type", None) == CoordinatorType.GROUP:
        yield from _named(request, _COORDINATOR_KEYS, "")


def transactional_ids(request: Struct) -> Iterator[str]:
    """The transactional ids that a request names."""
    yield from _named(request, ("transactional_id", "transactional_ids", "transactions"), "transactional_id")
    if getattr(request, "key_type", None) == CoordinatorType.TRANSACTION:
        yield from _named(request, _COORDINATOR_KEYS, "")


def _named(request: Struct, fields: tuple[str, ...], inner: str) -> Iterator[str]:
    for field in fields:
        value = getattr(request, field, None)
        for item in value if isinstance(value, list) else [value]:
            name = getattr(item, inner, None) if isinstance(item, Struct) else item
            if isinstance(name, str) and name:
                yield name


@cache
def names_topics(cls: type[Struct]) -> bool:
    """Whether requests of this kind can name topics at all."""
    for field in cls.FIELDS:
        inner = field.struct if field.kind == "array" else None
        if inner is not None and (_is_topic(inner) or names_topics(inner)):
            return True
        if field.kind == "array" and inner is None and "topic" in field.name:
            return True
    return False


@cache
def names_groups(cls: type[Struct]) -> bool:
    names = {field.name for field in cls.FIELDS}
    return bool(names & {*_GROUP_FIELDS, "key_type"})


@cache
def names_transactions(cls: type[Struct]) -> bool:
    names = {field.name for field in cls.FIELDS}
    return bool(names & {"transactional_id", "transactional_ids", "transactions", "key_type"})


def clone(item: Struct) -> Any:
    copy = object.__new__(type(item))
    for field in item.FIELDS:
        setattr(copy, field.name, getattr(item, field.name))
    return copy


class LeftOutRecords(NamedTuple):
    """A placeholder for the records of a request."""

    bytes: int


def without_records(request: Struct) -> Any:
    """A copy that can be kept: the records are views of a buffer that will be reused."""
    copy = clone(request)
    for field in request.FIELDS:
        value = getattr(request, field.name)
        if field.kind == "records" and value is not None:
            setattr(copy, field.name, LeftOutRecords(len(value)))
        elif field.kind == "array" and value and isinstance(value[0], Struct):
            setattr(copy, field.name, [without_records(item) for item in value])
    return copy


def error_codes(message: Struct) -> Iterator[int]:
    """The error codes in a response, other than 0."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            if value:
                yield value
        elif isinstance(value, Struct):
            yield from error_codes(value)
        elif field.kind == "array" and value and isinstance(value[0], Struct):
            for item in value:
                if isinstance(item, Struct):
                    yield from error_codes(item)


def detached(request: Struct) -> Any:
    """A request that can be served later, with its own copy of the records."""
    copy = clone(request)
    for field in request.FIELDS:
        value = getattr(request, field.name)
        if field.kind == "records" and value is not None:
            setattr(copy, field.name, memoryview(bytearray(value)))
        elif field.kind == "array" and value and isinstance(value[0], Struct):
            setattr(copy, field.name, [detached(item) for item in value])
    return copy
