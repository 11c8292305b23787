"""Configs of brokers, topics, groups and client metrics."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsRequest(Message, key=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    """v1 synonyms (KIP-226); v3 documentation (KIP-569)."""

    class DescribeConfigsResource(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        configuration_keys: list[str] | None = array(string, nullable="0+")

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsResponse(Message, key=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    """v0 has an is-default flag, v1 a config source and synonyms instead; v3 type and documentation."""

    class DescribeConfigsSynonym(Struct):
        name: str = string()
        value: str | None = string(nullable="0+")
        source: int = int8()

    class DescribeConfigsResourceResult(Struct):
        name: str = string()
        value: str | None = string(nullable="0+")
        read_only: bool = boolean()
        is_default: bool = boolean("0")
        config_source: int = int8("1+", default=-1)
        is_sensitive: bool = boolean()
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = array("DescribeConfigsSynonym", "1+")
        config_type: int = int8("3+")
        documentation: str | None = string("3+", nullable="3+")

    class DescribeConfigsResult(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = array("DescribeConfigsResourceResult")

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


class AlterConfigsRequest(Message, key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """Replaces all overrides of a resource. IncrementalAlterConfigs is preferred (KIP-339)."""

    class AlterableConfig(Struct):
        name: str = string()
        value: str | None = string(nullable="0+")

    class AlterConfigsResource(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[AlterConfigsRequest.AlterableConfig] = array("AlterableConfig")

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResponse(Message, key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """One error for each resource."""

    class AlterConfigsResourceResponse(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class IncrementalAlterConfigsRequest(Message, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"):
    """Operations: 0 set, 1 delete, 2 append, 3 subtract (KIP-339)."""

    class AlterableConfig(Struct):
        name: str = string()
        config_operation: int = int8()
        value: str | None = string(nullable="0+")

    class AlterConfigsResource(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = array("AlterableConfig")

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"):
    """One error for each resource."""

    class AlterConfigsResourceResponse(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class ListConfigResourcesRequest(Message, key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"):
    """v0 lists only client metrics resources (KIP-714); v1 the requested types, none meaning all (KIP-1142)."""

    resource_types: list[int] = array(int8, "1+")


class ListConfigResourcesResponse(Message, key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"):
    """v1 the type of each resource."""

    class ConfigResource(Struct):
        resource_name: str = string()
        resource_type: int = int8("1+", default=16)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
