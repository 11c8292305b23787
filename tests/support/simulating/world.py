"""A broker, its clients and their faults, drawn from one seed. Every answer to a client is checked.

A run is a few *lives* of the broker. In each, clients work while the disk fills up, fails or works again; it ends with
a stop, a kill or, if everything is flushed, a power loss. The next life begins with the data that remains.
"""

import asyncio
import logging
import random
from collections.abc import Container
from typing import Any

from ottla import errors
from ottla.config import Config
from ottla.enums import CoordinatorType
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    TopicAlreadyExists,
)
from ottla.records.batch import Record, batches, build_batch
from ottla.server.broker import Broker
from ottla.server.randomness import SeededRandomness
from ottla.wire.messages import (
    CreateTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from support.batches import batches_of, visible_batches
from support.crashing.history import Commit, History, Outcome, Violation, Write
from support.simulating.disk import SimDisk
from support.simulating.loop import Lost, SimClient, SimLoop

PARTITIONS = 2
COMPACTED = "c"
KEYS = (b"one", b"two", b"three", b"four")
TOPICS = {
    "t": {},
    "x": {},
    COMPACTED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"},
}
RETRIABLE = frozenset(
    error.code
    for error in (
        errors.UnknownTopicOrPartition,
        errors.LeaderNotAvailable,
        errors.NotLeaderOrFollower,
        errors.RequestTimedOut,
        errors.CoordinatorLoadInProgress,
        errors.CoordinatorNotAvailable,
        errors.NotCoordinator,
        errors.ConcurrentTransactions,
        errors.KafkaStorageError,
    )
)
STEPS_PER_LIFE = 12
WRITES = frozenset({"append", "write", "touch", "mkdir", "rename", "truncate", "remove", "sync", "fsync"})


class World:
    """The state of one run. `trace` lists what happened, to compare two runs of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.fsync = seed % 2 == 1
        # Bytes whose flush failed are removed, but a power loss may bring them back.
        self.refused = Outcome.IN_DOUBT if self.fsync else Outcome.REFUSED
        self.retriable = RETRIABLE
        self.trace: list[str] = []
        self.history = History()
        self.disk: SimDisk
        self.broker: Broker
        self.loop: SimLoop
        self.connections = 0
        self.lives = 0
        self.pace_s = 0.05
        """The longest that a client waits before its next step."""
        self.crashed_in: dict[str, int] = {}
        self.clients: list[Any] = []
        self.unhandled: list[dict[str, Any]] = []
        self.open_connections: list[SimClient] = []

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unhandled.append(context)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.now_ms()} {text}")

    # -- the broker's lives

    async def run(self, lives: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        loop.set_exception_handler(self._unhandled)
        self.disk = SimDisk(loop)
        self.clients = [
            *(Producer(self, partition) for partition in range(PARTITIONS)),
            Committer(self),
            Transactor(self),
            Reader(self),
            KeyedProducer(self),
        ]
        for _ in range(lives):
            await self._life()
        await self._start()  # the disk is new, and works
        await self._check_everything()
        await self.broker.stop()

    async def _start(self) -> None:
        self.lives += 1
        overrides: dict[str, object] = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2,
            "log.flush.offset.checkpoint.interval.ms": 700,
            "log.flush.start.offset.checkpoint.interval.ms": 700,
            "log.index.interval.bytes": 200,
            "log.cleaner.backoff.ms": 100,
        }
        if self.fsync:
            overrides["log.flush.interval.messages"] = 1
        self.broker = Broker(
            Config.load(overrides=overrides, preset="dev"),
            disk=self.disk,
            clock=self.loop,
            chance=SeededRandomness(self.seed * 1000 + self.lives),
        )
        await self.broker.start()
        self.note("start")
        client = self.connect()
        for topic, settings in TOPICS.items():
            configs = [
                CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                for name, value in {"internal.segment.bytes": "2000", **settings}.items()
            ]
            wanted = CreateTopicsRequest.CreatableTopic(
                name=topic, num_partitions=PARTITIONS, replication_factor=1, configs=configs
            )
            made = await client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
            assert made.topics[0].error_code in (0, TopicAlreadyExists.code), made
        client.disconnect()

    async def _life(self) -> None:
        await self._start()
        await self._check_everything()
        for client in self.clients:
            client.connection = None
        works = [asyncio.ensure_future(client.work()) for client in self.clients]
        for _ in range(self.chance.randint(2, STEPS_PER_LIFE)):
            self._trouble()
            await asyncio.sleep(self.chance.random() * 0.2)
            self._check_offsets()
            if self.unhandled:
                raise Violation(f"not handled: {self.unhandled[0]}")
            for work in works:
                if work.done():
                    work.result()  # a client found something wrong
        end = self.chance.choice(["stop", "kill", "kill", "power"] if self.fsync else ["stop", "kill"])
        self.note(f"end by {end}")
        if end == "stop":
            await self.broker.stop()
        else:
            self.broker.kill()
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for client in self.clients:
            client.disconnect()
        self.disk = self.disk.after_power_loss(self.chance) if end == "power" else self.disk.after_kill()

    def _trouble(self) -> None:
        """Decides how the disk behaves next."""
        kind = self.chance.choice(["fine", "fine", "fine", "full", "one", "dying", "reads"])
        self.note(f"disk: {kind}")
        if kind == "fine":
            self.disk.check = None
        elif kind == "full":
            self.disk.check = lambda operation, path: (
                "No space left on device" if operation in ("append", "write", "touch", "mkdir") else None
            )
        elif kind == "dying":
            self.disk.check = lambda operation, path: "Input/output error" if self.chance.random() < 0.3 else None
        elif kind == "reads":
            self.disk.check = lambda operation, path: "Input/output error" if operation == "read" else None
        else:
            self._fail_once(self.chance.randint(1, 30))

    def _fail_once(self, after: int) -> None:
        left = after

        def check(operation: str, path: str) -> str | None:
            nonlocal left
            if operation in WRITES:
                left -= 1
            return "Input/output error" if left == 0 else None

        self.disk.check = check

    # -- what must hold

    def _check_offsets(self) -> None:
        """Checks the broker's internal state after every step."""
        for partition in self.broker.replicas:
            log = partition.log
            if not log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset:
                raise Violation(f"{log!r}: offsets out of order")
            bases = [segment.base_offset for segment in log.segments]
            if (
                bases != sorted(set(bases))
                or bases[-1] > log.log_end_offset
                or log.active_segment is not log.segments[-1]
            ):
                raise Violation(f"{log!r}: segments {bases}")
            if log.producers.map_end_offset != log.log_end_offset:
                raise Violation(f"{log!r}: producers know it up to {log.producers.map_end_offset}")

    async def _check_everything(self) -> None:
        """Checks everything over the wire and in the files, with a working disk."""
        client = self.connect()
        for topic in ("t", "x"):
            for index in range(PARTITIONS):
                self.history.check_log((topic, index), await self.read_all(client, topic, index))
                check_files(self.broker.replicas.leader(topic, index).log)
        self.history.check_compacted((COMPACTED, 0), await self.read_keyed(client))
        check_files(self.broker.replicas.leader(COMPACTED, 0).log, compacted=True)
        for committer in (c for c in self.clients if isinstance(c, Committer)):
            for index in range(PARTITIONS):
                self.history.check_committed("g", ("t", index), await committer.committed(client, "g", "t", index))
        for transactor in (c for c in self.clients if isinstance(c, Transactor)):
            await transactor.check(client)
        client.disconnect()
        self.note("checked")

    async def read_all(self, client: SimClient, topic: str, index: int, isolation: int = 0) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        offset = 0
        while True:
            answer = await fetch(client, topic, index, offset, isolation)
            check_served(answer, topic)
            fetched = batches_of(answer)
            if not fetched:
                return found
            for one in fetched:
                assert one.crc_ok(), f"{topic}-{index} offset {one.base_offset}"
            for one in visible_batches(answer, isolation):
                found += [(r.offset, bytes(r.value or b"")) for r in one.records()]
            offset = fetched[-1].next_offset

    async def read_keyed(self, client: SimClient) -> list[tuple[int, bytes, bytes | None]]:
        """Reads the compacted partition."""
        found: list[tuple[int, bytes, bytes | None]] = []
        offset = 0
        while True:
            answer = await fetch(client, COMPACTED, 0, offset)
            check_served(answer, COMPACTED)
            data = batches_of(answer)
            if not data:
                return found
            for one in data:
                assert one.crc_ok(), f"{COMPACTED} offset {one.base_offset}"
                found += [
                    (r.offset, bytes(r.key or b""), None if r.value is None else bytes(r.value)) for r in one.records()
                ]
                offset = one.next_offset

    def abandon(self) -> None:
        """Close all sockets after a violation."""
        self.broker.kill()
        for client in self.open_connections:
            client.disconnect()

    def connect(self) -> SimClient:
        self.connections += 1
        client = SimClient(self.broker, self.connections)
        self.open_connections.append(client)
        return client


def check_files(log: Any, *, compacted: bool = False) -> None:
    """The files match the log: complete batches, matching indexes, and no gaps except those of the cleaner."""
    expected = log.segments[0].base_offset
    for segment in log.segments:
        position = 0
        for batch in segment.batches():
            in_order = batch.base_offset >= expected if compacted else batch.base_offset == expected
            if not in_order or not batch.crc_ok():
                raise Violation(f"{log!r}: {batch.base_offset} where {expected} was due")
            expected = batch.next_offset
            position += batch.size
        if position != segment.size:
            raise Violation(f"{log!r}: {segment.size - position} bytes after the last batch of {segment!r}")
    if expected > log.log_end_offset or (expected < log.log_end_offset and not compacted):
        raise Violation(f"{log!r}: the files end at {expected}")
    for offset in range(log.log_start_offset, expected):
        found = log.read(offset, 1).records
        first = next(batches(bytes(found.read())))
        if first.last_offset < offset or (first.base_offset > offset and not compacted):
            raise Violation(f"{log!r}: a read of {offset} gives {first.base_offset}")


async def fetch(client: SimClient, topic: str, index: int, offset: int, isolation: int = 0, wait_ms: int = 0) -> Any:
    wanted = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=10_000)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=100_000,
        isolation_level=isolation,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )
    return (await client.call(request, 11)).responses[0].partitions[0]


