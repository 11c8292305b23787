"""Admin operations on the offsets of share groups: alter them, delete them, and delete a group with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.answers import Reply
from ottla.coordinator.groups.share.group import ShareGroup
from ottla.coordinator.groups.share.protocol import Outcome
from ottla.coordinator.groups.share.records import topics_record
from ottla.coordinator.runtime.result import Result
from ottla.errors import (
    GroupIdNotFound,
    InvalidGroupId,
    KafkaError,
    NonEmptyGroup,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.metadata.java_hash_order import java_computed_map, uuid_hash
from ottla.wire.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.wire.primitives import ZERO_UUID, uuid_to_base64

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

NOT_HERE = "This server does not host this topic-partition."
NO_PARTITION = "Initialize share group parameters has invalid partitionId - "
NOTHING_THERE = "There is no offset information to delete."


class KnownTopic(NamedTuple):
    """A topic for which a group has state."""

    topic_id: bytes
    name: str
    partitions: list[int]


def known_topics(shard: GroupShard, group_id: str) -> list[KnownTopic]:
    try:
        topics = shard.share.require(shard.seen(group_id).group, group_id).topics
    except GroupIdNotFound:
        return []
    return [
        KnownTopic(topic_id, topics.names[topic_id], sorted(indexes))
        for topic_id, indexes in topics.initialized.items()
    ]


def _empty_group(shard: GroupShard, group_id: str, *, create: bool) -> ShareGroup:
    if not group_id:
        raise InvalidGroupId("The group id is invalid.")
    group = shard.groups.get(group_id)
    found = ShareGroup(group_id) if group is None and create else shard.share.require(group, group_id)
    if found.members:
        raise NonEmptyGroup("The group is not empty.")
    return found


def alter(shard: GroupShard, request: AlterShareGroupOffsetsRequest) -> Result[AlterShareGroupOffsetsResponse]:
    """Set the start offset of each partition; creates the group if it does not exist."""
    group = _empty_group(shard, request.group_id, create=True)
    protocol = shard.share
    response = AlterShareGroupOffsetsResponse(responses=[])
    answered = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
    offsets: dict[bytes, dict[int, int]] = {}
    names: dict[bytes, str] = {}
    answers: dict[tuple[bytes, int], AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = {}
    results: dict[str, AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = {}
    makes_group = False
    for topic in request.topics:
        found = shard.image.topic(topic.topic_name)
        makes_group |= found is not None
        result = results.get(topic.topic_name)
        if result is None:
            result = results[topic.topic_name] = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=ZERO_UUID if found is None else found.topic_id, partitions=[]
            )
        for wanted in topic.partitions:
            index = wanted.partition_index
            one = answered(partition_index=index)
            result.partitions.append(one)
            if found is None or not 0 <= index < found.partition_count:
                one.error_code, one.error_message = UnknownTopicOrPartition.code, NOT_HERE
                continue
            names[found.topic_id] = found.name
            offsets.setdefault(found.topic_id, {})[index] = wanted.start_offset
            answers[found.topic_id, index] = one
    # Topics that do not exist come first, unless the request named no partition of them.
    response.responses = sorted(
        (result for result in results.values() if result.topic_id != ZERO_UUID or result.partitions),
        key=lambda result: result.topic_id != ZERO_UUID,
    )
    impossible = _impossible(shard, request)
    if impossible:
        response = AlterShareGroupOffsetsResponse(
            error_code=UnknownServerError.code, error_message=impossible, responses=[]
        )
    if not offsets or impossible:
        # An existing topic creates the group, even if none of the partitions exists.
        is_new = makes_group and request.group_id not in shard.groups
        return Result([topics_record(group.group_id, group.topics)] if is_new else (), response)
    reply: Reply[AlterShareGroupOffsetsResponse] = Reply()
    made = {topic_id: (names[topic_id], frozenset(each)) for topic_id, each in offsets.items()}
    records = [topics_record(group.group_id, group.topics.with_initializing(made))]

    def initialized(outcome: Outcome) -> None:
        protocol.initialized(group.group_id, outcome)
        for place, error in outcome.items():
            if error is not None:
                answers[place].error_code, answers[place].error_message = error.code, error.message
        reply.resolve(response)

    return Result(
        records,
        reply,
        _then(reply, lambda: protocol.state.initialize(group.group_id, group.epoch, offsets, initialized)),
    )


def _impossible(shard: GroupShard, request: AlterShareGroupOffsetsRequest) -> str:
    """Why the whole request fails, or "". Kafka sends any index below the number of partitions to its share
    coordinator, which refuses the whole request if one is negative."""
    for topic in request.topics:
        found = shard.image.topic(topic.topic_name)
        if found is None:
            continue
        for wanted in topic.partitions:
            if wanted.partition_index < 0:
                return f"{NO_PARTITION}{request.group_id} {uuid_to_base64(found.topic_id)} {wanted.partition_index}"
    return ""


def delete(shard: GroupShard, request: DeleteShareGroupOffsetsRequest) -> Result[DeleteShareGroupOffsetsResponse]:
    """Delete the state of topics, as if the group had never read them."""
    group = _empty_group(shard, request.group_id, create=False)
    protocol = shard.share
    response = DeleteShareGroupOffsetsResponse(responses=[])
    answered = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
    gone: dict[bytes, frozenset[int]] = {}
    answers: dict[bytes, DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = {}
    for topic in request.topics:
        found = shard.image.topic(topic.topic_name)
        if found is not None and found.topic_id in gone:
            continue
        one = answered(topic_name=topic.topic_name)
        if found is None or not group.topics.knows(found.topic_id):
            one.error_code = UnknownTopicOrPartition.code
            one.error_message = NOT_HERE if found is None else NOTHING_THERE
            response.responses.append(one)
            continue
        one.topic_id = found.topic_id
        answers[found.topic_id] = one
        gone[found.topic_id] = frozenset(range(found.partition_count))
    if not gone:
        return Result((), response)
    # The topics to delete come first, in the order of a hash map to which every partition was added.
    calls = [topic_id for topic_id, indexes in gone.items() for _ in indexes]
    response.responses[:0] = [answers[topic_id] for topic_id in java_computed_map(calls, uuid_hash)]
    reply: Reply[DeleteShareGroupOffsetsResponse] = Reply()

    def deleted(outcome: Outcome) -> None:
        failed = {topic_id: error for (topic_id, _), error in outcome.items() if error is not None}
        for topic_id, error in failed.items():
            answers[topic_id].error_code, answers[topic_id].error_message = error.code, error.message
        current = protocol.find(group.group_id)
        if current is not None:
            rest = current.topics.without(gone.keys() - failed.keys())
            shard.run(Result([topics_record(group.group_id, rest)]))
        reply.resolve(response)

    return Result(
        [topics_record(group.group_id, group.topics.with_deleting(gone))],
        reply,
        _then(reply, lambda: protocol.state.delete(group.group_id, gone, deleted)),
    )


def _then(reply: Reply[Any], go_on: Callable[[], None]) -> Callable[[KafkaError | None], None]:
    def then(error: KafkaError | None) -> None:
        if error is None:
            go_on()
        else:
            reply.fail(error)

    return then
