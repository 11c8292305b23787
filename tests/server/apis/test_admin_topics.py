"""Changes to topics, partitions and records by an administrator, with the answers of Apache Kafka 4.3.1."""

from typing import Any

import pytest

from ottla.enums import CoordinatorType
from ottla.errors import (
    ElectionNotNeeded,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicException,
    NoReassignmentInProgress,
    RequestTimedOut,
    TopicDeletionDisabled,
    UnknownTopicOrPartition,
)
from ottla.log.files import MemoryDisk
from ottla.wire.messages.fetch import ListOffsetsRequest
from ottla.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from ottla.wire.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    DeleteRecordsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.wire.messages.transactions import DescribeProducersRequest, InitProducerIdRequest
from ottla.wire.primitives import ZERO_UUID
from support.batches import fixed_batch
from support.requests import produce_request

BAD_NAME = (
    "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
)
OFFLINE_ID = b"\x07" * 16


def new_topics(*topics: dict[str, Any], **fields: Any) -> CreateTopicsRequest:
    config = CreateTopicsRequest.CreatableTopicConfig
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic["name"],
                num_partitions=topic.get("partitions", 1),
                replication_factor=topic.get("factor", 1),
                configs=[config(name=name, value=value) for name, value in topic.get("configs", {}).items()],
            )
            for topic in topics
        ],
        **fields,
    )


def doomed(*topics: tuple[str | None, bytes], timeout_ms: int = 1000) -> DeleteTopicsRequest:
    state = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(
        topics=[state(name=name, topic_id=topic_id) for name, topic_id in topics], timeout_ms=timeout_ms
    )


async def topic_id(client: Any, name: str) -> bytes:
    wanted = MetadataRequest.MetadataRequestTopic(name=name)
    response = await client.call(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12)
    found: bytes = response.topics[0].topic_id
    return found


