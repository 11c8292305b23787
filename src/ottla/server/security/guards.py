"""What each API asks the authorizer, in one place: a guard stands before a handler and lets through what is allowed.

With an authorizer the broker serves the registry that `guarded` makes; without one no request pays for any of this.
Every API is either guarded here or named among those that check for themselves or need no permission: a test sees to
it, so that a new one cannot be forgotten.

Most guards part a request in two: what is denied is answered with the API's own error answer, the rest is handled.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.answers import Answer, attempt, then
from ottla.enums import AclOperation, ConfigResourceType, ResourceType
from ottla.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.server.api import Api, Registry, RequestContext
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

Guard = Callable[[Api, RequestContext, Any], "Answer[Message | None]"]

OPEN = {
    17: "SaslHandshake",
    18: "ApiVersions",
    36: "SaslAuthenticate",
    60: "DescribeCluster",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
}
"""APIs that anybody may use; DescribeCluster checks the one part that needs a permission itself."""

SELF_CHECKED = {
    1: "Fetch",
    9: "OffsetFetch",
    10: "FindCoordinator",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}
"""APIs whose handlers ask the authorizer themselves, as they know more than the request says."""

_CLUSTER_OPERATIONS = {
    27: (ALTER, CLUSTER_ACTION),  # WriteTxnMarkers
    29: (DESCRIBE,),  # DescribeAcls
    30: (ALTER,),  # CreateAcls
    31: (ALTER,),  # DeleteAcls
    34: (ALTER,),  # AlterReplicaLogDirs
    35: (DESCRIBE,),  # DescribeLogDirs
    43: (ALTER,),  # ElectLeaders
    45: (ALTER,),  # AlterPartitionReassignments
    46: (DESCRIBE,),  # ListPartitionReassignments
    48: (DESCRIBE_CONFIGS,),  # DescribeClientQuotas
    49: (ALTER_CONFIGS,),  # AlterClientQuotas
    50: (DESCRIBE,),  # DescribeUserScramCredentials
    51: (ALTER,),  # AlterUserScramCredentials
    55: (DESCRIBE,),  # DescribeQuorum
    57: (ALTER,),  # UpdateFeatures
    64: (ALTER,),  # UnregisterBroker
    74: (DESCRIBE_CONFIGS,),  # ListConfigResources
    80: (ALTER,),  # AddRaftVoter
    81: (ALTER,),  # RemoveRaftVoter
    83: (CLUSTER_ACTION,),  # InitializeShareGroupState
    84: (CLUSTER_ACTION,),  # ReadShareGroupState
    85: (CLUSTER_ACTION,),  # WriteShareGroupState
    86: (CLUSTER_ACTION,),  # DeleteShareGroupState
    87: (CLUSTER_ACTION,),  # ReadShareGroupStateSummary
}
"""APIs that need one of these on the cluster."""


def guarded(registry: Registry) -> Registry:
    """The same APIs behind their guards."""
    return registry.changed(_guarded)


def _guarded(api: Api) -> Api:
    guard = guard_of(api.key)
    if guard is None:
        return api

    def handler(ctx: RequestContext, request: Any) -> Answer[Message | None]:
        return guard(api, ctx, request)

    return api.replace(handler=handler)


def guard_of(api_key: int) -> Guard | None:
    operations = _CLUSTER_OPERATIONS.get(api_key)
    return _cluster(operations) if operations is not None else _GUARDS.get(api_key)


# -- pieces ----------------------------------------------------------------------------------------------------------


def _cluster(operations: Sequence[int]) -> Guard:
    def guard(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
        *quiet, last = operations
        if not any(ctx.may(one, CLUSTER, audit=False) for one in quiet) and not ctx.may(last, CLUSTER):
            raise ClusterAuthorizationFailed()
        return api.handler(ctx, request)

    return guard


def _handled(api: Api, ctx: RequestContext, request: Any, finish: Callable[[Any], None]) -> Answer[Message | None]:
    """Call the handler and put something right in its answer, now or when it comes."""

    def finished(response: Message | None) -> Message | None:
        if response is not None:
            finish(response)
        return response

    return then(
        attempt(lambda: api.handler(ctx, request), lambda error: api.on_error(ctx, request, error)),
        finished,
    )


def _parted(
    items_of: str,
    answers_of: str,
    allowed: Callable[[RequestContext, Any], bool],
    error: Callable[[], KafkaError] = TopicAuthorizationFailed,
) -> Guard:
    """A guard that takes the denied items out of a list of the request and adds their answers to the response's."""

    def guard(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
        items = getattr(request, items_of)
        kept = [item for item in items if allowed(ctx, item)]
        if len(kept) == len(items):
            return api.handler(ctx, request)
        refused = copy.copy(request)
        setattr(refused, items_of, [item for item in items if item not in kept])
        setattr(request, items_of, kept)
        denied = getattr(api.on_error(ctx, refused, error()), answers_of)
        return _handled(api, ctx, request, lambda response: getattr(response, answers_of).extend(denied))

    return guard


def _on_topic(operation: int, name_field: str = "name") -> Callable[[RequestContext, Any], bool]:
    return lambda ctx, topic: ctx.may(operation, TOPIC, getattr(topic, name_field))


def _topic_name(ctx: RequestContext, topic: Any) -> str | None:
    """The name of a topic that is named or identified; None for an id that nobody has."""
    if topic.topic_id == ZERO_UUID:
        return topic.name  # type: ignore[no-any-return]
    known = ctx.services.metadata.topics_by_id.get(topic.topic_id)
    return known.name if known is not None else None


def _on_topic_or_id(operation: int) -> Callable[[RequestContext, Any], bool]:
    """An unknown id is left to the handler, which says so."""

    def allowed(ctx: RequestContext, topic: Any) -> bool:
        name = _topic_name(ctx, topic)
        return name is None or ctx.may(operation, TOPIC, name)

    return allowed


def _need_group(ctx: RequestContext, operation: int, group_id: str) -> None:
    if not ctx.may(operation, GROUP, group_id):
        raise GroupAuthorizationFailed()


def _need_transaction(ctx: RequestContext, operation: int, transactional_id: str) -> None:
    if not ctx.may(operation, TRANSACTIONAL_ID, transactional_id):
        raise TransactionalIdAuthorizationFailed()


def _group_read(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    _need_group(ctx, READ, request.group_id)
    return api.handler(ctx, request)


# -- records ---------------------------------------------------------------------------------------------------------

_produce_topics = _parted("topic_data", "responses", _on_topic_or_id(WRITE))


def _produce(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    if request.transactional_id is not None:
        _need_transaction(ctx, WRITE, request.transactional_id)
    count = len(request.topic_data)
    result = _produce_topics(api, ctx, request)
    if request.acks == 0 and len(request.topic_data) != count:
        ctx.connection.close("a produce request with acks=0 is not authorized")
    return result


_list_offsets = _parted("topics", "topics", _on_topic(DESCRIBE))
_epochs = _parted("topics", "topics", _on_topic(DESCRIBE, "topic"))


def _offset_for_leader_epoch(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    if ctx.may(CLUSTER_ACTION, CLUSTER, audit=False):
        return api.handler(ctx, request)
    return _epochs(api, ctx, request)


# -- topics ----------------------------------------------------------------------------------------------------------


def _metadata(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    """Topics that may not be described are as good as absent where all are asked for, and refused where named."""
    topic = api.request.MetadataRequestTopic  # type: ignore[attr-defined]
    names = ctx.services.metadata.topics
    if request.topics is None or (ctx.version == 0 and not request.topics):
        seen = [name for name in names if ctx.may(DESCRIBE, TOPIC, name, audit=False)]
        request.topics = [topic(name=name) for name in seen]
        if seen or ctx.version > 0:
            return api.handler(ctx, request)
        request.topics = [topic(name="")]  # in v0 an empty list stands for all topics
        return _handled(api, ctx, request, lambda response: response.topics.clear())
    creates = request.allow_auto_topic_creation or ctx.version < 4
    creates = creates and ctx.services.config["auto.create.topics.enable"]
    result = api.response.MetadataResponseTopic  # type: ignore[attr-defined]
    kept, denied = [], []
    for wanted in request.topics:
        name = _topic_name(ctx, wanted)
        if name is None:
            kept.append(wanted)
        elif not ctx.may(DESCRIBE, TOPIC, name):
            by_id = wanted.topic_id != ZERO_UUID
            denied.append(
                result(error_code=TopicAuthorizationFailed.code, name=None if by_id else name, topic_id=wanted.topic_id)
            )
        elif creates and name not in names and not _may_create(ctx, name):
            denied.append(result(error_code=TopicAuthorizationFailed.code, name=name))
        else:
            kept.append(wanted)
    request.topics = kept
    if not denied:
        return api.handler(ctx, request)
    if not kept and ctx.version == 0:
        request.topics = [topic(name="")]

        def only_denied(response: Any) -> None:
            response.topics = denied

        return _handled(api, ctx, request, only_denied)
    return _handled(api, ctx, request, lambda response: response.topics.extend(denied))


def _may_create(ctx: RequestContext, name: str) -> bool:
    return ctx.may(CREATE, CLUSTER, audit=False) or ctx.may(CREATE, TOPIC, name)


_named_partitions = _parted("topics", "topics", _on_topic(DESCRIBE))


def _describe_topic_partitions(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    if request.topics:
        if any(ctx.may(DESCRIBE, TOPIC, topic.name) for topic in request.topics):
            return _named_partitions(api, ctx, request)
        # Not one of them: and to the handler an empty list would stand for all topics.
        return api.on_error(ctx, request, TopicAuthorizationFailed())
    topic = api.request.TopicRequest  # type: ignore[attr-defined]
    cursor = request.cursor
    names = sorted(name for name in ctx.services.metadata.topics if ctx.may(DESCRIBE, TOPIC, name, audit=False))
    if cursor is not None and cursor.partition_index >= 0:
        names = [name for name in names if name >= cursor.topic_name]
        if cursor.topic_name not in names:
            request.cursor = None
    if not names:
        return api.response()
    request.topics = [topic(name=name) for name in names]
    return api.handler(ctx, request)


def _create_topics(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    """Creating needs CREATE on the cluster or the topic; its configs are told to who may describe them."""
    counts = Counter(topic.name for topic in request.topics)

    def allowed(ctx: RequestContext, topic: Any) -> bool:
        # What is refused for its form is refused for that.
        formless = counts[topic.name] > 1 or topic.name == CLUSTER_METADATA_TOPIC
        return formless or _may_create(ctx, topic.name)

    def hide_configs(response: Any) -> None:
        for made in response.topics:
            if made.error_code == 0 and not ctx.may(DESCRIBE_CONFIGS, TOPIC, made.name, audit=False):
                made.topic_config_error_code = TopicAuthorizationFailed.code
                made.configs = None
                made.num_partitions = made.replication_factor = -1

    parted = _parted("topics", "topics", allowed, lambda: TopicAuthorizationFailed("Authorization failed."))
    return _handled(api.replace(handler=lambda ctx, request: parted(api, ctx, request)), ctx, request, hide_configs)


def _delete_topics(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    """Deleting needs DELETE; the name of a topic that came by its id is told to who may describe it."""
    if ctx.version < 6:
        by_name = _parted("topic_names", "responses", lambda ctx, name: ctx.may(DELETE, TOPIC, name))
        return by_name(api, ctx, request)
    topics = ctx.services.metadata.topics_by_id

    def allowed(ctx: RequestContext, topic: Any) -> bool:
        if topic.name is not None:
            return topic.topic_id != ZERO_UUID or ctx.may(DELETE, TOPIC, topic.name)
        known = topics.get(topic.topic_id)
        return known is None or (ctx.may(DESCRIBE, TOPIC, known.name) and ctx.may(DELETE, TOPIC, known.name))

    def show_names(response: Any) -> None:
        for deleted in response.responses:
            known = topics.get(deleted.topic_id)
            if deleted.error_code == TopicAuthorizationFailed.code and deleted.name is None and known is not None:
                deleted.name = known.name if ctx.may(DESCRIBE, TOPIC, known.name, audit=False) else None

    parted = _parted("topics", "responses", allowed)
    return _handled(api.replace(handler=lambda ctx, request: parted(api, ctx, request)), ctx, request, show_names)


_CONFIG_ERRORS: Mapping[int, tuple[int, type[KafkaError]]] = {
    ConfigResourceType.TOPIC: (TOPIC, TopicAuthorizationFailed),
    ConfigResourceType.GROUP: (GROUP, GroupAuthorizationFailed),
    ConfigResourceType.BROKER: (CLUSTER, ClusterAuthorizationFailed),
    ConfigResourceType.BROKER_LOGGER: (CLUSTER, ClusterAuthorizationFailed),
    ConfigResourceType.CLIENT_METRICS: (CLUSTER, ClusterAuthorizationFailed),
}


def _configs(operation: int, answers_of: str, result_name: str) -> Guard:
    def guard(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
        kept, denied = [], []
        for resource in request.resources:
            kind, error = _CONFIG_ERRORS.get(resource.resource_type, (0, ClusterAuthorizationFailed))
            name = resource.resource_name
            if kind == 0 or (ctx.may(operation, CLUSTER) if kind == CLUSTER else ctx.may(operation, kind, name)):
                kept.append(resource)
            else:
                result = getattr(api.response, result_name)
                denied.append(
                    result(
                        error_code=error.code,
                        error_message=error.default_message,
                        resource_type=resource.resource_type,
                        resource_name=name,
                    )
                )
        request.resources = kept
        if not denied:
            return api.handler(ctx, request)
        return _handled(api, ctx, request, lambda response: getattr(response, answers_of).extend(denied))

    return guard


# -- groups ----------------------------------------------------------------------------------------------------------

_commit_topics = _parted("topics", "topics", _on_topic_or_id(READ))


def _offset_commit(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    _need_group(ctx, READ, request.group_id)
    return _commit_topics(api, ctx, request)


def _offset_delete(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    _need_group(ctx, DELETE, request.group_id)
    kept, denied = [], []
    for topic in request.topics:
        if ctx.may(READ, TOPIC, topic.name):
            kept.append(topic)
            continue
        partition = api.response.OffsetDeleteResponsePartition  # type: ignore[attr-defined]
        refused = [
            partition(partition_index=wanted.partition_index, error_code=TopicAuthorizationFailed.code)
            for wanted in topic.partitions
        ]
        denied.append(api.response.OffsetDeleteResponseTopic(name=topic.name, partitions=refused))  # type: ignore[attr-defined]
    request.topics = kept
    return _handled(api, ctx, request, lambda response: response.topics.extend(denied))


def _consumer_group_heartbeat(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    _need_group(ctx, READ, request.group_id)
    for name in request.subscribed_topic_names or ():
        if not ctx.may(DESCRIBE, TOPIC, name):
            raise TopicAuthorizationFailed()
    return api.handler(ctx, request)


_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def _group_describe(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    """Of groups by one of the newer protocols: their topics must be visible too."""

    def hide(response: Any) -> None:
        for group in response.groups:
            names = {name for member in group.members for name in member.subscribed_topic_names}
            for member in group.members:
                for assignment in (member.assignment, getattr(member, "target_assignment", None)):
                    if assignment is not None:
                        names.update(part.topic_name for part in assignment.topic_partitions)
            if not all(ctx.may(DESCRIBE, TOPIC, name) for name in names):
                group.error_code = TopicAuthorizationFailed.code
                group.error_message = _HIDDEN_TOPICS
                group.members = []

    groups = _parted("group_ids", "groups", lambda ctx, name: ctx.may(DESCRIBE, GROUP, name), GroupAuthorizationFailed)
    return _handled(api.replace(handler=lambda ctx, request: groups(api, ctx, request)), ctx, request, hide)


def _list_groups(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    if ctx.may(DESCRIBE, CLUSTER, audit=False):
        return api.handler(ctx, request)

    def hide(response: Any) -> None:
        response.groups = [g for g in response.groups if ctx.may(DESCRIBE, GROUP, g.group_id, audit=False)]

    return _handled(api, ctx, request, hide)


# -- transactions ----------------------------------------------------------------------------------------------------


def _init_producer_id(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    if request.transactional_id is not None:
        _need_transaction(ctx, WRITE, request.transactional_id)
    elif not ctx.may(IDEMPOTENT_WRITE, CLUSTER, audit=False) and not ctx.may_any(WRITE, TOPIC):
        raise ClusterAuthorizationFailed()
    return api.handler(ctx, request)


def _add_partitions(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    """Clients speak up to v3; what comes after is for brokers. The handler refuses the topics one by one."""
    if ctx.version >= 4:
        if not ctx.may(CLUSTER_ACTION, CLUSTER):
            raise ClusterAuthorizationFailed()
    else:
        _need_transaction(ctx, WRITE, request.v3_and_below_transactional_id)
    return api.handler(ctx, request)


def _add_offsets(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    _need_transaction(ctx, WRITE, request.transactional_id)
    _need_group(ctx, READ, request.group_id)
    return api.handler(ctx, request)


def _end_transaction(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    _need_transaction(ctx, WRITE, request.transactional_id)
    return api.handler(ctx, request)


_offsets_in_transaction = _parted("topics", "topics", _on_topic(READ))


def _txn_offset_commit(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    _need_transaction(ctx, WRITE, request.transactional_id)
    _need_group(ctx, READ, request.group_id)
    return _offsets_in_transaction(api, ctx, request)


_described_transactions = _parted(
    "transactional_ids",
    "transaction_states",
    lambda ctx, name: ctx.may(DESCRIBE, TRANSACTIONAL_ID, name),
    TransactionalIdAuthorizationFailed,
)


def _describe_transactions(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    def hide(response: Any) -> None:
        for state in response.transaction_states:
            state.topics = [topic for topic in state.topics if ctx.may(DESCRIBE, TOPIC, topic.topic)]

    handler = api.replace(handler=lambda ctx, request: _described_transactions(api, ctx, request))
    return _handled(handler, ctx, request, hide)


def _list_transactions(api: Api, ctx: RequestContext, request: Any) -> Answer[Message | None]:
    def hide(response: Any) -> None:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if ctx.may(DESCRIBE, TRANSACTIONAL_ID, state.transactional_id, audit=False)
        ]

    return _handled(api, ctx, request, hide)


_GUARDS: dict[int, Guard] = {
    0: _produce,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    11: _group_read,  # JoinGroup
    12: _group_read,  # Heartbeat
    13: _group_read,  # LeaveGroup
    14: _group_read,  # SyncGroup
    15: _parted("groups", "groups", lambda ctx, name: ctx.may(DESCRIBE, GROUP, name), GroupAuthorizationFailed),
    16: _list_groups,
    19: _create_topics,
    20: _delete_topics,
    21: _parted("topics", "topics", _on_topic(DELETE)),  # DeleteRecords
    22: _init_producer_id,
    23: _offset_for_leader_epoch,
    24: _add_partitions,
    25: _add_offsets,
    26: _end_transaction,
    28: _txn_offset_commit,
    32: _configs(DESCRIBE_CONFIGS, "results", "DescribeConfigsResult"),
    33: _configs(ALTER_CONFIGS, "responses", "AlterConfigsResourceResponse"),
    37: _parted("topics", "results", _on_topic(ALTER)),  # CreatePartitions
    42: _parted("groups_names", "results", lambda ctx, name: ctx.may(DELETE, GROUP, name), GroupAuthorizationFailed),
    44: _configs(ALTER_CONFIGS, "responses", "AlterConfigsResourceResponse"),
    47: _offset_delete,
    61: _parted("topics", "topics", _on_topic(READ)),  # DescribeProducers
    65: _describe_transactions,
    66: _list_transactions,
    68: _consumer_group_heartbeat,
    69: _group_describe,
    75: _describe_topic_partitions,
    76: _consumer_group_heartbeat,  # ShareGroupHeartbeat
    77: _group_describe,  # ShareGroupDescribe
    78: _group_read,  # ShareFetch
    79: _group_read,  # ShareAcknowledge
    90: _parted(
        "groups", "groups", lambda ctx, asked: ctx.may(DESCRIBE, GROUP, asked.group_id), GroupAuthorizationFailed
    ),
}
