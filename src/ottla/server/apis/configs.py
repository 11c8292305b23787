"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.answers import Answer, in_slices, then
from ottla.enums import AclOperation, AlterConfigOp, AnsweredBy, ConfigResourceType, ConfigSource
from ottla.errors import (
    NONE,
    InvalidRequest,
    KafkaError,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.metadata.configs import ConfigChange, ConfigChanges, Resource, check_form, check_node_id
from ottla.metadata.java_hash_order import persistent_map
from ottla.metadata.topics import check_topic_name
from ottla.server import broker_loggers as loggers
from ottla.server.api import GuardedBy, OnCluster, RequestContext, handles
from ottla.server.apis.answers import own_message
from ottla.server.apis.config_order import in_order
from ottla.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.wire.schema import Message, Struct

if TYPE_CHECKING:
    from ottla.config.describe import DescribedConfig

Described = DescribeConfigsResponse.DescribeConfigsResult
Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
Listed = ListConfigResourcesResponse.ConfigResource

_LISTED_TYPES = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)

_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)

_DESCRIBED_AT_A_TIME = 200
"""Resources described in one step; other requests run between two steps."""

_ENTRIES_MAX = 400_000
_DOCUMENTED_ENTRIES_MAX = 100_000
"""The most entries in an answer: those of 12,000 topics, or of 3,000 with documentation, which makes an entry ten times
as large."""


# -- describing ------------------------------------------------------------------------------------------------------


