"""FindCoordinator: which broker coordinates a group, a transactional id or a share partition."""

from __future__ import annotations

from ottla.answers import Answer, in_slices, then
from ottla.enums import AclOperation, AnsweredBy, CoordinatorType, ResourceType
from ottla.errors import (
    NONE,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    InvalidRequest,
    KafkaError,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.topics import GROUP_METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.server.api import ChecksItself, RequestContext, handles
from ottla.wire.messages.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.primitives import uuid_from_base64

_TOPIC_OF: dict[int, str] = {
    CoordinatorType.GROUP: GROUP_METADATA_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTION_STATE_TOPIC,
    CoordinatorType.SHARE: SHARE_STATE_TOPIC,
}

Found = FindCoordinatorResponse.Coordinator

_KEYS_AT_A_TIME = 1000
"""Looking up this many keys takes a few milliseconds; then other clients are served."""


def _find_error(ctx: RequestContext, request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    if ctx.version < 4:
        return FindCoordinatorResponse(error_code=error.code, error_message=error.message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Found(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)
            for key in request.coordinator_keys
        ]
    )


def _may_create(image: MetadataImage, request: FindCoordinatorRequest) -> bool:
    """Whether the coordinators' own topic is missing."""
    return _TOPIC_OF.get(request.key_type, GROUP_METADATA_TOPIC) not in image.topics


@handles(
    FindCoordinatorRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=ChecksItself("DESCRIBE on the group or the transactional id"),
    on_error=_find_error,
    may_create_topics=_may_create,
)
def find_coordinator(ctx: RequestContext, request: FindCoordinatorRequest) -> Answer[FindCoordinatorResponse]:
    """v0–v6. v1 transactional ids; v4 several keys at once (KIP-699); v6 share partitions (KIP-932).

    The internal topic is created with the first request, and is ready when the answer is sent.
    """
    if request.key_type not in _TOPIC_OF:
        raise InvalidRequest()
    if request.key_type == CoordinatorType.SHARE and ctx.version < 6:
        raise InvalidRequest() if ctx.version < 4 else InvalidRequest("")
    if ctx.version >= 4:
        return then(
            in_slices(
                request.coordinator_keys, _KEYS_AT_A_TIME, lambda keys: [_found(ctx, request.key_type, k) for k in keys]
            ),
            lambda found: FindCoordinatorResponse(coordinators=found),
        )
    found = _found(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message if found.error_code != NONE else "NONE",  # the word is Kafka's
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(ctx: RequestContext, key_type: int, key: str) -> Found:
    try:
        _check_allowed(ctx, key_type, key)
        if key_type == CoordinatorType.SHARE:
            _check_share_key(key)
        leader = ctx.services.directory.coordinator_of(_TOPIC_OF[key_type], key)
        for node, host, port in ctx.services.directory.nodes(ctx.connection):
            if node.broker_id == leader:
                return Found(key=key, node_id=leader, host=host, port=port, error_code=NONE, error_message="")
        raise CoordinatorNotAvailable()
    except UnsupportedVersion:
        raise
    except KafkaError as error:
        # Kafka leaves out this message if there may be several keys.
        silent = ctx.version >= 4 and isinstance(error, CoordinatorNotAvailable)
        message = "" if silent else error.message
        return Found(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=message)


def _check_allowed(ctx: RequestContext, key_type: int, key: str) -> None:
    if key_type == CoordinatorType.GROUP and not ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, key):
        raise GroupAuthorizationFailed()
    if key_type == CoordinatorType.TRANSACTION and not ctx.may(
        AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key
    ):
        raise TransactionalIdAuthorizationFailed()
    if key_type == CoordinatorType.SHARE and not ctx.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailed()


def _check_share_key(key: str) -> None:
    """A share partition is named `group:topicId:partition`; the group may contain colons."""
    parts = key.rsplit(":", 2)
    try:
        if len(parts) == 3 and parts[0]:
            uuid_from_base64(parts[1])
            int(parts[2])
            return
    except ValueError:
        pass
    raise InvalidRequest("")
