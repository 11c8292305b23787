"""The requests that most tests make. Names of settings are written with underscores for dots."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.wire.messages import (
    CreateTopicsRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from ottla.wire.primitives import ZERO_UUID

TopicIds = Mapping[str, bytes]
"""Topic name -> id, for the versions that use ids instead of names."""


def dotted(settings: Mapping[str, object]) -> dict[str, object]:
    return {key.replace("_", "."): value for key, value in settings.items()}


def new_topic(
    name: str,
    partitions: int = 1,
    replication: int = 1,
    assignments: Sequence[Sequence[int]] = (),
    **configs: Any,
) -> CreateTopicsRequest.CreatableTopic:
    """`assignments` names the replicas of each partition, instead of the two numbers."""
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replication,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignments)
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=str(value))
            for key, value in dotted(configs).items()
        ],
    )


def create_topic_request(name: str, partitions: int = 1, **configs: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[new_topic(name, partitions, **configs)], timeout_ms=30_000, validate_only=False)


def produce_request(
    topic: str,
    records: Any,
    *,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
    topic_id: bytes = ZERO_UUID,
    **more: Any,
) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    entry = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[entry], **more)


def fetch_request(
    places: Iterable[tuple[str, int, int]],
    *,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    forgotten: Iterable[tuple[str, int]] = (),
    isolation_level: int = 0,
    topic_ids: TopicIds | None = None,
) -> FetchRequest:
    """`places` are (topic, partition, offset); each topic gets one entry."""
    by_topic: dict[str, list[FetchRequest.FetchPartition]] = {}
    for topic, partition, offset in places:
        by_topic.setdefault(topic, []).append(
            FetchRequest.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=current_leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
        )

    def named(topic: str) -> dict[str, Any]:
        return {"topic": topic} if topic_ids is None else {"topic": "", "topic_id": topic_ids[topic]}

    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.FetchTopic(**named(topic), partitions=wanted) for topic, wanted in by_topic.items()],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(**named(topic), partitions=[partition]) for topic, partition in forgotten
        ],
    )


def list_offsets_request(topic: str, timestamp: int, partition: int = 0, **more: Any) -> ListOffsetsRequest:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **more)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
    )


def metadata_request(*topics: str, create: bool = False) -> MetadataRequest:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=create)


def new_producer_request() -> InitProducerIdRequest:
    """For an idempotent producer without transactions."""
    return InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