def check_served(answer: Any, topic: str) -> None:
    """With a working disk, a broker has no reason to refuse records."""
    if answer.error_code:
        raise Violation(f"{topic}-{answer.partition_index} is not served: {errors.name_of(answer.error_code)}")


class Worker:
    """A client that works until its broker ends. It checks that every answer is allowed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connection: SimClient | None = None

    async def work(self) -> None:
        while True:
            await asyncio.sleep(self.world.chance.random() * self.world.pace_s)
            try:
                if self.connection is None:
                    self.connection = self.world.connect()
                await self.step(self.connection)
            except Lost:
                self.disconnect()

    async def step(self, client: SimClient) -> None:
        raise NotImplementedError

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.disconnect()
            self.connection = None

    def expect(self, answer: Any, code: int, allowed: Container[int] | None = None) -> bool:
        """Whether the request succeeded; only retriable errors are allowed."""
        self.world.note(f"{type(self).__name__} {code}")
        if code and code not in (allowed or self.world.retriable):
            raise Violation(f"{type(self).__name__} got error {code}: {answer}")
        return code == 0


class Producer(Worker):
    """Idempotent; sends a batch until it is acknowledged."""

    def __init__(self, world: World, partition: int, topic: str = "t") -> None:
        super().__init__(world)
        self.place = (topic, partition)
        self.identity: tuple[int, int] | None = None
        self.sequence = 0
        self.pending: list[Write] = []

    async def step(self, client: SimClient) -> None:
        if self.identity is None:
            made = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
            if not self.expect(made, made.error_code):
                return
            self.identity = (made.producer_id, made.producer_epoch)
        if not self.pending:
            self.pending = [self.write(self.sequence + n) for n in range(self.world.chance.randint(1, 3))]
            self.world.history.writes += self.pending
        now_ms = self.world.loop.now_ms()
        records = build_batch(
            [
                Record(n, now_ms, write.key, None if write.is_deletion else write.value)
                for n, write in enumerate(self.pending)
            ],
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=self.sequence,
        )
        answer = await produce(client, *self.place, records)
        if self.expect(answer, answer.error_code):
            for n, write in enumerate(self.pending):
                write.outcome, write.offset = Outcome.ACKNOWLEDGED, answer.base_offset + n
            self.sequence += len(self.pending)
            self.pending = []

    def write(self, number: int) -> Write:
        padding = b"." * self.world.chance.choice((1, 100, 600))
        return Write(f"p{self.place[1]}", self.place, b"%d-%d" % (self.place[1], number) + padding)


class KeyedProducer(Producer):
    """Writes and deletes a few keys over and over in a topic that is compacted."""

    def __init__(self, world: World) -> None:
        super().__init__(world, 0, COMPACTED)

    def write(self, number: int) -> Write:
        chance = self.world.chance
        one = super().write(number)
        one.key, one.is_deletion = chance.choice(KEYS), chance.random() < 0.2
        return one


async def produce(client: SimClient, topic: str, index: int, records: bytearray, **more: Any) -> Any:
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    entry = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    version = 12 if more else 9
    answer = await client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[entry], **more), version)
    return answer.responses[0].partition_responses[0]


async def coordinator(worker: Worker, client: SimClient, key: str, kind: int) -> bool:
    found = (await client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)).coordinators[0]
    return worker.expect(found, found.error_code)


class Committer(Worker):
    """Commits increasing offsets; an offset whose commit failed is not sent again."""

    next = 1

    async def step(self, client: SimClient) -> None:
        if not await coordinator(self, client, "g", 0):
            return
        place = ("t", self.next % PARTITIONS)
        commit = Commit("g", place, self.next)
        self.next += 1
        self.world.history.commits.append(commit)
        entry = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=place[1], committed_offset=commit.offset, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[entry])
        answer = await client.call(OffsetCommitRequest(group_id="g", topics=[topic]), 9)
        done = self.expect(answer, answer.topics[0].partitions[0].error_code)
        commit.outcome = Outcome.ACKNOWLEDGED if done else self.world.refused

    @staticmethod
    async def committed(client: SimClient, group: str, topic: str, index: int) -> int:
        await client.call(FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=[group]), 4)
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[index])],
        )
        found = (await client.call(OffsetFetchRequest(groups=[asked]), 9)).groups[0]
        assert found.error_code == 0, found
        offset: int = found.topics[0].partitions[0].committed_offset
        return offset


class Reader(Worker):
    """Keeps reading; a record it once saw must never change. Waits at the end for more records."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)

    async def step(self, client: SimClient) -> None:
        index = self.world.chance.randrange(PARTITIONS)
        answer = await fetch(client, "t", index, self.offsets[index], wait_ms=self.world.chance.choice((0, 50)))
        if not self.expect(answer, answer.error_code):
            return
        for one in batches_of(answer):
            for record in one.records():
                if record.offset >= answer.high_watermark:
                    raise Violation(f"offset {record.offset} was read, the high watermark is {answer.high_watermark}")
                self.world.history.read(("t", index), record.offset, bytes(record.value or b""))
            self.offsets[index] = one.next_offset


