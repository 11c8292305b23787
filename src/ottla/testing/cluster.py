"""Several brokers in one process that replicate, fail over and can be troubled: `ottla.Cluster(brokers=3)`.

Used as `async with` it runs on the running event loop, and what takes time is awaited; used as `with` it has a thread
of its own, and the same methods block. Each broker is a whole `Broker`, with faults and requests of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.cluster.controller import NewTopic
from ottla.cluster.topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.config import Config
from ottla.errors import KafkaError
from ottla.log.files import Disk, MemoryDisk, PosixDisk
from ottla.nodes.broker import NodeBroker
from ottla.nodes.controller import CONTROLLER_ID
from ottla.nodes.ensemble import Ensemble
from ottla.nodes.network import sides_of
from ottla.server.broker import Broker as Server
from ottla.server.chance import SeededChance, SystemChance
from ottla.testing.broker import Broker, BrokerStopped
from ottla.testing.clock import VirtualClock
from ottla.testing.moves import drop_from_isr, lead_here, move_replicas
from ottla.testing.options import ClockOption, Options
from ottla.testing.requests import ControlEvent, Request
from ottla.testing.topics import AsyncTopic, SyncTopic
from ottla.testing.views import ClusterServer, PartitionView

if TYPE_CHECKING:
    from ottla.cluster.metadata import PartitionState
    from ottla.testing.cluster_control import ClusterControlServer

T = TypeVar("T")

CONTROLLER = "controller"
"""The controller's name where nodes are named: `partition_network([1, CONTROLLER], [2, 3])`."""

BROKERS_MAX = 32
_CALL_TIMEOUT_S = 60.0
_QUICK = {
    # Kafka takes nine seconds to see that a broker is gone; a test need not.
    "broker.session.timeout.ms": 1000,
    "broker.heartbeat.interval.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "replica.lag.time.max.ms": 3000,
}


class ClusterBroker(Broker):
    """One broker of a cluster."""

    def __init__(self, cluster: Cluster, node_id: int, options: Options) -> None:
        self._cluster = cluster
        self.node_id = node_id
        super(Broker, self).__init__(options)

    def _new_server(self) -> Server:
        return NodeBroker(
            self._cluster.ensemble, self._config, disk=self.disk, chance=self._chance, registry=self._registry
        )

    @property
    def node(self) -> NodeBroker:
        """The broker inside, as long as it runs."""
        server = self.server
        assert isinstance(server, NodeBroker)
        return server

    @property
    def address_text(self) -> str:
        """Where clients find it; it is known after the first start, also while the broker is down."""
        listener = self._config.listeners[0]
        return f"{listener.host or '127.0.0.1'}:{listener.port}"

    def _on_loop(self, work: Callable[[], None]) -> None:
        self._cluster.call(lambda _: work())

    def note(self, event: ControlEvent) -> None:
        self._log.add(event)


