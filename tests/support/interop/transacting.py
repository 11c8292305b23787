"""Transactions over the raw wire, a step a call: for tests of error codes, and for looking at what clients did."""

import time
from typing import Any

from ottla.records.batch import CONTROL_ABORT
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
from support.batches import batch, batches_of
from support.wire import TIMEOUT_S, Wire

NOT_YET = (14, 15, 16, 51)  # a coordinator that loads, is made, or still writes the markers of the last transaction
TRANSACTION, GROUP = 1, 0


class Transacting:
    """One transactional id on one connection."""

    def __init__(self, wire: Wire, name: str, timeout_ms: int = 60_000) -> None:
        self.wire = wire
        self.name = name
        self.timeout_ms = timeout_ms
        self.producer_id, self.epoch = -1, -1

    # Requests as they are: every field can be wrong

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

    # Steps that must go well

    def start(self, **more: Any) -> "Transacting":
        """Find the coordinator, and get an identity."""
        find(self.wire, self.name, TRANSACTION)
        made = until(lambda: self.init(**more))
        assert made.error_code == 0, made
        self.producer_id, self.epoch = made.producer_id, made.producer_epoch
        return self

    def finish(self, commit: bool, version: int = 5) -> None:
        """End the transaction, and see its markers written, which Apache Kafka does after the answer."""
        ended = until(lambda: self.end(commit, version))
        assert ended.error_code == 0, ended
        if version >= 5:
            self.producer_id, self.epoch = ended.producer_id, ended.producer_epoch
        self.settle()

    def settle(self) -> str:
        """The state once no marker is missing any more."""
        deadline = time.monotonic() + TIMEOUT_S
        while (state := self.describe().transaction_state).startswith("Prepare"):
            assert time.monotonic() < deadline, state
            time.sleep(0.01)
        return str(state)

    def describe(self) -> Any:
        return describe(self.wire, self.name)


def find(wire: Wire, key: str, kind: int) -> None:
    """Returns when the coordinator is there."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    deadline = time.monotonic() + TIMEOUT_S
    while (found := wire.call(request, 4).coordinators[0]).error_code:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def find_group(wire: Wire, name: str) -> str:
    """Returns when the group's coordinator serves it, which on Apache Kafka is after it was found."""
    find(wire, name, GROUP)
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
    until(lambda: wire.call(OffsetFetchRequest(groups=[asked], require_stable=False), 9).groups[0])
    return name


def until(ask: Any) -> Any:
    """Ask again while a coordinator is busy."""
    deadline = time.monotonic() + TIMEOUT_S
    while (answer := ask()).error_code in NOT_YET:
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer


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
    """Write markers by hand; the error codes in the order of the partitions."""
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
    """Values as a reader of committed records sees them, aborted ones left out by the broker's list of them."""
    values: list[bytes] = []
    offset = 0
    while True:
        answer = wire.fetch(topic, offset, partition, isolation_level=1)
        assert answer.error_code == 0, answer
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ())
        dropping: set[int] = set()
        before = offset
        for one in batches_of(answer):
            while aborted and aborted[0][0] <= one.last_offset:
                dropping.add(aborted.pop(0)[1])
            if one.is_control:
                if one.control_type() == CONTROL_ABORT:
                    dropping.discard(one.producer_id)
            elif not (one.is_transactional and one.producer_id in dropping):
                values += [bytes(record.value or b"") for record in one.records()]
            offset = one.next_offset
        if offset == before:
            return values


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
