"""Checks and executes the acknowledgements of a request: one error or none for each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla.coordinator.share_state.state import ShareKey
from ottla.enums import AcknowledgeType, AclOperation, ResourceType
from ottla.errors import (
    InvalidRecordState,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.server.api import RequestContext
from ottla.server.share.manager import ShareGroups, for_clients
from ottla.server.share.partition import AcknowledgementBatch
from ottla.server.share.sessions import Place

Outcome = dict[Place, KafkaError | None]
Wanted = Mapping[Place, Sequence[AcknowledgementBatch]]


def acknowledgements(topics: Iterable[Any]) -> dict[Place, list[AcknowledgementBatch]]:
    """The acknowledgements of a request by partition. Some partitions may have none."""
    return {
        (topic.topic_id, wanted.partition_index): [
            AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in wanted.acknowledgement_batches
        ]
        for topic in topics
        for wanted in topic.partitions
    }


def acknowledge(
    ctx: RequestContext,
    share: ShareGroups,
    group_id: str,
    member_id: str,
    wanted: Wanted,
    renews: bool,
    done: Callable[[Outcome], None],
) -> Callable[[], None]:
    """Execute the acknowledgements. Call the returned function to store them; `done` is called when they are stored,
    or cannot be.
    """
    stores: list[Callable[[], None]] = []
    outcome, sound = _checked(ctx, wanted, renews and share.settings(group_id).renews)
    left = len(sound) + 1

    def one_done() -> None:
        nonlocal left
        left -= 1
        if not left:
            done(outcome)

    for place, batches in sound.items():
        key = ShareKey(group_id, *place)

        def stored(error: KafkaError | None, key: ShareKey = key, place: Place = place) -> None:
            if error is not None and not _is_of_the_request(error):
                share.failed(key, error)
                error = for_clients(error)
            outcome[place] = error
            one_done()

        try:
            reader = share.reader(*key)
            if reader is None:
                raise UnknownTopicOrPartition
            reader.partition.check_leads()
            stores.append(reader.share.acknowledge(member_id, batches, stored))
        except KafkaError as error:
            outcome[place] = error
            one_done()

    def store() -> None:
        for each in stores:
            each()
        one_done()

    return store


def _checked(ctx: RequestContext, wanted: Wanted, renews: bool) -> tuple[Outcome, Wanted]:
    """The errors that can be answered immediately, and the acknowledgements to execute. A partition without
    acknowledgements is checked too; if it is valid, it is in the answer only if another one has acknowledgements, as in
    Kafka."""
    outcome: Outcome = {}
    sound: dict[Place, Sequence[AcknowledgementBatch]] = {}
    silent: list[Place] = []
    for place, batches in wanted.items():
        try:
            if place[0] not in ctx.services.metadata.topics_by_id:
                raise UnknownTopicId("")
            _check(batches, renews)
            _check_allowed(ctx, *place)
        except KafkaError as error:
            outcome[place] = error
            continue
        if batches:
            sound[place] = batches
        else:
            silent.append(place)
    if sound:
        outcome.update(dict.fromkeys(silent))
    return outcome, sound


def _is_of_the_request(error: KafkaError) -> bool:
    return isinstance(error, (InvalidRecordState, InvalidRequest))


def _check(batches: Sequence[AcknowledgementBatch], renews: bool) -> None:
    highest = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    end = -1
    for first, last, types in batches:
        if first > last or first < end or not types:
            raise InvalidRequest("")
        if len(types) > 1 and len(types) != last - first + 1:
            raise InvalidRequest("")
        if not all(0 <= kind <= highest for kind in types):
            raise InvalidRequest("")
        end = last


def _check_allowed(ctx: RequestContext, topic_id: bytes, index: int) -> None:
    topic = ctx.services.metadata.topics_by_id[topic_id]
    if not ctx.may(AclOperation.READ, ResourceType.TOPIC, topic.name):
        raise TopicAuthorizationFailed("")
    if index not in topic.partitions:
        raise UnknownTopicOrPartition("")


def leader_of(ctx: RequestContext, place: Place, error: KafkaError | None) -> tuple[int, int] | None:
    """The leader of a partition, for an answer that redirects its client."""
    return ctx.services.directory.leader_of(place) if isinstance(error, NotLeaderOrFollower) else None
