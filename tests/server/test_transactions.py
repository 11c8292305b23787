"""Transactions through a whole broker: what readers of committed records see after interleaving, crashes and
restarts."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.answers import Reply
from ottla.clock import ManualClock
from ottla.config import Config
from ottla.enums import ControlRecordType
from ottla.errors import ConcurrentTransactions, KafkaError, UnstableOffsetCommit
from ottla.log.files import MemoryDisk, MemoryFile
from ottla.metadata.controller import NewTopic
from ottla.metadata.topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.records.batch import Record, batches, build_batch
from ottla.server.api import RequestContext
from ottla.server.broker import Broker
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

TOPIC, PARTITIONS = "t", 2
GROUP = "g"
START_MS = 1_700_000_000_000


class Stopped(BaseException):
    """The process has ended; no code in the broker may catch this."""


class StoppingFile(MemoryFile):
    __slots__ = ("disk",)

    def __init__(self, disk: "StoppingDisk", path: str) -> None:
        super().__init__(path, START_MS)
        self.disk = disk

    def append(self, buffers: Any) -> int:
        part = self.disk.next_write(sum(len(buffer) for buffer in buffers))
        if part is None:
            return super().append(buffers)
        super().append([b"".join(buffers)[:part]])
        raise Stopped


class StoppingDisk(MemoryDisk):
    """A disk on which the process ends in the middle of a write, with a part written."""

    def __init__(self) -> None:
        super().__init__(ManualClock(START_MS))
        self.writes = 0
        self.stop_at: int | None = None
        self.share_written = 0.0

    def next_write(self, size: int) -> int | None:
        self.writes += 1
        return int(size * self.share_written) if self.writes == self.stop_at else None

    def open(self, path: str, *, size: int | None = None) -> MemoryFile:
        if path not in self._files:
            super().open(path)
            self._files[path] = StoppingFile(self, path)
        return self._files[path]

    def after_the_end(self) -> "StoppingDisk":
        """What the next process finds."""
        found = StoppingDisk()
        for folder in self._folders:
            found.mkdir(folder)
        for path, file in self._files.items():
            found.open(path).append([file.pread(file.size, 0)])
        return found


class Caller:
    """Calls the broker's handlers as a connection would, without one."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def call(self, request: Any, version: int) -> Any:
        api = self.broker.registry.apis[request.API_KEY]
        decoded = api.request.decode(memoryview(bytearray(request.encode(version))), version)
        connection: Any = SimpleNamespace(
            services=self.broker.services, client_host="/127.0.0.1", principal="User:ANONYMOUS"
        )
        ctx = RequestContext(connection, request.API_KEY, version, 1, "c", 0)
        try:
            answer = api.handler(ctx, decoded)
        except KafkaError as error:
            answer = api.on_error(ctx, decoded, error)
        assert not isinstance(answer, Reply), "one replica has nothing to wait for"
        return answer

    def init(self, name: str, version: int = 5) -> tuple[int, int]:
        for _ in range(2):  # the first call may have to abort an open transaction
            made = self.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), version)
            if made.error_code != ConcurrentTransactions.code:
                break
        assert made.error_code == 0, made
        return made.producer_id, made.producer_epoch

    def send(
        self, name: str | None, producer: tuple[int, int], sequence: int, partition: int, value: bytes, version: int
    ) -> int:
        records = build_batch(
            [Record(0, START_MS, None, value)], 0, 0, *producer, sequence, transactional=name is not None
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topic_data=[topic])
        code: int = self.call(request, version).responses[0].partition_responses[0].error_code
        return code

    def end(self, name: str, producer: tuple[int, int], commit: bool, version: int) -> tuple[int, tuple[int, int]]:
        answer = self.call(
            EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit),
            version,
        )
        return answer.error_code, (answer.producer_id, answer.producer_epoch) if version >= 5 else producer

    def add(self, name: str, producer: tuple[int, int], partition: int) -> int:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])
        answer = self.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[topic],
            ),
            3,
        )
        code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return code

    def commit_offset(self, name: str, producer: tuple[int, int], offset: int, version: int = 5) -> int:
        if version < 5:
            added = self.call(
                AddOffsetsToTxnRequest(
                    transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=GROUP
                ),
                3,
            )
            if added.error_code:
                return int(added.error_code)
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        answer = self.call(
            TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=GROUP,
                producer_id=producer[0],
                producer_epoch=producer[1],
                generation_id=-1,
                member_id="",
                topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            ),
            version,
        )
        code: int = answer.topics[0].partitions[0].error_code
        return code

    def offset(self, stable: bool = False) -> tuple[int, int]:
        """(error, committed offset) of the group."""
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=GROUP,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])],
        )
        answer = self.call(OffsetFetchRequest(groups=[group], require_stable=stable), 9).groups[0]
        found = answer.topics[0].partitions[0]
        return found.error_code, found.committed_offset

    def committed(self, partition: int, max_bytes: int = 1 << 20) -> list[bytes]:
        """What a reader of committed records gets. It skips aborted records by the list in the answer."""
        log = self.broker.replicas.leader(TOPIC, partition)
        offset, values = log.log_start_offset, []
        while True:
            found = log.read(offset, max_bytes, committed_only=True, at_least_one=True)
            data = found.records if isinstance(found.records, bytes) else bytes(found.records.read())
            aborted = sorted((entry.first_offset, entry.producer_id) for entry in found.aborted)
            dropping: set[int] = set()
            before = offset
            for batch in batches(data):
                while aborted and aborted[0][0] <= batch.last_offset:
                    dropping.add(aborted.pop(0)[1])
                if batch.is_control:
                    if batch.control_type() == ControlRecordType.ABORT:
                        dropping.discard(batch.producer_id)
                elif batch.producer_id not in dropping or not batch.is_transactional:
                    values += [bytes(record.value or b"") for record in batch.records() if record.offset >= offset]
                offset = batch.next_offset
            if offset == before:
                return values

    def is_settled(self, partition: int) -> bool:
        log = self.broker.replicas.leader(TOPIC, partition)
        return log.last_stable_offset == log.high_watermark


