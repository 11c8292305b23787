"""Requests with several errors at once: which of them is answered."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import (
    NONE,
    InvalidConfig,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.wire import messages as m
from ottla.wire.primitives import ZERO_UUID
from support.batches import batch
from support.interop.transacting import Transacting
from support.wire import Wire

NO_OPERATION = 7
NOBODYS_ID = b"\xee" * 16

# -- settings: names before values, and those in the order of Kafka's definitions


def create(wire: Wire, *configs: tuple[str, str]) -> str:
    kind = m.CreateTopicsRequest
    topic = kind.CreatableTopic(
        name="faulty",
        num_partitions=1,
        replication_factor=1,
        configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in configs],
    )
    made = wire.call(kind(topics=[topic], timeout_ms=30000, validate_only=True), 7).topics[0]
    assert made.error_code == InvalidConfig.code
    return str(made.error_message)


def alter(wire: Wire, kind: int, name: str, *configs: tuple[str, int, str]) -> tuple[int, str | None]:
    resource, config = (
        m.IncrementalAlterConfigsRequest.AlterConfigsResource,
        m.IncrementalAlterConfigsRequest.AlterableConfig,
    )
    changes = [config(name=key, config_operation=operation, value=value) for key, operation, value in configs]
    request = m.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=changes)], validate_only=True
    )
    answer = wire.call(request, 1).responses[0]
    return answer.error_code, answer.error_message


def test_settings_of_a_new_topic(wire: Wire) -> None:
    retention, policy, size = ("retention.ms", "many"), ("cleanup.policy", "x"), ("segment.bytes", "1")
    too_small = "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"
    assert create(wire, policy, retention, size) == too_small
    assert create(wire, size, policy, retention) == too_small
    assert (
        create(wire, policy, retention)
        == "Invalid value many for configuration retention.ms: Not a number of type LONG"
    )
    assert create(wire, policy, ("zz", "1"), retention) == "Unknown topic config name: zz"
    # Of several names, the first in a hash map
    unknown = [(name, "1") for name in ("no.such", "a", "zz")]
    assert create(wire, *unknown) == create(wire, *unknown[::-1]) == "Unknown topic config name: zz"


def test_a_throttled_replica_has_plain_digits(wire: Wire) -> None:
    assert "must be the literal '*'" in create(wire, ("follower.replication.throttled.replicas", "\u0663:1"))


def test_settings_of_groups_and_client_metrics(wire: Wire, unique: Callable[[str], str]) -> None:
    group = unique("g")
    share, consumer = (
        ("share.session.timeout.ms", AlterConfigOp.SET, "x"),
        ("consumer.session.timeout.ms", AlterConfigOp.SET, "x"),
    )
    code, text = alter(wire, ConfigResourceType.GROUP, group, share, consumer)
    assert code == InvalidConfig.code
    assert text == "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT"
    names = [(name, AlterConfigOp.SET, "1") for name in ("a", "no.such", "zz")]
    assert alter(wire, ConfigResourceType.GROUP, group, share, *names)[1] == "Unknown group config name: zz"
    metrics, interval = ("metrics", AlterConfigOp.SET, "a,"), ("interval.ms", AlterConfigOp.SET, "x")
    assert (
        alter(wire, ConfigResourceType.CLIENT_METRICS, group, interval, metrics)[1]
        == "Configuration 'metrics' values must not be empty."
    )


def test_operations(topic: str, wire: Wire, unique: Callable[[str], str]) -> None:
    text = "Can't APPEND to key nope because its type is not LIST."
    settings = [("min.insync.replicas", AlterConfigOp.SUBTRACT, "1"), ("nope", AlterConfigOp.APPEND, "1")]
    assert (
        alter(wire, ConfigResourceType.TOPIC, topic, *settings)
        == alter(wire, ConfigResourceType.TOPIC, topic, *settings[::-1])
        == (InvalidConfig.code, text)
    )
    # An unknown operation fails the whole request, unless another error is found first.
    assert alter(wire, ConfigResourceType.TOPIC, topic, ("segment.ms", NO_OPERATION, "1"), settings[1]) == (
        InvalidConfig.code,
        text,
    )
    assert alter(
        wire, ConfigResourceType.TOPIC, topic, ("nope", NO_OPERATION, "1"), ("segment.ms", AlterConfigOp.APPEND, "1")
    ) == (
        UnknownServerError.code,
        None,
    )
    # A broker checks all operations before it checks their resources.
    node = str(wire.metadata().brokers[0].node_id)
    assert alter(
        wire,
        ConfigResourceType.BROKER,
        node,
        ("nope", AlterConfigOp.APPEND, "1"),
        ("num.io.threads", NO_OPERATION, "1"),
    ) == (
        InvalidRequest.code,
        "Unknown operations type 7",
    )


def test_features(wire: Wire) -> None:
    def refused(*updates: tuple[str, int]) -> str:
        entry = m.UpdateFeaturesRequest.FeatureUpdateKey
        wanted = [entry(feature=name, max_version_level=level, upgrade_type=1) for name, level in updates]
        answer = wire.call(m.UpdateFeaturesRequest(timeout_ms=30000, feature_updates=wanted, validate_only=True), 2)
        return str(answer.error_message).partition(" had an error: ")[2]

    # The first in a hash map; for each feature the last update counts.
    updates = [("eligible.leader.replicas.version", 28), ("nope", 2)]
    unknown = "Invalid update version 2 for feature nope. Local controller 1 does not support this feature."
    assert refused(*updates) == refused(*updates[::-1]) == unknown
    assert refused(("metadata.version", 2), ("metadata.version", 3)).startswith("Invalid update version 3 ")


# -- fetches: a topic with neither name nor id cannot be distinguished from the one after it


@pytest.mark.parametrize("version", [13, 18])
@pytest.mark.parametrize("epoch", [0, -1])
def test_topics_without_an_id(version: int, epoch: int, topic: str, wire: Wire) -> None:
    def fetched(*topics: tuple[bytes, list[int]]) -> tuple[int, list[tuple[bytes, list[int]]]]:
        place = m.FetchRequest.FetchPartition
        request = wire.fetch_request([], version, session=(0, epoch))
        request.topics = [
            m.FetchRequest.FetchTopic(
                topic_id=topic_id,
                partitions=[
                    place(
                        partition=index,
                        fetch_offset=0,
                        current_leader_epoch=-1,
                        last_fetched_epoch=-1,
                        partition_max_bytes=1000,
                    )
                    for index in indexes
                ],
            )
            for topic_id, indexes in topics
        ]
        answer = wire.call(request, version)
        found = [(each.topic_id, [one.error_code for one in each.partitions]) for each in answer.responses]
        return answer.error_code, found

    known, nameless = (wire.topic_id(topic), [0]), (ZERO_UUID, [UnknownTopicId.code])
    assert fetched((ZERO_UUID, [0]), known) == (NONE, [(known[0], [NONE]), nameless])
    assert fetched((NOBODYS_ID, [0]), (ZERO_UUID, [0])) == (NONE, [(NOBODYS_ID, [UnknownTopicId.code]), nameless])
    for wanted in ([(ZERO_UUID, [0, 1])], [(ZERO_UUID, [0]), (NOBODYS_ID, [0])], [known, (ZERO_UUID, [0, 1])]):
        assert fetched(*wanted) == (UnknownServerError.code, [])


def test_negative_byte_limits(make_topic: Callable[..., str], wire: Wire) -> None:
    """The first partition that is read fails. No bytes are left for the others, but one batch is always sent."""
    topic = make_topic(3)
    for partition in range(3):
        wire.produce(topic, batch(b"x"), partition)
    request = wire.fetch_request([(topic, 0, 0), (topic, 1, 0), (topic, 2, 0)], 12, max_bytes=-1)
    found = wire.call(request, 12).responses[0].partitions
    assert [(each.error_code, bool(each.records)) for each in found] == [
        (UnknownServerError.code, False),
        (NONE, True),
        (NONE, False),
    ]


# -- transactions: only batches that could be written are verified


@pytest.mark.parametrize("version", [9, 12])
def test_records_of_two_producers(version: int, topic: str, wire: Wire, unique: Callable[[str], str]) -> None:
    transaction = Transacting(wire, unique("tx")).start()
    mine = {"producer_id": transaction.producer_id, "producer_epoch": transaction.epoch}
    theirs = {"producer_id": transaction.producer_id + 1000, "producer_epoch": 0}

    def records(**producer: Any) -> bytearray:
        return batch(b"x", base_sequence=0, transactional=True, **producer)

    def produce(*wanted: tuple[str, int, bytearray], acks: int = -1) -> dict[tuple[str, int], int]:
        kind = m.ProduceRequest
        request = kind(
            transactional_id=transaction.name,
            acks=acks,
            timeout_ms=30000,
            topic_data=[
                kind.TopicProduceData(name=name, partition_data=[kind.PartitionProduceData(index=index, records=data)])
                for name, index, data in wanted
            ],
        )
        answer = wire.call(request, version)
        return {(each.name, one.index): one.error_code for each in answer.responses for one in each.partition_responses}

    assert transaction.add((topic, [0]))[topic, 0] == NONE
    both = produce((topic, 0, records(**mine)), (topic, 0, records(**theirs) + records(**theirs)))
    assert both == {(topic, 0): InvalidRecord.code}
    # The other producer's batch would not be written.
    assert produce((topic, 0, batch(b"x")), ("nowhere", 0, records(**theirs)), (topic, 9, records(**mine))) == {
        (topic, 0): NONE,
        ("nowhere", 0): UnknownTopicOrPartition.code,
        (topic, 9): UnknownTopicOrPartition.code,
    }
    # If a partition occurs twice, its last records count: these are not in a transaction.
    assert produce((topic, 0, records(**theirs)), (topic, 0, batch(b"x")), acks=2) == {
        (topic, 0): InvalidRequiredAcks.code
    }
    assert produce((topic, 0, records(**theirs) + batch(b"x"))) == {(topic, 0): InvalidRecord.code}
    transaction.finish(commit=False)
