"""Client quotas (KIP-546): their entities, keys and values, and lookups."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from ottla.enums import QuotaMatchType
from ottla.errors import InvalidRequest, KafkaError, UnsupportedVersion
from ottla.metadata.image import MetadataImage, QuotaEntity
from ottla.metadata.java_hash_order import entries_hash, java_computed_map, java_map, java_names
from ottla.metadata.topics import java_hash
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

T = TypeVar("T")

USER, CLIENT_ID, IP = "user", "client-id", "ip"

_INT_MAX, _LONG_MAX = float(2**31 - 1), float(2**63 - 1)

_LONG_KEYS = frozenset({"producer_byte_rate", "consumer_byte_rate"})
_DOUBLE_KEYS = frozenset({"request_percentage", "controller_mutation_rate"})
_IP_KEYS = frozenset({"connection_creation_rate"})

_HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?\.?)+"


class QuotaAlteration(NamedTuple):
    """A change of one entity's quotas; a value of None removes the key."""

    entity: QuotaEntity
    operations: Sequence[tuple[str, float | None]]


class QuotaFilter(NamedTuple):
    """One component of a query: (type, match type, value to match)."""

    entity_type: str
    match_type: int
    match: str | None


def alter_quotas(
    image: MetadataImage, alterations: Iterable[QuotaAlteration]
) -> tuple[list[Message], dict[QuotaEntity, KafkaError | None]]:
    """The records, and one outcome for each entity. An entity that occurs twice gets an error."""
    records: dict[QuotaEntity, list[Message]] = {}
    outcomes: dict[QuotaEntity, KafkaError | None] = {}
    for entity, operations in alterations:
        shown = "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity) + "}"
        keys = {key for key, _ in operations}
        if entity in outcomes or len(keys) != len(operations):
            outcomes[entity] = InvalidRequest(f"Ignoring duplicate entity ClientQuotaEntity(entries={shown})")
            continue
        try:
            records[entity] = _planned(image, entity, operations)
            outcomes[entity] = None
        except KafkaError as error:
            outcomes[entity] = error
    # New entities are also stored in this order.
    in_order = java_computed_map(records, entries_hash)
    return (
        [record for entity in in_order for record in records[entity]],
        {entity: outcomes[entity] for entity in java_map(outcomes, entries_hash)},
    )


def _planned(
    image: MetadataImage, entity: QuotaEntity, operations: Sequence[tuple[str, float | None]]
) -> list[Message]:
    allowed = _keys_for(entity)
    current = image.quotas.get(entity, {})
    records: dict[str, Message] = {}
    wanted = dict(operations)
    for key in _smallest_map(wanted, java_hash):
        value = wanted[key]
        if value is None:
            if key in current:
                records[key] = _record(entity, key, 0.0, remove=True)
            continue
        if key not in allowed:
            raise InvalidRequest(f"Invalid configuration key {key}")
        _check_value(key, value)
        if current.get(key) != value:
            records[key] = _record(entity, key, value)
    return [records[key] for key in java_names(records)]


def _record(entity: QuotaEntity, key: str, value: float, *, remove: bool = False) -> Message:
    part = stored.ClientQuotaRecord.EntityData
    return stored.ClientQuotaRecord(
        entity=[part(entity_type=kind, entity_name=name) for kind, name in entity], key=key, value=value, remove=remove
    )


def _keys_for(entity: QuotaEntity) -> frozenset[str]:
    """The valid keys for this kind of entity."""
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    kinds = dict(entity)
    if IP not in kinds:
        return _LONG_KEYS | _DOUBLE_KEYS
    if len(kinds) > 1:
        # The space is missing in Kafka's message too.
        raise InvalidRequest("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = kinds[IP]
    if address is not None and not _is_host(address):
        raise InvalidRequest(f"{address} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_host(text: str) -> bool:
    """An address or a possible host name. Kafka resolves the name, but that would block the broker."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return re.fullmatch(_HOST, text) is not None and not text.replace(".", "").isdigit()
    return True


def _check_value(key: str, value: float) -> None:
    if value <= 0.0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if key in _DOUBLE_KEYS:
        return
    if key in _IP_KEYS and value > _INT_MAX:
        raise InvalidRequest(f"Proposed value for {key} is too large for an INT.")
    if value > _LONG_MAX:
        raise InvalidRequest(f"Proposed value for {key} is too large for a LONG.")
    if value % 1.0 > 1e-6:
        raise InvalidRequest(f"{key} cannot be a fractional value.")


def find_quotas(
    image: MetadataImage, components: Sequence[QuotaFilter], strict: bool
) -> list[tuple[QuotaEntity, dict[str, float]]]:
    """The entities that match all components; `strict` excludes those that have additional parts."""
    wanted = _checked_filter(components)
    found = []
    for entity in _smallest_map(image.quotas, entries_hash):
        parts = dict(entity)
        if strict and len(parts) != len(wanted):
            continue
        if all(
            kind in parts
            and (how == QuotaMatchType.SPECIFIED or parts[kind] == (name if how == QuotaMatchType.EXACT else None))
            for kind, (how, name) in wanted.items()
        ):
            values = image.quotas[entity]
            found.append((entity, {key: values[key] for key in _smallest_map(values, java_hash)}))
    return found


def parts_in_order(parts: dict[str, str | None]) -> QuotaEntity:
    """An entity in its normal form, for responses and comparisons."""
    return tuple((kind, parts[kind]) for kind in _smallest_map(parts, java_hash))


def _smallest_map(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Kafka creates these maps with the smallest possible capacity, so they start with one bucket."""
    return java_map(keys, hash_of, 1)


def _checked_filter(components: Sequence[QuotaFilter]) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for kind, how, match in components:
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in wanted:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        if how == QuotaMatchType.EXACT and match is None:
            raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if how == QuotaMatchType.DEFAULT and match is not None:
            raise InvalidRequest("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
        if how == QuotaMatchType.SPECIFIED and match is not None:
            raise InvalidRequest("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
        if how not in (QuotaMatchType.EXACT, QuotaMatchType.DEFAULT, QuotaMatchType.SPECIFIED):
            raise InvalidRequest(f"Unknown match type {how}")
        wanted[kind] = (how, match)
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return wanted
