"""Three brokers, their clients and their faults, drawn from one seed: kills, pauses, partitions, slow links.

The clients are those of the single broker's simulation; a routing connection finds leaders and coordinators for them,
as a real client does. Every topic has three replicas and `min.insync.replicas` 2, and unclean elections are off.
"""

import asyncio
from collections.abc import Container
from typing import Any

from ottla import errors
from ottla.config import Config
from ottla.enums import ApiKey
from ottla.log.memory import MemoryDisk
from ottla.multibroker.cluster_nodes import ClusterNodes
from ottla.multibroker.controller import CONTROLLER_ID
from ottla.multibroker.network import sides_of
from ottla.multibroker.node import BrokerNode
from ottla.server.broker import Broker
from ottla.server.randomness import SeededRandomness
from ottla.wire.messages import CreateTopicsRequest, FindCoordinatorRequest, MetadataRequest
from support.crashing.history import Outcome, Violation
from support.simulating.loop import Lost, SimClient, SimLoop
from support.simulating.world import PARTITIONS, Committer, Producer, Reader, Transactor, World, run_world

BROKERS = (1, 2, 3)
ANSWER_TIMEOUT_S = 2.0
NOT_LEADER_ERRORS = (errors.NotLeaderOrFollower, errors.FencedLeaderEpoch, errors.UnknownLeaderEpoch)
NOT_COORDINATOR_ERRORS = (errors.CoordinatorLoadInProgress, errors.CoordinatorNotAvailable, errors.NotCoordinator)
_ROUTES_WRONG = frozenset(
    error.code
    for error in (
        errors.UnknownTopicOrPartition,
        errors.LeaderNotAvailable,
        *NOT_LEADER_ERRORS,
        *NOT_COORDINATOR_ERRORS,
    )
)
RETRIABLE = _ROUTES_WRONG | {
    errors.RequestTimedOut.code,
    errors.NotEnoughReplicas.code,
    errors.NotEnoughReplicasAfterAppend.code,
    errors.ConcurrentTransactions.code,
}
TRANSACTIONAL = frozenset(
    error.code
    for error in (
        errors.InvalidProducerEpoch,
        errors.InvalidTxnState,
        errors.InvalidProducerIdMapping,
        errors.ProducerFenced,
        errors.TransactionAbortable,
    )
)
"""Also the errors that a producer gets after the coordinator aborted its transaction."""


class RoutingClient:
    """One client's connections to all brokers."""

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._connections: dict[int, SimClient] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def disconnect(self) -> None:
        for connection in self._connections.values():
            connection.disconnect()
        self._connections.clear()

    async def call(self, request: Any, version: int) -> Any:
        if request.API_KEY == FindCoordinatorRequest.API_KEY:
            return await self._find_coordinator(request, version)
        target = await self._target(request)
        answer = await self._ask(target, request, version)
        if any(code in _ROUTES_WRONG for code in _codes(answer)):
            self._leaders.clear()
            self._coordinators.clear()
        return answer

    async def _find_coordinator(self, request: Any, version: int) -> Any:
        answer = await self._ask(self._anybody(), request, version)
        found = answer.coordinators[0]
        if not found.error_code:
            self._coordinators[request.key_type, found.key] = found.node_id
        return answer

    async def _target(self, request: Any) -> int:
        key = request.API_KEY
        if key in (ApiKey.PRODUCE, ApiKey.FETCH):
            topic = request.topic_data[0] if key == ApiKey.PRODUCE else request.topics[0]
            place = (
                (topic.name, topic.partition_data[0].index)
                if key == ApiKey.PRODUCE
                else (topic.topic, topic.partitions[0].partition)
            )
            if place not in self._leaders:
                await self._refresh(place[0])
            if place not in self._leaders:
                raise Lost("no leader known")
            if key == ApiKey.FETCH:
                # Like consumers: a deposed leader that does not know it yet must not answer.
                topic.partitions[0].current_leader_epoch = self._world.epochs[place]
            return self._leaders[place]
        if key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT):
            return self._coordinators[0, request.group_id]
        if key == ApiKey.OFFSET_FETCH:
            return self._coordinators[0, request.groups[0].group_id]
        if key in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN) and request.transactional_id is not None:
            return self._coordinators[1, request.transactional_id]
        return self._anybody()

    async def _refresh(self, topic: str) -> None:
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        answer = await self._ask(self._anybody(), MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 9)
        for found in answer.topics:
            for partition in found.partitions:
                place = (found.name, partition.partition_index)
                # Metadata older than the known state comes from a broker that lags.
                if partition.leader_epoch >= self._world.epochs.get(place, 0) and partition.leader_id >= 0:
                    self._world.epochs[place] = partition.leader_epoch
                    self._leaders[place] = partition.leader_id

    def _anybody(self) -> int:
        running = [number for number in BROKERS if self._world.is_up(number)]
        if not running:
            raise Lost("no broker is up")
        return self._world.chance.choice(running)

    async def _ask(self, target: int, request: Any, version: int) -> Any:
        connection = self._connections.get(target)
        if connection is None:
            if not self._world.is_up(target) or self._world.cluster.network.is_paused(target):
                self._leaders.clear()
                self._coordinators.clear()
                raise Lost(f"broker {target} does not answer")
            connection = self._connections[target] = self._world.connect_to(target)
        try:
            return await asyncio.wait_for(connection.call(request, version), ANSWER_TIMEOUT_S)
        except (Lost, TimeoutError) as error:
            connection.disconnect()
            self._connections.pop(target, None)
            self._leaders.clear()
            self._coordinators.clear()
            raise Lost(str(error)) from error