@pytest.mark.parametrize("version", range(8))
def test_created_topics_are_described_as_they_are(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker(settings={"num.partitions": 3}) as running:
            client = await running.connect()
            wanted = {"name": "t", "partitions": -1, "configs": {"retention.ms": "1000", "cleanup.policy": "compact"}}
            [topic] = (await client.call(new_topics(wanted), version)).topics
            assert (topic.name, topic.error_code) == ("t", 0)
            assert topic.error_message is None or version == 0
            if version >= 5:
                assert (topic.num_partitions, topic.replication_factor) == (3, 1)
                by_name = {config.name: config for config in topic.configs}
                assert list(by_name) == sorted(by_name)
                assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("1000", 1)
                assert (by_name["segment.bytes"].value, by_name["segment.bytes"].config_source) == ("1073741824", 5)
                # A formatted cluster sets it for all brokers.
                assert (by_name["min.insync.replicas"].value, by_name["min.insync.replicas"].config_source) == ("1", 3)
                assert not any(config.read_only or config.is_sensitive for config in topic.configs)
            assert (topic.topic_id != ZERO_UUID) == (version >= 7)

    run(main())


def test_duplicates_and_the_metadata_topic_come_last(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            names = ["__cluster_metadata", "dup", "fine", "dup", "a b"]
            response = await client.call(new_topics(*({"name": name} for name in names)), 7)
            assert [(topic.name, topic.error_code, topic.error_message) for topic in response.topics] == [
                ("fine", 0, None),
                ("a b", InvalidTopicException.code, BAD_NAME),
                ("dup", InvalidRequest.code, "Duplicate topic name."),
                (
                    "__cluster_metadata",
                    InvalidRequest.code,
                    "Creation of internal topic __cluster_metadata is prohibited.",
                ),
            ]

    run(main())


def test_validated_topics_are_answered_but_not_created(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            [topic] = (await client.call(new_topics({"name": "t"}, validate_only=True), 7)).topics
            assert topic.error_code == 0
            assert topic.topic_id != ZERO_UUID
            assert await topic_id(client, "t") == ZERO_UUID

    run(main())


def test_a_timeout_of_zero_is_too_short(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            [topic] = (await client.call(new_topics({"name": "new"}, timeout_ms=0), 7)).topics
            assert (topic.error_code, topic.error_message) == (RequestTimedOut.code, None)
            [deleted] = (await client.call(doomed(("t", ZERO_UUID), timeout_ms=-1), 6)).responses
            assert (deleted.error_code, deleted.error_message) == (RequestTimedOut.code, None)
            [grown] = (await client.call(more(("t", 2, None), timeout_ms=0), 3)).results
            assert (grown.error_code, grown.error_message) == (RequestTimedOut.code, None)
            elected = await client.call(elections(("t", [0]), timeout_ms=0), 2)
            assert (
                elected.error_code
                == elected.replica_election_results[0].partition_result[0].error_code
                == RequestTimedOut.code
            )
            moved = await client.call(moves(("t", 0, [1]), timeout_ms=0), 1)
            assert moved.error_code == moved.responses[0].partitions[0].error_code == RequestTimedOut.code
            assert len(running.broker.metadata.topics["t"].partitions) == 1

    run(main())


@pytest.mark.parametrize("version", range(7))
def test_topics_are_deleted_by_name(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            names = ["t", "none", "twice", "twice"]
            if version >= 6:
                request = doomed(*((name, ZERO_UUID) for name in names))
            else:
                request = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
            responses = {response.name: response for response in (await client.call(request, version)).responses}
            assert {name: response.error_code for name, response in responses.items()} == {
                "t": 0,
                "none": UnknownTopicOrPartition.code,
                "twice": InvalidRequest.code,
            }
            if version >= 5:
                assert responses["none"].error_message == "This server does not host this topic-partition."
                assert responses["twice"].error_message == "Duplicate topic name."
                assert responses["t"].error_message is None
            assert await topic_id(client, "t") == ZERO_UUID

    run(main())


def test_topics_are_deleted_by_id(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            for name in ("t", "both", "mixed"):
                await client.create_topic(name)
            own = {name: await topic_id(client, name) for name in ("t", "both", "mixed")}
            response = await client.call(
                doomed(
                    (None, own["t"]),
                    ("both", own["both"]),
                    ("mixed", ZERO_UUID),
                    (None, own["mixed"]),
                    (None, OFFLINE_ID),
                    (None, b"\x08" * 16),
                    (None, b"\x08" * 16),
                    (None, ZERO_UUID),
                ),
                6,
            )
            found = {(r.name, r.topic_id): (r.error_code, r.error_message) for r in response.responses}
            assert found == {
                ("t", own["t"]): (0, None),
                ("both", own["both"]): (42, "You may not specify both topic name and topic id."),
                ("mixed", own["mixed"]): (42, "The provided topic name maps to an ID that was already supplied."),
                (None, OFFLINE_ID): (100, "This server does not host this topic ID."),
                (None, b"\x08" * 16): (42, "Duplicate topic id."),
                (None, ZERO_UUID): (42, "Neither topic name nor id were specified."),
            }
            assert list(running.broker.metadata.topics) == ["both", "mixed"]

    run(main())


def test_deletion_can_be_switched_off(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings={"delete.topic.enable": "false"}) as running:
            client = await running.connect()
            await client.create_topic("t")
            request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
            assert (await client.call(request, 2)).responses[0].error_code == InvalidRequest.code
            assert (await client.call(request, 5)).responses[0].error_code == TopicDeletionDisabled.code

    run(main())


def more(*topics: tuple[str, int, list[list[int]] | None], timeout_ms: int = 1000, **fields: Any) -> Any:
    chosen = CreatePartitionsRequest.CreatePartitionsAssignment
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsRequest.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None if replicas is None else [chosen(broker_ids=ids) for ids in replicas],
            )
            for name, count, replicas in topics
        ],
        timeout_ms=timeout_ms,
        **fields,
    )


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_take_records_at_once(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            response = await client.call(more(("t", 3, None)), version)
            assert [(r.name, r.error_code, r.error_message) for r in response.results] == [("t", 0, None)]
            assert (await client.produce("t", b"x", partition=2)).error_code == 0

    run(main())


def test_partitions_that_cannot_be_made_are_refused(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t", partitions=3)
            await client.create_topic("u")
            request = more(("t", 2, None), ("none", 2, None), ("u", 2, None), ("u", 3, None))
            response = await client.call(request, 3)
            assert [(r.name, r.error_code, r.error_message) for r in response.results] == [
                ("u", InvalidRequest.code, "Duplicate topic name."),
                ("t", InvalidPartitions.code, "The topic t currently has 3 partition(s); 2 would not be an increase."),
                ("none", UnknownTopicOrPartition.code, None),
            ]

    run(main())


def trim(*wanted: tuple[str, int, int]) -> DeleteRecordsRequest:
    topic, partition = DeleteRecordsRequest.DeleteRecordsTopic, DeleteRecordsRequest.DeleteRecordsPartition
    return DeleteRecordsRequest(
        topics=[
            topic(name=name, partitions=[partition(partition_index=index, offset=offset)])
            for name, index, offset in wanted
        ],
        timeout_ms=1000,
    )


async def trimmed(client: Any, name: str, index: int, offset: int, version: int = 2) -> tuple[int, int]:
    [topic] = (await client.call(trim((name, index, offset)), version)).topics
    return topic.partitions[0].low_watermark, topic.partitions[0].error_code


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_move_the_start_of_the_log(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            await client.produce("t", *[b"x"] * 10)
            assert await trimmed(client, "t", 0, 3, version) == (3, 0)
            assert await trimmed(client, "t", 0, 2, version) == (3, 0), "the start never moves back"
            assert await trimmed(client, "t", 0, 11, version) == (-1, 1)
            assert await trimmed(client, "t", 0, -2, version) == (-1, 1)
            assert await trimmed(client, "t", 0, -1, version) == (10, 0)
            wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)
            listing = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])])
            assert (await client.call(listing, 5)).topics[0].partitions[0].offset == 10

    run(main())


def test_records_of_compacted_and_internal_topics_cannot_be_deleted(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("compacted", cleanup_policy="compact")
            await client.create_topic("both", cleanup_policy="compact,delete")
            await client.create_topic("neither", cleanup_policy="")
            await client.call(FindCoordinatorRequest(key="g"), 3)
            assert await trimmed(client, "compacted", 0, 0) == (-1, 44)
            assert await trimmed(client, "both", 0, 0) == (0, 0)
            assert await trimmed(client, "neither", 0, 0) == (0, 0)
            assert await trimmed(client, "__consumer_offsets", 0, 0) == (-1, 17)
            assert await trimmed(client, "none", 0, 0) == (-1, 3)
            assert await trimmed(client, "both", 7, 0) == (-1, 3)

    run(main())


def test_the_start_of_a_log_survives_a_restart(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk) as running:
            client = await running.connect()
            await client.create_topic("t")
            await client.produce("t", *[b"x"] * 10)
            assert await trimmed(client, "t", 0, 4) == (4, 0)
        async with run_broker(disk=disk) as running:
            assert await trimmed(await running.connect(), "t", 0, 0) == (4, 0)

    run(main())


def test_producers_are_described(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t", partitions=2)
            made = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
            records = fixed_batch(b"a", b"b", producer_id=made.producer_id, producer_epoch=0, base_sequence=0)
            await client.call(produce_request("t", records), 9)
            topic = DescribeProducersRequest.TopicRequest
            response = await client.call(
                DescribeProducersRequest(
                    topics=[
                        topic(name="t", partition_indexes=[0, 1, 9]),
                        topic(name="none", partition_indexes=[0]),
                        topic(name="a b", partition_indexes=[0]),
                    ]
                ),
                0,
            )
            known, unknown, bad = response.topics
            [producer] = known.partitions[0].active_producers
            assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (made.producer_id, 0, 1)
            assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
            assert known.partitions[1].active_producers == []
            assert (known.partitions[2].error_code, known.partitions[2].error_message) == (
                UnknownTopicOrPartition.code,
                None,
            )
            assert unknown.partitions[0].error_message == "This server does not host this topic-partition."
            assert (bad.partitions[0].error_code, bad.partitions[0].error_message) == (
                InvalidTopicException.code,
                BAD_NAME,
            )

    run(main())


def elections(*wanted: tuple[str, list[int]], kind: int = 0, timeout_ms: int = 1000) -> ElectLeadersRequest:
    topic = ElectLeadersRequest.TopicPartitions
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[topic(topic=name, partitions=indexes) for name, indexes in wanted] or None,
        timeout_ms=timeout_ms,
    )


@pytest.mark.parametrize("version", range(3))
def test_an_election_that_is_not_needed_is_reported(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            response = await client.call(elections(("t", [0, 7]), ("none", [0])), version)
            assert [
                (topic.topic, result.partition_id, result.error_code, result.error_message)
                for topic in response.replica_election_results
                for result in topic.partition_result
            ] == [
                ("t", 0, ElectionNotNeeded.code, "Leader election not needed for topic partition."),
                ("t", 7, UnknownTopicOrPartition.code, "No such partition as t-7"),
                ("none", 0, UnknownTopicOrPartition.code, "No such topic as none"),
            ]
            everywhere = await client.call(elections(), version)
            assert [(t.topic, t.partition_result) for t in everywhere.replica_election_results] == [("t", [])]

    run(main())


def test_an_election_of_an_unknown_kind_is_refused(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            response = await client.call(elections(("t", [0]), kind=5), 2)
            [result] = response.replica_election_results[0].partition_result
            assert response.error_code == result.error_code == InvalidRequest.code
            assert result.error_message == "Unknown election type 5"

    run(main())


def moves(*wanted: tuple[str, int, list[int] | None], timeout_ms: int = 1000) -> AlterPartitionReassignmentsRequest:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition
    return AlterPartitionReassignmentsRequest(
        topics=[
            topic(name=name, partitions=[partition(partition_index=index, replicas=replicas)])
            for name, index, replicas in wanted
        ],
        timeout_ms=timeout_ms,
    )


@pytest.mark.parametrize("version", range(2))
def test_replicas_stay_where_they_are(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            own = running.broker.node_id
            request = moves(("t", 0, [own]), ("t", 0, None), ("t", 0, [99]), ("t", 7, [own]), ("none", 0, [own]))
            response = await client.call(request, version)
            assert (response.error_code, response.error_message) == (0, None)
            assert [(p.error_code, p.error_message) for topic in response.responses for p in topic.partitions] == [
                (0, None),
                (NoReassignmentInProgress.code, None),
                (
                    InvalidReplicaAssignment.code,
                    "The manual partition assignment includes broker 99, but no such broker is registered.",
                ),
                (UnknownTopicOrPartition.code, "Unable to find partition t:7."),
                (UnknownTopicOrPartition.code, "Unable to find a topic named none."),
            ]
            listed = await client.call(ListPartitionReassignmentsRequest(topics=None), 0)
            assert (listed.error_code, listed.error_message, listed.topics) == (0, None, [])
            empty = await client.call(AlterPartitionReassignmentsRequest(), version)
            assert empty.error_message == ""

    run(main())


def test_metadata_answers_each_topic_once(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            await client.create_topic("a.b")
            own = await topic_id(client, "t")
            wanted = MetadataRequest.MetadataRequestTopic

            async def ask(*topics: Any, version: int = 12) -> list[tuple[int, str | None, bytes]]:
                response = await client.call(MetadataRequest(topics=list(topics)), version)
                return [(topic.error_code, topic.name, topic.topic_id) for topic in response.topics]

            assert await ask(wanted(name="t"), wanted(name=None, topic_id=own)) == [(0, "t", own)]
            assert await ask(wanted(name=None, topic_id=OFFLINE_ID)) == [(100, None, OFFLINE_ID)]
            assert await ask(wanted(name="t", topic_id=own), version=10) == [(42, "t", own)]
            assert await ask(wanted(name=None), version=11) == [(42, "", ZERO_UUID)]
            assert await ask(wanted(name=None)) == [(-1, "", ZERO_UUID)]
            # Neither the metadata log nor a name that collides is created on demand.
            assert await ask(wanted(name="__cluster_metadata")) == [(3, "__cluster_metadata", ZERO_UUID)]
            assert await ask(wanted(name="a_b")) == [(3, "a_b", ZERO_UUID)]

    run(main())


def pages(names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    request = DescribeTopicPartitionsRequest
    return request(
        topics=[request.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def test_partitions_are_described_page_by_page(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("a", partitions=3)
            await client.create_topic("b", partitions=2)
            cursor: tuple[str, int] | None = None
            seen: list[tuple[str, int]] = []
            for _ in range(4):
                response = await client.call(pages([], 2, cursor), 0)
                seen += [(topic.name, p.partition_index) for topic in response.topics for p in topic.partitions]
                if response.next_cursor is None:
                    break
                cursor = response.next_cursor.topic_name, response.next_cursor.partition_index
            assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
            [unknown] = (await client.call(pages(["none"], 9), 0)).topics
            assert (unknown.error_code, unknown.topic_authorized_operations) == (UnknownTopicOrPartition.code, 3576)
            for bad in (("a", -1), ("z", 0)):
                refused = (await client.call(pages(["a", "b"], 9, bad), 0)).topics
                assert [topic.error_code for topic in refused] == [InvalidRequest.code, InvalidRequest.code]

    run(main())


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            response = await client.call(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), version)
            found = response.coordinators[0] if version >= 4 else response
            assert (found.error_code, found.node_id) == (0, running.broker.node_id)
            # Kafka's own words: nothing, NONE and an empty text.
            assert found.error_message == ("NONE" if 1 <= version <= 3 else "")

    run(main())


@pytest.mark.parametrize(
    ("key", "is_good"),
    [
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", True),
        ("a:b:AAAAAAAAAAAAAAAAAAAAAQ:0", True),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:-1", True),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:x", False),
        (":AAAAAAAAAAAAAAAAAAAAAQ:0", False),
        ("g:a:0", False),
        ("g", False),
    ],
)
def test_the_key_of_a_share_partition_has_three_parts(run: Any, run_broker: Any, key: str, is_good: bool) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            request = FindCoordinatorRequest(key_type=CoordinatorType.SHARE, coordinator_keys=[key])
            [found] = (await client.call(request, 6)).coordinators
            assert (found.error_code, found.error_message) == (0 if is_good else InvalidRequest.code, "")

    run(main())
