"""What a coordinator answers while it loads its state; the same tests run on Apache Kafka with `--cluster kafka`.

The internal topics get enough records that a load takes a while. An answer counts only if the coordinator was loading
before and after it. Otherwise the coordinator is moved again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.enums import CoordinatorType, ElectionType
from ottla.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from ottla.metadata.topics import java_hash
from ottla.records.batch import Record, build_batch
from ottla.wire import messages as m
from ottla.wire.stored import OffsetCommitKey, OffsetCommitValue, TransactionLogKey, TransactionLogValue
from ottla.wire.stored.coding import encode_versioned
from support.batches import now_ms
from support.interop.clusters import Clustered, KafkaCluster, OttlaCluster
from support.wire import Wire

Check = Callable[[object, object], None]
LOADING = CoordinatorLoadInProgress.code
GZIP = 1
BATCHES, RECORDS = 40, 10_000


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    """A separate cluster: in a shared one, every load would take this long for other tests too."""
    where = request.config.getoption("--cluster")
    if where is None:
        one: Clustered = OttlaCluster()
    else:
        one = KafkaCluster(tmp_path_factory.mktemp("kafka") if where == "kafka" else Path(where).resolve())
    yield one
    one.close()


class Coordinator:
    """A coordinator of one key that takes long to load. It can be moved from broker to broker."""

    def __init__(self, cluster: Clustered, kind: int, topic: str, key: str, record: tuple[bytes, bytes]) -> None:
        self._cluster = cluster
        self._topic = topic
        cluster.find(kind, key)
        self._partition = abs(java_hash(key)) % 4
        at = now_ms()
        records = build_batch([Record(number, at, *record) for number in range(RECORDS)], codec=GZIP)
        with Wire(cluster.addresses[self._view().leader], "__admin_client") as wire:
            for _ in range(BATCHES):
                assert wire.produce(topic, bytes(records), self._partition).error_code == NONE
        cluster.until(topic, self._partition, isr=self._view().isr)

    def _view(self) -> Any:
        return self._cluster.view(self._topic, self._partition)

    def move(self) -> int:
        """Let another replica lead, and return its broker, which has just started to load."""
        view = self._view()
        others = [broker for broker in view.replicas if broker != view.leader]
        assert self._cluster.reassign(self._topic, [*others, view.leader], self._partition) == (0, None)
        self._cluster.until(self._topic, self._partition, replicas=[*others, view.leader])
        assert self._cluster.elect(ElectionType.PREFERRED, self._topic, self._partition) == [(0, None)]
        return int(others[0])


def answers_while_loading(
    cluster: Clustered,
    coordinator: Coordinator,
    probe: Callable[[Wire], int],
    questions: dict[str, Callable[[Wire], Any]],
) -> dict[str, Any]:
    """The answer of a loading coordinator to each request; `probe` checks that it is loading."""
    found: dict[str, Any] = {}

    def ask_all() -> bool:
        with cluster.wire(coordinator.move()) as wire:
            cluster.wait(lambda: probe(wire) != NotCoordinator.code, "the new leader to know that it leads")
            for name, ask in questions.items():
                if name not in found and probe(wire) == LOADING:
                    answer = ask(wire)
                    if probe(wire) == LOADING:
                        found[name] = answer
        return len(found) == len(questions)

    cluster.wait(ask_all, lambda: f"a load that takes long enough for {questions.keys() - found.keys()}")
    return found


def test_groups(cluster: Clustered, unique: Callable[[str], str], check: Check) -> None:
    topic, group = cluster.create(unique("t"), [[1, 2, 3]]), unique("g")
    key = OffsetCommitKey(group=group, topic=topic, partition=0)
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=now_ms())
    record = b"\0\1" + key.encode(0), encode_versioned(value, 3)
    coordinator = Coordinator(cluster, CoordinatorType.GROUP, "__consumer_offsets", group, record)

    def fetch_offsets(wire: Wire) -> int:
        entry = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        wanted = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[entry])
        return int(wire.call(m.OffsetFetchRequest(groups=[wanted]), 8).groups[0].error_code)

    def commit(wire: Wire) -> int:
        part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        entry = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])
        request = m.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[entry])
        return int(wire.call(request, 8).topics[0].partitions[0].error_code)

    # An open transaction, because Kafka checks that first.
    transaction = unique("x")
    at = cluster.find(CoordinatorType.TRANSACTION, transaction).node_id
    begin = m.InitProducerIdRequest(transactional_id=transaction, transaction_timeout_ms=600_000)
    begun = cluster.wait(lambda: None if (made := cluster.ask(at, begin, 4)).error_code else made, "a producer id")
    add = m.AddOffsetsToTxnRequest(
        transactional_id=transaction, producer_id=begun.producer_id, producer_epoch=begun.producer_epoch, group_id=group
    )
    cluster.wait(lambda: cluster.ask(at, add, 3).error_code == NONE, "the offsets in the transaction")

    def commit_in_transaction(version: int) -> Callable[[Wire], int]:
        part = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        entry = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[part])
        request = m.TxnOffsetCommitRequest(
            transactional_id=transaction,
            group_id=group,
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            topics=[entry],
        )
        return lambda wire: int(wire.call(request, version).topics[0].partitions[0].error_code)

    def join(wire: Wire) -> tuple[int, int, str]:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = m.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="m",
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer = wire.call(request, 9)
        return answer.error_code, answer.generation_id, answer.member_id

    def sync(wire: Wire) -> int:
        request = m.SyncGroupRequest(
            group_id=group, generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
        )
        return int(wire.call(request, 5).error_code)

    def leave(wire: Wire) -> tuple[int, list[Any]]:
        member = m.LeaveGroupRequest.MemberIdentity(member_id="m")
        answer = wire.call(m.LeaveGroupRequest(group_id=group, members=[member]), 5)
        return answer.error_code, answer.members

    def heartbeat(wire: Wire) -> int:
        return int(wire.call(m.HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 4).error_code)

    def consumer_heartbeat(wire: Wire) -> int:
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="AAAAAAAAAAAAAAAAAAAAAQ",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        return int(wire.call(request, 1).error_code)

    def share_heartbeat(wire: Wire) -> int:
        request = m.ShareGroupHeartbeatRequest(
            group_id=group, member_id="AAAAAAAAAAAAAAAAAAAAAQ", member_epoch=0, subscribed_topic_names=[topic]
        )
        return int(wire.call(request, 1).error_code)

    def describe(wire: Wire) -> tuple[int, str]:
        one = wire.call(m.DescribeGroupsRequest(groups=[group]), 5).groups[0]
        return one.error_code, one.group_state

    def describe_consumers(wire: Wire) -> int:
        return int(wire.call(m.ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0].error_code)

    def list_groups(wire: Wire) -> tuple[int, int]:
        answer = wire.call(m.ListGroupsRequest(), 5)
        return answer.error_code, len(answer.groups)

    def delete(wire: Wire) -> int:
        return int(wire.call(m.DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code)

    def delete_offsets(wire: Wire) -> tuple[int, list[Any]]:
        part = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
        entry = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[part])
        answer = wire.call(m.OffsetDeleteRequest(group_id=group, topics=[entry]), 0)
        return answer.error_code, answer.topics

    def find(wire: Wire) -> int:
        request = m.FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=[group])
        return int(wire.call(request, 6).coordinators[0].error_code)

    found = answers_while_loading(
        cluster,
        coordinator,
        fetch_offsets,
        {
            "OffsetCommit": commit,
            "TxnOffsetCommit v1": commit_in_transaction(1),
            "TxnOffsetCommit v3": commit_in_transaction(3),
            "JoinGroup": join,
            "SyncGroup": sync,
            "LeaveGroup": leave,
            "Heartbeat": heartbeat,
            "ConsumerGroupHeartbeat": consumer_heartbeat,
            "ShareGroupHeartbeat": share_heartbeat,
            "DescribeGroups": describe,
            "ConsumerGroupDescribe": describe_consumers,
            "ListGroups": list_groups,
            "DeleteGroups": delete,
            "OffsetDelete": delete_offsets,
            "FindCoordinator": find,
        },
    )
    check(
        found,
        {
            "OffsetCommit": LOADING,
            "TxnOffsetCommit v1": CoordinatorNotAvailable.code,
            "TxnOffsetCommit v3": LOADING,
            "JoinGroup": (LOADING, -1, ""),
            "SyncGroup": LOADING,
            "LeaveGroup": (LOADING, []),
            "Heartbeat": NONE,
            "ConsumerGroupHeartbeat": LOADING,
            "ShareGroupHeartbeat": LOADING,
            "DescribeGroups": (LOADING, ""),
            "ConsumerGroupDescribe": LOADING,
            "ListGroups": (LOADING, 0),
            "DeleteGroups": LOADING,
            "OffsetDelete": (LOADING, []),
            "FindCoordinator": NONE,
        },
    )


def test_transactions(cluster: Clustered, unique: Callable[[str], str], check: Check) -> None:
    topic, name = cluster.create(unique("t"), [[1, 2, 3]]), unique("x")
    value = TransactionLogValue(
        producer_id=4_000_000,
        producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=0,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=now_ms(),
        transaction_start_timestamp_ms=-1,
    )
    record = b"\0\0" + TransactionLogKey(transactional_id=name).encode(0), encode_versioned(value, 1)
    coordinator = Coordinator(cluster, CoordinatorType.TRANSACTION, "__transaction_state", name, record)

    def end(wire: Wire) -> int:
        request = m.EndTxnRequest(transactional_id=name, producer_id=4_000_000, producer_epoch=0, committed=True)
        return int(wire.call(request, 3).error_code)

    def begin(wire: Wire) -> tuple[int, int, int]:
        answer = wire.call(m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def add(wire: Wire) -> int:
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=4_000_000,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        answer = wire.call(request, 3)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def add_offsets(wire: Wire) -> int:
        request = m.AddOffsetsToTxnRequest(transactional_id=name, producer_id=4_000_000, producer_epoch=0, group_id="g")
        return int(wire.call(request, 3).error_code)

    def describe(wire: Wire) -> tuple[int, str]:
        one = wire.call(m.DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]
        return one.error_code, one.transaction_state

    def listed(wire: Wire) -> tuple[int, list[Any]]:
        answer = wire.call(m.ListTransactionsRequest(), 0)
        return answer.error_code, answer.transaction_states

    def find(wire: Wire) -> int:
        request = m.FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=[name])
        return int(wire.call(request, 6).coordinators[0].error_code)

    found = answers_while_loading(
        cluster,
        coordinator,
        end,
        {
            "InitProducerId": begin,
            "AddPartitionsToTxn": add,
            "AddOffsetsToTxn": add_offsets,
            "DescribeTransactions": describe,
            "ListTransactions": listed,
            "FindCoordinator": find,
        },
    )
    check(
        found,
        {
            "InitProducerId": (LOADING, -1, -1),
            "AddPartitionsToTxn": LOADING,
            "AddOffsetsToTxn": LOADING,
            "DescribeTransactions": (LOADING, ""),
            "ListTransactions": (LOADING, []),
            "FindCoordinator": NONE,
        },
    )
