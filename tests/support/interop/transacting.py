"""Transactions over the raw wire, one step per call: for tests of error codes, and to inspect what clients did."""

from typing import Any

from ottla.enums import CoordinatorType, IsolationLevel
from ottla.errors import ConcurrentTransactions
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from support.batches import batch
from support.crashing.reading import read_all
from support.waiting import NO_COORDINATOR_YET, ask_until_ready, wait_for
from support.wire import Wire

NOT_YET = (*NO_COORDINATOR_YET, ConcurrentTransactions.code)
"""Errors of a coordinator that is being created or loaded, or still writes the markers of the last transaction."""


class Transacting:
    """One transactional id on one connection."""

    def __init__(self, wire: Wire, name: str, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.name = name
        self.timeout_ms = timeout_ms
        self.producer_id, self.epoch = -1, -1

    # Raw requests: every field can be wrong

    def init(self, producer_id: int = -1, epoch: int = -1, version: int = 5, **more: Any) -> Any:
        fields = {"transactional_id": self.name, "transaction_timeout_ms": self.timeout_ms, **more}
        request = InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch, **fields)
        return self.wire.call(request, version)

    def add(self, *topics: tuple[str, list[int]], version: int = 3, **more: Any) -> dict[tuple[str, int], int]:
        entries = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=n, partitions=p) for n, p in topics]
        fields = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch, **more}
        if version < 4:
            request = AddPartitionsToTxnRequest(
                **{f"v3_and_below_{name}": value for name, value in fields.items()}, v3_and_below_topics=entries
            )
            found = self.wire.call(request, version).results_by_topic_v3_and_below
        else:
            one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(topics=entries, **fields)
            answer = self.wire.call(AddPartitionsToTxnRequest(transactions=[one]), version)
            assert answer.error_code == 0, answer
            found = answer.results_by_transaction[0].topic_results
        return {
            (topic.name, entry.partition_index): entry.partition_error_code
            for topic in found
            for entry in topic.results_by_partition
        }

    def produce(self, topic: str, *values: bytes, partition: int = 0, sequence: int = 0, **more: Any) -> Any:
        options = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "transactional": True,
            **{name: more.pop(name) for name in ("producer_id", "producer_epoch", "transactional") if name in more},
        }
        records = batch(*values, base_sequence=sequence, **options)
        return self.wire.produce(topic, records, partition, **{"transactional_id": self.name, "version": 12, **more})

    def end(self, commit: bool, version: int = 5, **more: Any) -> Any:
        fields = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch, **more}
        return self.wire.call(EndTxnRequest(committed=commit, **fields), version)

    def add_offsets(self, group: str, version: int = 4, **more: Any) -> int:
        fields = {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch, **more}
        code: int = self.wire.call(AddOffsetsToTxnRequest(group_id=group, **fields), version).error_code
        return code

    def commit_offsets(
        self, group: str, topic: str, offsets: dict[int, int], version: int = 5, **more: Any
    ) -> dict[int, int]:
        fields = {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "generation_id": -1,
            "member_id": "",
            **more,
        }
        partitions = [
            TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
            for index, offset in offsets.items()
        ]
        entry = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
        answer = self.wire.call(TxnOffsetCommitRequest(group_id=group, topics=[entry], **fields), version)
        return {entry.partition_index: entry.error_code for topic in answer.topics for entry in topic.partitions}

    # Steps that must succeed

    def start(self, **more: Any) -> "Transacting":
        """Find the coordinator, and get a producer id and epoch."""
        find(self.wire, self.name, CoordinatorType.TRANSACTION)
        made = ask_until_ready(lambda: self.init(**more), NOT_YET)
        assert made.error_code == 0, made
        self.producer_id, self.epoch = made.producer_id, made.producer_epoch
        return self

    def finish(self, commit: bool, version: int = 5) -> None:
        """End the transaction, and wait for its markers, which Apache Kafka writes after the answer."""
        ended = ask_until_ready(lambda: self.end(commit, version), NOT_YET)
        assert ended.error_code == 0, ended
        if version >= 5:
            self.producer_id, self.epoch = ended.producer_id, ended.producer_epoch
        self.settle()

    def settle(self) -> str:
        """The state as soon as all markers are written."""

        def ended() -> str | None:
            state: str = self.describe().transaction_state
            return None if state.startswith("Prepare") else state

        return wait_for(ended, "the markers") or ""

    def describe(self) -> Any:
        return describe(self.wire, self.name)


def find(wire: Wire, key: str, kind: int) -> None:
    """Returns when the coordinator is available."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    wait_for(lambda: wire.call(request, 4).coordinators[0].error_code == 0, f"a coordinator of {key}")


def find_group(wire: Wire, name: str) -> str:
    """Returns when the group's coordinator serves it. On Apache Kafka this is later than when it is found."""
    find(wire, name, CoordinatorType.GROUP)
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
    ask_until_ready(lambda: wire.call(OffsetFetchRequest(groups=[asked], require_stable=False), 9).groups[0])
    return name


def describe(wire: Wire, name: str) -> Any:
    return wire.call(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]


def list_transactions(wire: Wire, version: int = 2, **filters: Any) -> Any:
    return wire.call(ListTransactionsRequest(**filters), version)


def producers(wire: Wire, topic: str, partition: int = 0) -> dict[int, Any]:
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])]
    )
    found = wire.call(request, 0).topics[0].partitions[0]
    assert found.error_code == 0, found
    return {producer.producer_id: producer for producer in found.active_producers}


def mark(wire: Wire, producer: tuple[int, int], commit: bool, topic: str, *partitions: int, **more: Any) -> list[int]:
    """Write markers directly. Returns the error codes in the order of the partitions."""
    version = more.pop("version", 1)
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=commit,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        **{"coordinator_epoch": 0, **more},
    )
    answer = wire.call(WriteTxnMarkersRequest(markers=[marker]), version).markers
    codes = {one.partition_index: one.error_code for entry in answer for t in entry.topics for one in t.partitions}
    return [codes[partition] for partition in partitions]


def committed_offset(wire: Wire, group: str, topic: str, partition: int = 0, stable: bool = True) -> tuple[int, int]:
    """(error, offset)"""
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group,
        topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
    )
    found = wire.call(OffsetFetchRequest(groups=[asked], require_stable=stable), 9).groups[0]
    assert found.error_code == 0, found
    entry = found.topics[0].partitions[0]
    return entry.error_code, entry.committed_offset


def read_committed(wire: Wire, topic: str, partition: int = 0) -> list[bytes]:
    """The values that a consumer of committed records passes to its application."""
    return [value for _, value in read_all(wire, (topic, partition), IsolationLevel.READ_COMMITTED)]


def produce_to(wire: Wire, name: str | None, topic: str, entries: list[tuple[int, Any]], version: int = 12) -> Any:
    """One request for several partitions: {partition: answer}."""
    data = [ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in entries]
    request = ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data)],
    )
    return {one.index: one for one in wire.call(request, version).responses[0].partition_responses}