class Cluster:
    """Brokers 1 to N with replicated topics. In memory unless `data` names a folder; every broker on a free port.

    With the preset `test` a broker counts as gone after one second; `preset="kafka"` keeps Kafka's timeouts. New topics
    get three replicas (or as many as there are brokers) unless the settings or who makes them say otherwise.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        data: str | PathLike[str] | None = None,
        preset: str = "test",
        settings: Mapping[str, object] | None = None,
        broker_settings: Mapping[int, Mapping[str, object]] | None = None,
        racks: Sequence[str] | None = None,
        partitions: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: ClockOption = None,
        control: int | None = None,
        seed: int | None = None,
        disks: Callable[[int], Disk] | None = None,
    ) -> None:
        """`racks` names one for each broker; `port` is the first broker's, the others get the next ones.

        `clock="virtual"` gives `cluster.clock.advance(…)`; `control=0` opens the HTTP endpoint that steers the cluster;
        `seed` makes ids and placement repeat.
        """
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers={brokers}: a cluster has 1 to {BROKERS_MAX}")
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"racks names {len(racks)} racks for {brokers} brokers; name one for each")
        self._clock = Options(clock=clock).make_clock()
        self._data = None if data is None else Path(data)
        self._seed = seed
        self._disks = disks
        shared = {**defaults(brokers, preset), **(settings or {})}
        self._controller_config = Options(
            preset=preset, settings={**shared, "node.id": CONTROLLER_ID}, partitions=partitions
        ).make_config()
        self._controller_disk: Disk | None = None
        self.ensemble: Ensemble
        self.brokers: dict[int, ClusterBroker] = {}
        for number in range(1, brokers + 1):
            own: dict[str, object] = {**shared, "node.id": number, **(broker_settings or {}).get(number, {})}
            if racks is not None:
                own["broker.rack"] = racks[number - 1]
            self.brokers[number] = ClusterBroker(
                self,
                number,
                Options(
                    data=None if self._data is None else self._data / f"broker-{number}",
                    preset=preset,
                    settings=own,
                    partitions=partitions,
                    host=host,
                    port=port + number - 1 if port else 0,
                    clock=self._clock,
                    seed=None if seed is None else seed * 1000 + number,
                    disk=None if disks is None else disks(number),
                ),
            )
        self._control_port = control
        self._control: ClusterControlServer | None = None
        self._events: list[ControlEvent] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._loop_thread: int | None = None

    # -- life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._start_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_all()

    def __enter__(self) -> Self:
        started: Future[asyncio.AbstractEventLoop] = Future()

        def run() -> None:
            with asyncio.Runner() as runner:
                started.set_result(runner.get_loop())
                asyncio.set_event_loop(runner.get_loop())
                runner.get_loop().run_forever()

        self._thread = threading.Thread(target=run, name="ottla-cluster", daemon=True)
        self._thread.start()
        self._loop = started.result(_CALL_TIMEOUT_S)
        try:
            self._do(self._start_all())
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._do(self._stop_all())
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None and self._loop is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join(_CALL_TIMEOUT_S)
        self._loop = None

    def _do(self, work: Coroutine[Any, Any, T]) -> Any:
        """Block for the result in a cluster with a thread; otherwise it is the caller's to await."""
        if self._thread is None or threading.get_ident() == self._loop_thread:
            return work
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_TIMEOUT_S)

    async def _start_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        if self._controller_disk is None or self._data is not None:
            self._controller_disk = self._make_controller_disk()
        chance = SystemChance() if self._seed is None else SeededChance(self._seed)
        self.ensemble = Ensemble(self._controller_config, self._controller_disk, self._clock, chance)
        self.ensemble.start()
        if isinstance(self._clock, VirtualClock):
            self._clock.drive(self.ensemble.timer, lambda work: self.call(lambda _: work()))
        try:
            for broker in self.brokers.values():
                await broker.start()
            if self._control_port is not None:
                from ottla.testing.cluster_control import ClusterControlServer

                self._control = ClusterControlServer(self, self._control_port)
                await self._control.start()
        except BaseException:
            await self._stop_all()
            raise

    def _make_controller_disk(self) -> Disk:
        if self._disks is not None:
            return self._disks(CONTROLLER_ID)
        return MemoryDisk() if self._data is None else PosixDisk(str(self._data / "controller"))

    async def _stop_all(self) -> None:
        if self._control is not None:
            control, self._control = self._control, None
            await control.stop()
        self.ensemble.is_stopping = True
        for broker in self.brokers.values():
            if broker.is_running and self.ensemble.network.is_paused(broker.node_id):
                broker.node.resume()
        for broker in self.brokers.values():
            await broker.stop()
        if isinstance(self._clock, VirtualClock):
            self._clock.let_go(self.ensemble.timer)
        self.ensemble.stop()

    # -- what it is --------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """What to give a client as `bootstrap.servers`: all brokers, also those that are down now."""
        return ",".join(broker.address_text for broker in self.brokers.values())

    @property
    def clock(self) -> VirtualClock:
        """The time of all brokers, for `clock.advance(minutes=10)`; needs `clock="virtual"`."""
        return next(iter(self.brokers.values())).clock

    @property
    def control_url(self) -> str:
        """Where tests in other languages steer this cluster."""
        if self._control is None:
            raise RuntimeError("the control endpoint is off: make the cluster with control=0 (a free port) or a port")
        return self._control.url

    def broker(self, broker_id: int) -> ClusterBroker:
        """One broker, for its faults, its requests and its data."""
        if broker_id not in self.brokers:
            raise ValueError(f"there is no broker {broker_id}; there are 1 to {len(self.brokers)}")
        return self.brokers[broker_id]

    def running(self) -> list[int]:
        return [number for number, broker in self.brokers.items() if broker.is_running]

    # -- looking inside ----------------------------------------------------------------------------------------

    def call(self, work: Callable[[ClusterServer], T]) -> T:
        """Run `work` on the cluster's loop, with a view of the whole as one server."""
        view = ClusterServer(self.ensemble)
        if threading.get_ident() == self._loop_thread:
            return work(view)
        if self._loop is None:
            raise BrokerStopped("the cluster is not running: use it inside its `with`")
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work(view))
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(_CALL_TIMEOUT_S)

    @property
    def server(self) -> Any:
        return ClusterServer(self.ensemble)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def topic(self, name: str) -> Any:
        """A topic, wherever its partitions are led; with the methods that `Broker.topic` has."""
        embedded: Any = self
        return SyncTopic(embedded, name) if self._thread is not None else AsyncTopic(embedded, name)

    def topics(self) -> list[str]:
        return self.call(lambda server: server.topic_names())

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Make a topic; `assignments` names the replicas of each partition, the preferred leader first."""
        wanted = NewTopic(
            name,
            -1 if assignments else partitions,
            -1 if assignments else replication_factor,
            [(index, list(replicas)) for index, replicas in enumerate(assignments or ())],
            {key: str(value) for key, value in (config or {}).items()},
        )

        def create(server: ClusterServer) -> None:
            outcome = server.controller.create_topics([wanted])[0]
            if isinstance(outcome, KafkaError):
                raise ValueError(f"topic {name!r} cannot be made: {outcome.message}") from outcome

        self.call(create)

    def partition(self, topic: str, partition: int = 0) -> PartitionView:
        """Leader, replicas, ISR and epochs as the controller has them, and how far each replica is."""
        return self.call(lambda server: server.partition_view(topic, partition))

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads, -1 for none."""
        return self.partition(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        return self.partition(topic, partition).isr

    def coordinator(self, group_id: str) -> int:
        """The broker that coordinates a group."""
        return self.call(lambda server: server.coordinator(GROUP_METADATA_TOPIC, group_id))

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates the transactions of an id."""
        return self.call(lambda server: server.coordinator(TRANSACTION_STATE_TOPIC, transactional_id))

    def requests(self, **filters: Any) -> list[Request | ControlEvent]:
        """What clients asked of any broker, and what was done to the cluster, in order of time."""
        found: dict[int, Request | ControlEvent] = {}
        for broker in self.brokers.values():
            found.update((id(seen), seen) for seen in broker._log.find(**filters))
        return sorted(found.values(), key=lambda seen: seen.at_ms)

    def wait_until(self, holds: Callable[[Cluster], bool], timeout: float = 60.0) -> Any:
        """Wait until `holds(cluster)`; AssertionError after `timeout` seconds of real time."""
        return self._do(self._wait_until(holds, timeout))

    def wait_in_sync(self, topic: str | None = None, timeout: float = 60.0) -> Any:
        """Wait until every partition (of a topic) has a leader and all of its replicas are in sync."""
        return self.wait_until(lambda cluster: all(_is_whole(p) for p in cluster._states(topic)), timeout)

    def _states(self, topic: str | None) -> Iterator[PartitionState]:
        for known, state in self.ensemble.controller.image.partitions():
            if topic is None or known.name == topic:
                yield state

    async def _wait_until(self, holds: Callable[[Cluster], bool], timeout: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not holds(self):
            if loop.time() > deadline:
                raise AssertionError(f"it did not come about within {timeout:g} s; the cluster: {self.describe()}")
            await asyncio.sleep(0.01)

    def describe(self) -> dict[str, Any]:
        """Brokers, leaders and troubles, for people and for the control endpoint."""
        return self.call(
            lambda server: {
                "bootstrap": self.bootstrap,
                "brokers": {str(number): self._state_of(number) for number in self.brokers},
                "topics": server.describe_topics(),
                "network": self.ensemble.network.describe(),
            }
        )

    def _state_of(self, broker_id: int) -> str:
        if not self.brokers[broker_id].is_running:
            return "down"
        if self.ensemble.network.is_paused(broker_id):
            return "paused"
        known = self.ensemble.controller.image.brokers.get(broker_id)
        return "fenced" if known is None or known.fenced else "running"

    # -- controls ----------------------------------------------------------------------------------------------

    def kill(self, broker_id: int) -> Any:
        """End a broker as SIGKILL does; the others notice when its session is over."""
        broker = self.broker(broker_id)
        self._note(f"kill {broker_id}", [broker_id])
        return self._do(broker.kill())

    def stop(self, broker_id: int) -> Any:
        """Stop a broker cleanly: it hands its partitions over first."""
        broker = self.broker(broker_id)
        self._note(f"stop {broker_id}", [broker_id])
        return self._do(broker.down())

    def start(self, broker_id: int) -> Any:
        """Start a broker again, on its port and its data."""
        broker = self.broker(broker_id)
        self._note(f"start {broker_id}", [broker_id])
        return self._do(broker.up())

    def restart(self, broker_id: int) -> Any:
        broker = self.broker(broker_id)
        self._note(f"restart {broker_id}", [broker_id])
        return self._do(broker.restart())

    def pause(self, broker_id: int) -> None:
        """Freeze a broker as SIGSTOP does: its connections stay, nothing is answered."""
        broker = self.broker(broker_id)
        self._note(f"pause {broker_id}", [broker_id])
        self.call(lambda _: broker.node.pause())

    def resume(self, broker_id: int) -> None:
        broker = self.broker(broker_id)
        self._note(f"resume {broker_id}", [broker_id])
        self.call(lambda _: broker.node.resume())

    def partition_network(self, *sides: Iterable[int | str]) -> None:
        """Cut the network between brokers: `partition_network([1], [2, 3])`. Clients still reach all of them.

        The controller is with the larger side unless one names it: `partition_network([1, "controller"], [2, 3])`.
        """
        named = [[CONTROLLER_ID if node == CONTROLLER else int(node) for node in side] for side in sides]
        cut = sides_of(named, [*self.brokers, CONTROLLER_ID], CONTROLLER_ID)
        self._note(f"partition network {named}", self.brokers)
        self.call(lambda _: self.ensemble.network.cut(cut))

    def slow_link(self, first: int | str, second: int | str, *, ms: float, both_ways: bool = True) -> None:
        """Let everything between two nodes take `ms` longer; 0 makes it fast again."""
        a, b = (CONTROLLER_ID if node == CONTROLLER else self.broker(int(node)).node_id for node in (first, second))

        def slow(_: Any) -> None:
            self.ensemble.network.slow(a, b, ms)
            if both_ways:
                self.ensemble.network.slow(b, a, ms)

        self._note(f"slow link {first}–{second} by {ms:g} ms", [n for n in (a, b) if n in self.brokers])
        self.call(slow)

    def heal(self) -> None:
        """The network is whole and fast again, and every replica may be in sync."""
        self._note("heal", self.brokers)

        def heal(_: Any) -> None:
            self.ensemble.kept_out.clear()
            self.ensemble.network.heal()

        self.call(heal)

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Have another replica lead, one that is in sync."""
        self._note(f"move the leader of {topic}-{partition} to {to}", [to], topic)
        self.call(lambda server: lead_here(server, topic, partition, to))

    def shrink_isr(self, topic: str, partition: int = 0, *, remove: Iterable[int]) -> None:
        """Take replicas out of the ISR, and keep them out until `heal()`."""
        gone = list(remove)
        self._note(f"shrink the ISR of {topic}-{partition} by {gone}", gone, topic)
        self.call(lambda server: drop_from_isr(server, topic, partition, gone))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Begin a move to other replicas; None calls a move back that is under way."""
        self._note(f"move {topic}-{partition} to {replicas}", replicas or (), topic)
        self.call(lambda server: move_replicas(server, topic, partition, replicas))

    def elect_preferred(self) -> None:
        """Give every partition back to its preferred leader, if that one is in sync."""
        self._note("elect preferred leaders", self.brokers)
        self.call(lambda server: server.controller.commit(server.controller.departures.preferred()))

    def _note(self, text: str, brokers: Iterable[int], topic: str | None = None) -> None:
        event = ControlEvent(text, self._clock.now_ms(), topic)
        for number in brokers:
            if number in self.brokers:
                self.brokers[number].note(event)


def defaults(brokers: int, preset: str) -> dict[str, object]:
    """What is different in a cluster of so many brokers; settings of the caller go before these."""
    factor = min(3, brokers)
    found: dict[str, object] = {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min(2, brokers),
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": min(2, brokers),
    }
    if preset != "kafka":
        found["default.replication.factor"] = factor
    if preset == "test":
        found.update(_QUICK)
    return found


def _is_whole(state: PartitionState) -> bool:
    return state.leader >= 0 and set(state.isr) == set(state.replicas)


__all__ = ["CONTROLLER", "Cluster", "ClusterBroker", "Config"]