async def started(disk: MemoryDisk) -> Caller:
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    broker = Broker(Config.load(overrides=overrides, preset="dev"), disk=disk, clock=ManualClock(START_MS))
    await broker.start()
    if TOPIC not in broker.metadata.topics:
        broker.controller.create_topics([NewTopic(TOPIC, PARTITIONS)])
        broker.controller.create_internal_topic(GROUP_METADATA_TOPIC)
        broker.controller.create_internal_topic(TRANSACTION_STATE_TOPIC)
    return Caller(broker)


def abandon(caller: Caller) -> None:
    """The process has ended: nothing more is written."""
    caller.broker.kill()


# -- interleaved transactions against a model


class Producer:
    """A producer, the records of its open transaction, and what it may do next."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.identity = (-1, -1)
        self.sequences = [0] * PARTITIONS
        self.added: set[int] = set()
        self.open: list[list[Any]] = []
        self.offset: int | None = None

    @property
    def bumps(self) -> bool:
        return self.version >= 12


class Model:
    """A log is a list of [value, state]: o(pen), c(ommitted) or a(borted)."""

    def __init__(self, caller: Caller, producers: list[Producer]) -> None:
        self.caller = caller
        self.producers = producers
        self.logs: list[list[list[Any]]] = [[] for _ in range(PARTITIONS)]
        self.offset = -1
        self.count = 0

    def start(self, producer: Producer) -> None:
        """A new incarnation of the producer: its open transaction is aborted."""
        producer.identity = self.caller.init(producer.name)
        self._ended(producer, "a")
        producer.sequences = [0] * PARTITIONS

    def send(self, producer: Producer, partition: int) -> None:
        self.count += 1
        value = f"{producer.name}-{self.count}".encode()
        if not producer.bumps and partition not in producer.added:
            assert self.caller.add(producer.name, producer.identity, partition) == 0
            producer.added.add(partition)
        code = self.caller.send(
            producer.name, producer.identity, producer.sequences[partition], partition, value, producer.version
        )
        assert code == 0
        producer.sequences[partition] += 1
        entry = [value, "o"]
        producer.open.append(entry)
        self.logs[partition].append(entry)

    def send_offset(self, producer: Producer) -> None:
        self.count += 1
        version = 5 if producer.bumps else 3
        assert self.caller.commit_offset(producer.name, producer.identity, self.count, version) == 0
        producer.offset = self.count

    def end(self, producer: Producer, commit: bool) -> None:
        if not producer.open and producer.offset is None:
            return
        code, identity = self.caller.end(producer.name, producer.identity, commit, 5 if producer.bumps else 3)
        assert code == 0
        if commit and producer.offset is not None:
            self.offset = producer.offset
        self._ended(producer, "c" if commit else "a")
        if identity != producer.identity:
            producer.identity = identity
            producer.sequences = [0] * PARTITIONS

    def plain(self, partition: int) -> None:
        self.count += 1
        value = f"plain-{self.count}".encode()
        assert self.caller.send(None, (-1, -1), -1, partition, value, 12) == 0
        self.logs[partition].append([value, "c"])

    def _ended(self, producer: Producer, state: str) -> None:
        for entry in producer.open:
            entry[1] = state
        producer.open = []
        producer.added = set()
        producer.offset = None

    def check(self, max_bytes: int) -> None:
        for partition, log in enumerate(self.logs):
            stable: list[bytes] = []
            for value, state in log:
                if state == "o":
                    break
                if state == "c":
                    stable.append(value)
            assert self.caller.committed(partition, max_bytes) == stable
        pending = any(producer.offset is not None for producer in self.producers)
        assert self.caller.offset() == (0, self.offset)
        if pending:
            assert self.caller.offset(stable=True) == (UnstableOffsetCommit.code, -1)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "offset", "commit", "abort", "init", "plain", "restart", "crash"]),
        st.integers(0, 2),
        st.integers(0, PARTITIONS - 1),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([1, 150, 400, 1 << 20]))
def test_readers_see_exactly_what_was_committed(steps: list[tuple[str, int, int]], max_bytes: int) -> None:
    async def life() -> None:
        disk = StoppingDisk()
        producers = [Producer("a", 12), Producer("b", 11), Producer("c", 12)]
        model = Model(await started(disk), producers)
        for producer in producers:
            model.start(producer)
        for kind, who, partition in steps:
            producer = producers[who]
            if kind == "send":
                model.send(producer, partition)
            elif kind == "offset" and not any(p.offset is not None for p in producers):
                model.send_offset(producer)
            elif kind in ("commit", "abort"):
                model.end(producer, kind == "commit")
            elif kind == "init":
                model.start(producer)
            elif kind == "plain":
                model.plain(partition)
            elif kind in ("restart", "crash"):
                if kind == "restart":
                    await model.caller.broker.stop()
                else:
                    abandon(model.caller)
                disk = disk.after_the_end()
                model.caller = await started(disk)
            model.check(max_bytes)
        await model.caller.broker.stop()

    asyncio.run(life())


# -- a stop at any write


def scenario(caller: Caller, done: list[str], version: int, commit: bool) -> None:
    """One complete transaction, then one over two partitions and a group's offset; `done` lists the answered steps."""
    first = caller.init("tx")
    for partition in range(PARTITIONS):
        if version < 12:
            caller.add("tx", first, partition)
        assert caller.send("tx", first, 0, partition, b"first", version) == 0
    code, second = caller.end("tx", first, True, 5 if version >= 12 else 3)
    assert code == 0
    done.append("first")
    sequence = 0 if second != first else 1
    for partition in range(PARTITIONS):
        if version < 12:
            caller.add("tx", second, partition)
        assert caller.send("tx", second, sequence, partition, b"second", version) == 0
    assert caller.commit_offset("tx", second, 42, 5 if version >= 12 else 3) == 0
    done.append("sent")
    code, _ = caller.end("tx", second, commit, 5 if version >= 12 else 3)
    assert code == 0
    done.append("second")


