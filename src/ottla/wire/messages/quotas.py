"""Client quotas."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, boolean, float64, int8, int16, int32, string


class DescribeClientQuotasRequest(Message, key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """Match types: 0 exact, 1 default, 2 any (KIP-546)."""

    class ComponentData(Struct):
        entity_type: str = string()
        match_type: int = int8()
        match: str | None = string(nullable="0+")

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class DescribeClientQuotasResponse(Message, key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """Entities and their quota values."""

    class EntityData(Struct):
        entity_type: str = string()
        entity_name: str | None = string(nullable="0+")

    class ValueData(Struct):
        key: str = string()
        value: float = float64()

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = array("EntityData")
        values: list[DescribeClientQuotasResponse.ValueData] = array("ValueData")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")


class AlterClientQuotasRequest(Message, key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """Sets and removes quota values (KIP-546). v1 is flexible."""

    class EntityData(Struct):
        entity_type: str = string()
        entity_name: str | None = string(nullable="0+")

    class OpData(Struct):
        key: str = string()
        value: float = float64()
        remove: bool = boolean()

    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData] = array("EntityData")
        ops: list[AlterClientQuotasRequest.OpData] = array("OpData")

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponse(Message, key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """One error for each entity."""

    class EntityData(Struct):
        entity_type: str = string()
        entity_name: str | None = string(nullable="0+")

    class EntryData(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        entity: list[AlterClientQuotasResponse.EntityData] = array("EntityData")

    throttle_time_ms: int = int32()
    entries: list[EntryData] = array(EntryData)