class Transactor(Worker):
    """Writes to both partitions of a topic and commits an offset in one transaction. Restarts after any unknown
    error."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.number = 0
        self.decided: dict[int, bool | None] = {}
        self.undecided: set[int] = set()
        self.committing: list[int] = []

    async def step(self, client: SimClient) -> None:
        if not await coordinator(self, client, "tx", 1) or not await coordinator(self, client, "tg", 0):
            return
        made = await client.call(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 5)
        if not self.expect(made, made.error_code):
            return
        identity = {"transactional_id": "tx", "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        self.number += 1
        number = self.number
        self.undecided.add(number)
        for partition in range(PARTITIONS):
            write = Write("tx", ("x", partition), b"tx-%d-%d" % (number, partition), transaction=number)
            self.world.history.writes.append(write)
            records = build_batch(
                [Record(0, self.world.loop.now_ms(), None, write.value)],
                producer_id=made.producer_id,
                producer_epoch=made.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            answer = await produce(client, *write.place, records, transactional_id="tx")
            if not self.expect(answer, answer.error_code):
                write.outcome = self.world.refused
                return
            write.outcome, write.offset = Outcome.ACKNOWLEDGED, answer.base_offset
        entry = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=number, committed_metadata=""
        )
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="x", partitions=[entry])
        answer = await client.call(TxnOffsetCommitRequest(group_id="tg", topics=[topic], **identity), 5)
        if not self.expect(answer, answer.topics[0].partitions[0].error_code):
            return
        await self._end(client, number, identity)

    async def _end(self, client: SimClient, number: int, identity: dict[str, Any]) -> None:
        commit = self.world.chance.random() < 0.7
        if commit:
            self.committing.append(number)
        self.undecided.discard(number)
        self.decided[number] = None
        answer = await client.call(EndTxnRequest(committed=commit, **identity), 5)
        if self.expect(answer, answer.error_code):
            self.decided[number] = commit

    async def check(self, client: SimClient) -> None:
        """Checks the result after a new incarnation has ended the open transaction."""
        for _ in range(100):
            await client.call(FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=["tx"]), 4)
            made = await client.call(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 5)
            if made.error_code == 0:
                break
            assert made.error_code in (
                CoordinatorLoadInProgress.code,
                CoordinatorNotAvailable.code,
                NotCoordinator.code,
                ConcurrentTransactions.code,
            ), made
            await asyncio.sleep(0.05)
        else:
            raise Violation("a transaction is not completed on a disk that works")
        visible: set[bytes] = set()
        for index in range(PARTITIONS):
            visible |= {value for _, value in await self.world.read_all(client, "x", index, isolation=1)}
        self.world.history.check_transactions(self.decided, visible, self.undecided)
        possible = {-1}
        for number in self.committing:
            if self.decided[number] is True:
                possible = {number}
            elif self.decided[number] is None:
                possible.add(number)
        offset = await Committer.committed(client, "tg", "x", 0)
        if offset not in possible:
            raise Violation(f"group tg: {offset} is committed, possible are {sorted(possible)}")


def run_seed(seed: int, lives: int = 3) -> World:
    """A whole run. Returns the world for inspection."""
    world = World(seed)
    run_world(world, lives)
    return world


def run_world(world: World, length: int) -> None:
    """Runs it in virtual time; an error shows the seed and the last events."""

    async def main() -> None:
        try:
            await world.run(length)
        except BaseException:
            world.abandon()
            raise

    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    try:
        with asyncio.Runner(loop_factory=SimLoop) as runner:
            runner.run(main())
    except (AssertionError, KafkaError) as error:
        error.add_note(f"seed {world.seed}; the end of its trace:\n" + "\n".join(world.trace[-40:]))
        raise
    finally:
        logging.getLogger("ottla").setLevel(logging.NOTSET)