def check_all_or_nothing(caller: Caller, done: list[str], commit: bool) -> None:
    seen = [caller.committed(partition) for partition in range(PARTITIONS)]
    assert seen[0] == seen[1], "one partition has records that the other does not have"
    error, offset = caller.offset()
    assert error == 0
    has_second = b"second" in seen[0]
    assert (offset == 42) == has_second, "only the offsets or only the records were committed"
    if "first" in done:
        assert seen[0][:1] == [b"first"], "an answered commit was lost"
    if "second" in done:
        assert has_second == commit
    if not commit:
        assert not has_second


@pytest.mark.parametrize("share_written", [0.0, 0.5, 1.0], ids=["not written", "torn", "written"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("version", [12, 11], ids=["KIP-890", "first protocol"])
def test_a_crash_at_any_write_leaves_all_or_nothing(version: int, commit: bool, share_written: float) -> None:
    async def life(stop_at: int) -> bool:
        disk = StoppingDisk()
        caller = await started(disk)
        disk.writes, disk.stop_at, disk.share_written = 0, stop_at, share_written
        done: list[str] = []
        with contextlib.suppress(Stopped):
            scenario(caller, done, version, commit)
        abandon(caller)
        finished = "second" in done
        after = await started(disk.after_the_end())
        check_all_or_nothing(after, done, commit)
        # A new producer ends any open transaction, and all readers can continue.
        after.init("tx")
        check_all_or_nothing(after, done, commit)
        assert all(after.is_settled(partition) for partition in range(PARTITIONS))
        assert after.offset(stable=True)[0] == 0
        await after.broker.stop()
        return finished

    async def lives() -> int:
        stop_at = 1
        while not await life(stop_at):
            stop_at += 1
        return stop_at

    assert asyncio.run(lives()) > 12, "the scenario has this many writes"


def test_a_restart_completes_a_decided_end() -> None:
    """Between the decision and the last marker: the new process writes the rest before it serves any client."""

    async def life() -> None:
        disk = StoppingDisk()
        caller = await started(disk)
        producer = caller.init("tx")
        for partition in range(PARTITIONS):
            assert caller.send("tx", producer, 0, partition, b"x", 12) == 0
        disk.stop_at = disk.writes + 3  # the decision, the first marker, and a second one that is not written
        with contextlib.suppress(Stopped):
            caller.end("tx", producer, True, 5)
        assert [caller.committed(partition) for partition in range(PARTITIONS)] == [[b"x"], []]
        abandon(caller)
        after = await started(disk.after_the_end())
        assert [after.committed(partition) for partition in range(PARTITIONS)] == [[b"x"], [b"x"]]
        await after.broker.stop()

    asyncio.run(life())


# -- time, and the edges of a request


@pytest.fixture
def running() -> Iterator[Callable[[Callable[[Caller], None]], None]]:
    def run(act: Callable[[Caller], None]) -> None:
        async def life() -> None:
            caller = await started(MemoryDisk())
            act(caller)
            await caller.broker.stop()

        asyncio.run(life())

    yield run


def test_a_zombie_is_fenced(running: Any) -> None:
    def act(caller: Caller) -> None:
        old = caller.init("tx")
        assert caller.send("tx", old, 0, 0, b"old", 12) == 0
        new = caller.init("tx")
        assert new == (old[0], old[1] + 2)
        assert caller.send("tx", old, 1, 0, b"zombie", 12) == 47
        assert caller.send("tx", old, 1, 0, b"zombie", 11) == 47
        assert caller.commit_offset("tx", old, 9) == 47
        assert caller.end("tx", old, True, 5)[0] == 90
        assert caller.end("tx", old, True, 1)[0] == 47
        assert caller.send("tx", new, 0, 0, b"new", 12) == 0
        assert caller.end("tx", new, True, 5)[0] == 0
        assert caller.committed(0) == [b"new"]

    running(act)


def test_a_transaction_that_times_out_is_aborted(running: Any) -> None:
    def act(caller: Caller) -> None:
        producer = caller.init("tx")
        assert caller.send("tx", producer, 0, 0, b"late", 12) == 0
        assert caller.commit_offset("tx", producer, 5) == 0
        caller.send(None, (-1, -1), -1, 0, b"plain", 12)
        assert caller.committed(0) == []
        assert caller.offset(stable=True) == (UnstableOffsetCommit.code, -1)
        clock: Any = caller.broker.clock
        clock.advance(80_000)
        assert caller.committed(0) == [b"plain"]
        assert caller.offset(stable=True) == (0, -1)
        assert caller.send("tx", producer, 1, 0, b"later", 12) == 47
        # It was already aborted: this commit must fail.
        assert caller.end("tx", producer, True, 5)[0] == 48

    running(act)


def test_a_refused_request_changes_nothing(running: Any) -> None:
    def act(caller: Caller) -> None:
        producer = caller.init("tx")
        log = caller.broker.replicas.leader(TOPIC, 0)
        assert caller.send("tx", producer, 0, 0, b"x", 10) == 48
        assert caller.send("tx", producer, 0, 0, b"x", 11) == 120
        assert caller.send("other", producer, 0, 0, b"x", 12) == 49
        assert caller.send("tx", (producer[0] + 7, 0), 0, 0, b"x", 12) == 49
        assert caller.send("tx", (producer[0], 5), 0, 0, b"x", 12) == 47
        assert caller.send("", producer, 0, 0, b"x", 12) == 42
        assert log.log.log_end_offset == 0
        assert caller.commit_offset("other", producer, 1) == 49
        assert caller.offset(stable=True) == (0, -1)
        assert caller.broker.transactions.coordinator.describe("tx").state.value == "Empty"

    running(act)


def test_a_transaction_over_a_deleted_topic_ends(running: Any) -> None:
    def act(caller: Caller) -> None:
        producer = caller.init("tx")
        assert caller.send("tx", producer, 0, 0, b"x", 12) == 0
        assert caller.commit_offset("tx", producer, 3) == 0
        caller.broker.controller.delete_topics([caller.broker.metadata.topics[TOPIC]])
        assert caller.end("tx", producer, True, 5)[0] == 0
        assert caller.broker.transactions.coordinator.describe("tx").state.value == "CompleteCommit"

    running(act)