def _codes(answer: Any) -> list[int]:
    """The error codes of the few answers that the clients check."""
    codes = [getattr(answer, "error_code", 0)]
    for name in ("responses", "topics", "groups"):
        for part in getattr(answer, name, None) or ():
            codes.append(getattr(part, "error_code", 0))
            for inner in (*getattr(part, "partition_responses", ()), *getattr(part, "partitions", ())):
                codes.append(inner.error_code)
    return codes


class ClusterWorld(World):
    """Everything of one run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.fsync = False
        self.pace_s = 0.4
        self.retriable = RETRIABLE
        self.refused = Outcome.IN_DOUBT  # an append that was not replicated in time may still be replicated later
        self.cluster: ClusterNodes
        self.disks = {number: MemoryDisk() for number in (*BROKERS, CONTROLLER_ID)}
        self.brokers: dict[int, Broker] = {}
        self.starts = 0
        self.epochs: dict[tuple[str, int], int] = {}
        """The newest leader epochs that a client has seen."""
        self.troubles: list[str] = []

    # -- the brokers

    def config(self, number: int) -> Config:
        overrides: dict[str, object] = {
            "node.id": number,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2,
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
            "min.insync.replicas": 2,
            "broker.session.timeout.ms": 1000,
            "broker.heartbeat.interval.ms": 200,
            "replica.fetch.backoff.ms": 100,
            "replica.lag.time.max.ms": 1500,
            "replica.high.watermark.checkpoint.interval.ms": 700,
            "log.index.interval.bytes": 200,
        }
        return Config.load(overrides=overrides, preset="dev")

    def is_up(self, number: int) -> bool:
        return number in self.brokers and self.brokers[number].is_running

    def node(self, number: int) -> BrokerNode:
        node = self.brokers[number].topology
        assert isinstance(node, BrokerNode)
        return node

    async def start_node(self, number: int) -> None:
        self.starts += 1
        broker = self.brokers[number] = Broker(
            self.config(number),
            disk=self.disks[number],
            clock=self.cluster.clock,
            chance=SeededRandomness(self.seed * 1000 + self.starts),
            topology=BrokerNode(self.cluster, number),
        )
        await broker.start()

    def connect_to(self, number: int) -> SimClient:
        self.connections += 1
        client = SimClient(self.brokers[number], self.connections)
        self.open_connections.append(client)
        return client

    def connect(self) -> Any:
        return RoutingClient(self)

    # -- a run

    async def run(self, lives: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        loop.set_exception_handler(self._unhandled)
        self.cluster = ClusterNodes(self.config(CONTROLLER_ID), loop, SeededRandomness(self.seed))
        self.cluster.start_single(self.disks[CONTROLLER_ID])
        for number in BROKERS:
            await self.start_node(number)
        await self._make_topics()
        self.clients = [
            *(Producer(self, partition) for partition in range(PARTITIONS)),
            Committer(self),
            ClusterTransactor(self),
            Reader(self),
        ]
        works = [asyncio.ensure_future(client.work()) for client in self.clients]
        for _ in range(lives):
            await self._trouble_brokers()
            await asyncio.sleep(self.chance.choice((0.05, 0.3, 1.0, 2.5)))
            self._check_cluster()
            for work in works:
                if work.done():
                    work.result()
        await self._recover()
        await asyncio.sleep(3)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for client in self.clients:
            client.disconnect()
        await self._all_in_sync()
        await self._check_everything()
        self._check_replicas()
        await self._stop_all()

    async def _make_topics(self) -> None:
        client = self.connect_to(1)
        for topic in ("t", "x"):
            config = CreateTopicsRequest.CreatableTopicConfig(name="internal.segment.bytes", value="20000")
            wanted = CreateTopicsRequest.CreatableTopic(
                name=topic, num_partitions=PARTITIONS, replication_factor=3, configs=[config]
            )
            made = await client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
            assert made.topics[0].error_code == 0, made
        client.disconnect()

    async def _trouble_brokers(self) -> None:
        """A fault starts at one of the brokers, or ends."""
        number = self.chance.choice(BROKERS)
        network = self.cluster.network
        kind = self.chance.choice(["kill", "stop", "start", "start", "pause", "resume", "cut", "slow", "heal", "move"])
        self.note(f"{kind} {number}")
        self.troubles.append(kind)
        if kind in ("kill", "stop", "pause", "move") and not self.is_up(number):
            return
        if kind == "kill":
            self._wake(number)
            self.brokers[number].kill()
        elif kind == "stop":
            self._wake(number)
            await self.brokers[number].stop()
        elif kind == "start" and not self.is_up(number):
            if network.reaches(CONTROLLER_ID, CONTROLLER_ID):
                network.heal()
            await self.start_node(number)
        elif kind == "pause" and not network.is_paused(number):
            self.node(number).pause()
        elif kind == "resume":
            self._wake(number)
        elif kind == "cut":
            network.cut(sides_of([[number]], BROKERS, [CONTROLLER_ID]))
        elif kind == "slow":
            other = self.chance.choice([*BROKERS, CONTROLLER_ID])
            network.slow(number, other, self.chance.choice((5, 80, 600)))
        elif kind == "heal":
            network.heal()
        elif kind == "move":
            departures = self.cluster.controller.controller.broker_changes
            self.cluster.controller.controller.commit(departures.preferred())

    def _wake(self, number: int) -> None:
        if self.is_up(number) and self.cluster.network.is_paused(number):
            self.node(number).resume()

    async def _recover(self) -> None:
        self.note("recover")
        self.cluster.network.heal()
        for number in BROKERS:
            self._wake(number)
            if not self.is_up(number):
                await self.start_node(number)

    async def _all_in_sync(self) -> None:
        image = self.cluster.controller.image
        for _ in range(600):
            if all(state.leader >= 0 and len(state.isr) == 3 for _, state in image.partitions()):
                break
            await asyncio.sleep(0.1)
        else:
            raise Violation(f"not in sync again: {[state for _, state in image.partitions() if len(state.isr) < 3]}")
        await asyncio.sleep(1)  # the high watermark reaches the followers

    async def _stop_all(self) -> None:
        self.cluster.is_stopping = True
        for number in BROKERS:
            await self.brokers[number].stop()
        self.cluster.stop()
        if self.unhandled:
            raise Violation(f"not handled: {self.unhandled[0]}")

    # -- what must hold

    def _check_cluster(self) -> None:
        if self.unhandled:
            raise Violation(f"not handled: {self.unhandled[0]}")
        for broker in self.brokers.values():
            if not broker.is_running:
                continue
            for partition in broker.replicas:
                log = partition.log
                if not log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset:
                    raise Violation(f"broker {broker.node_id}, {log!r}: offsets out of order")
        for topic, state in self.cluster.controller.image.partitions():
            if not set(state.isr) <= set(state.replicas) or (state.leader >= 0 and state.leader not in state.isr):
                raise Violation(f"{topic.name}: {state}")

    def _check_replicas(self) -> None:
        """Below the high watermark the replicas are the same, byte by byte."""
        for topic, state in self.cluster.controller.image.partitions():
            found: dict[int, list[bytes]] = {}
            for number in BROKERS:
                log = self.brokers[number].replicas.replica(topic.name, state.index).log
                if log.high_watermark != log.log_end_offset:
                    raise Violation(f"broker {number}, {log!r}: nothing is written, but {log.high_watermark} committed")
                found[number] = [bytes(batch.view()) for batch in log.batches(log.log_start_offset)]
            if not found[1] == found[2] == found[3]:
                ends = {number: len(batches) for number, batches in found.items()}
                raise Violation(f"{topic.name}-{state.index}: the replicas differ: {ends}")

    async def _check_everything(self) -> None:
        client = self.connect()
        for topic in ("t", "x"):
            for index in range(PARTITIONS):
                self.history.check_log((topic, index), await self.read_all(client, topic, index))
        for committer in (c for c in self.clients if isinstance(c, Committer)):
            for index in range(PARTITIONS):
                self.history.check_committed("g", ("t", index), await committer.committed(client, "g", "t", index))
        for transactor in (c for c in self.clients if isinstance(c, Transactor)):
            await transactor.check(client)
        client.disconnect()
        self.note("checked")

    def abandon(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        for client in self.open_connections:
            client.disconnect()


class ClusterTransactor(Transactor):
    """A fail-over in the middle of a transaction may abort it; many different errors report this to its producer."""

    def expect(self, answer: Any, code: int, allowed: Container[int] | None = None) -> bool:
        return super().expect(answer, code, allowed or RETRIABLE | TRANSACTIONAL)


def run_cluster_seed(seed: int, troubles: int = 12) -> ClusterWorld:
    """A whole run. Returns the world for inspection."""
    world = ClusterWorld(seed)
    run_world(world, troubles)
    return world