def _describe_error(ctx: RequestContext, request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            Described(
                error_code=error.code,
                error_message=error.default_message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


@handles(
    DescribeConfigsRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=GuardedBy("configs.describe_configs", "DESCRIBE_CONFIGS on each topic, group or the cluster"),
    on_error=_describe_error,
)
def describe_configs(ctx: RequestContext, request: DescribeConfigsRequest) -> Answer[DescribeConfigsResponse]:
    """v0–v4. v1 sources and synonyms (KIP-226) instead of an is-default flag, which Kafka 3.9.1 never sets in v0; v3
    types and documentation (KIP-569).

    The values of passwords and of unknown keys are never returned. A resource of an unknown type fails the whole
    request.
    """
    if any(resource.resource_type not in _LISTED_TYPES for resource in request.resources):
        raise InvalidRequest()
    description = _Description(ctx, request)
    return then(
        in_slices(request.resources, _DESCRIBED_AT_A_TIME, lambda some: list(map(description.of, some))),
        lambda results: DescribeConfigsResponse(results=results),
    )


class _Description:
    """The settings of each resource of one request.

    A request of a few kilobytes can contain a topic thousands of times. So resources with equal settings share their
    entries, and the number of entries in an answer is limited.
    """

    def __init__(self, ctx: RequestContext, request: DescribeConfigsRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._known: dict[tuple[int, str, tuple[str, ...] | None], list[Entry]] = {}
        self._max = self._left = _DOCUMENTED_ENTRIES_MAX if request.include_documentation else _ENTRIES_MAX

    def of(self, resource: DescribeConfigsRequest.DescribeConfigsResource) -> Described:
        described = Described(
            error_code=NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            entries = self._entries(resource)
            if len(entries) > self._left:
                raise InvalidRequest(f"A response has at most {self._max} settings. Describe fewer resources.")
            self._left -= len(entries)
            described.configs = entries
        except KafkaError as error:
            described.error_code = error.code
            described.error_message = own_message(error) or ""
        return described

    def _entries(self, resource: DescribeConfigsRequest.DescribeConfigsResource) -> list[Entry]:
        kind, name = resource.resource_type, resource.resource_name
        image = self._ctx.services.metadata
        if kind == ConfigResourceType.TOPIC:
            check_topic_name(name)
            if name not in image.topics:
                raise UnknownTopicOrPartition()
        own = kind in _OF_BROKERS or not name or (kind, name) in image.configs
        keys = resource.configuration_keys
        key = (kind, name if own else "*", tuple(keys) if keys else None)
        entries = self._known.get(key)
        if entries is None:
            entries = self._known[key] = _entries(self._ctx, self._request, resource)
        return entries


def _entries(
    ctx: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsRequest.DescribeConfigsResource,
) -> list[Entry]:
    kind, name = resource.resource_type, resource.resource_name
    names = resource.configuration_keys or None
    image = ctx.services.metadata
    overrides = image.configs.get((kind, name), {})
    if kind == ConfigResourceType.BROKER_LOGGER:
        return _logger_entries(ctx, name, names)
    if kind == ConfigResourceType.TOPIC:
        described = _described(ctx, "topic", names, overrides)
    elif kind == ConfigResourceType.BROKER:
        if name:
            _check_described_broker(ctx, name, "expected {} or empty string, but received {}")
        described = _described(ctx, "broker" if name else "cluster", names)
    elif kind == ConfigResourceType.GROUP:
        if not name:
            raise InvalidRequest("Group name must not be empty")
        described = _described(ctx, "group", names, overrides)
    else:
        if not name:
            raise InvalidRequest("Client metrics subscription name must not be empty")
        described = _described(ctx, "client-metrics", names, overrides)
    synonym = DescribeConfigsResponse.DescribeConfigsSynonym
    return [
        Entry(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
            synonyms=[synonym(name=s.name, value=s.value, source=s.source) for s in entry.synonyms]
            if request.include_synonyms
            else [],
            config_type=entry.type,
            documentation=entry.documentation if request.include_documentation else None,
        )
        for entry in described
    ]


def _described(
    ctx: RequestContext, kind: str, names: Collection[str] | None, overrides: Mapping[str, str] = MappingProxyType({})
) -> list[DescribedConfig]:
    return in_order(kind, ctx.services.config.describe(kind, overrides, names))


def _check_described_broker(ctx: RequestContext, name: str, wording: str) -> None:
    try:
        found = int(name)
    except ValueError:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}") from None
    if found != ctx.services.node_id:
        raise InvalidRequest("Unexpected broker id, " + wording.format(ctx.services.node_id, name))


def _logger_entries(ctx: RequestContext, name: str, names: Collection[str] | None) -> list[Entry]:
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    _check_described_broker(ctx, name, "expected {} but received {}")
    return [
        Entry(name=logger, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, documentation="")
        for logger, level in loggers.levels().items()
        if names is None or logger in names
    ]


# -- altering --------------------------------------------------------------------------------------------------------


ResultT = TypeVar("ResultT", bound=Struct)


def _outcomes(result: type[ResultT], resources: Sequence[Any], outcomes: Sequence[KafkaError | None]) -> list[ResultT]:
    """One result for each resource, for both kinds of requests."""
    return [
        result(
            error_code=NONE if error is None else error.code,
            error_message=None if error is None else own_message(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, error in zip(resources, outcomes, strict=True)
    ]


def _alter_error(ctx: RequestContext, request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return _alter_response(request, [error] * len(request.resources))


def _alter_response(request: AlterConfigsRequest, outcomes: Sequence[KafkaError | None]) -> AlterConfigsResponse:
    result = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(responses=_outcomes(result, request.resources, outcomes))


@handles(
    AlterConfigsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=GuardedBy("configs.alter_configs", "ALTER_CONFIGS on each topic, group or the cluster"),
    on_error=_alter_error,
)
def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """v0–v2. Replaces all settings of a resource: settings that are not listed are removed. v2 flexible.

    Loggers cannot be changed this way. If a resource appears twice, Kafka never answers; Ottla refuses both.
    """
    changes = _changes(ctx)
    outcomes = _alter(
        ctx,
        [
            (
                (resource.resource_type, resource.resource_name),
                [ConfigChange(config.name, config.value) for config in resource.configs],
            )
            for resource in request.resources
        ],
        changes.replace,
        request.validate_only,
    )
    return _alter_response(request, outcomes)


def _incremental_error(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return _incremental_response(request, [error] * len(request.resources))


def _incremental_response(
    request: IncrementalAlterConfigsRequest, outcomes: Sequence[KafkaError | None]
) -> IncrementalAlterConfigsResponse:
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(responses=_outcomes(result, request.resources, outcomes))


@handles(
    IncrementalAlterConfigsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=GuardedBy("configs.alter_configs", "ALTER_CONFIGS on each topic, group or the cluster"),
    on_error=_incremental_error,
)
def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """v0–v1 (KIP-339): set, delete, append, subtract; log levels too (KIP-412). v1 flexible."""
    changes = _changes(ctx)
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    wishes = [
        (
            (resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs],
        )
        for resource in request.resources
    ]
    trips = any(
        counts[resource] == 1 and changes.fails_the_whole_request(resource, wanted) for resource, wanted in wishes
    )

    def plan(resource: Resource, wanted: Sequence[ConfigChange]) -> list[Message]:
        if trips:
            # Kafka's controller fails on it, and so does everything that the broker itself did not refuse.
            if resource[0] == ConfigResourceType.BROKER:
                changes.increment(resource, wanted)
            elif resource[0] != ConfigResourceType.BROKER_LOGGER:
                check_form(wanted)
                changes.check_kind(resource)
            if resource[0] != ConfigResourceType.BROKER_LOGGER:
                raise UnknownServerError()
        if resource[0] == ConfigResourceType.BROKER_LOGGER:
            _set_levels(ctx, resource[1], wanted, request.validate_only)
            return []
        return changes.increment(resource, wanted)

    outcomes = _alter(ctx, wishes, plan, request.validate_only)
    return _incremental_response(request, outcomes)


def _changes(ctx: RequestContext) -> ConfigChanges:
    broker = ctx.services
    return ConfigChanges(broker.metadata, broker.config, broker.node_id, broker.security.check)


def _alter(
    ctx: RequestContext,
    wanted: Sequence[tuple[Resource, list[ConfigChange]]],
    plan: Callable[[Resource, Sequence[ConfigChange]], list[Message]],
    validate_only: bool,
) -> list[KafkaError | None]:
    """Plan each resource separately, and write those that were not refused."""
    counts = Counter(resource for resource, _ in wanted)
    records: list[Message] = []
    outcomes: list[KafkaError | None] = []
    for resource, changes in wanted:
        try:
            if counts[resource] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            records += plan(resource, changes)
            outcomes.append(None)
        except KafkaError as error:
            outcomes.append(error)
    if not validate_only:
        ctx.services.controller.commit(records)
    return outcomes


def _set_levels(ctx: RequestContext, name: str, wanted: Sequence[ConfigChange], validate_only: bool) -> None:
    check_form(wanted)
    check_node_id(name, ctx.services.node_id, "Unexpected node id. Expected {}, but received {}")
    for change in wanted:
        if change.operation in (AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
            operation = "APPEND" if change.operation == AlterConfigOp.APPEND else "SUBTRACT"
            raise InvalidRequest(f"{operation} operation is not allowed for the BROKER_LOGGER resource")
        if change.operation not in (AlterConfigOp.SET, AlterConfigOp.DELETE):
            raise UnknownServerError()
        loggers.check_level(change.name, None if change.operation == AlterConfigOp.DELETE else change.value)
    if not validate_only:
        for change in wanted:
            loggers.set_level(change.name, None if change.operation == AlterConfigOp.DELETE else change.value)


# -- listing ---------------------------------------------------------------------------------------------------------


@handles(
    ListConfigResourcesRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OnCluster(AclOperation.DESCRIBE_CONFIGS),
)
def list_config_resources(ctx: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """v0 client metrics only (KIP-714); v1 the requested types, or all (KIP-1142).

    Topics, brokers and loggers are listed even if they have no settings.
    """
    image = ctx.services.metadata
    types = _LISTED_TYPES if ctx.version >= 1 else (ConfigResourceType.CLIENT_METRICS,)
    wanted = set(request.resource_types or types) if ctx.version >= 1 else set(types)
    if not wanted <= set(types):
        raise UnsupportedVersion()
    response = ListConfigResourcesResponse()
    for kind in types:
        if kind not in wanted:
            continue
        if kind == ConfigResourceType.TOPIC:
            names = persistent_map(image.topics)
        elif kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
            names = [str(broker_id) for broker_id in sorted(image.brokers)]
        else:
            names = [name for resource_type, name in image.configs if resource_type == kind]
        response.config_resources += [Listed(resource_name=name, resource_type=kind) for name in names]
    return response
