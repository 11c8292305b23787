"""Several brokers in one process that replicate and fail over, with injected failures: `ottla.Cluster(brokers=3)`.

With `async with` it runs on the running event loop, and methods that take time are awaited. With `with` it has its own
thread, and the same methods block. Each broker is a complete `Broker`, with its own faults and requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.config import Config
from ottla.embedded.client_config import ClientName, Role, Settings, client_config
from ottla.embedded.clock import VirtualClock
from ottla.embedded.groups import Group, group_ids, remove_group
from ottla.embedded.http_endpoints import EndpointAddresses, HttpEndpoints
from ottla.embedded.options import ClockOption, Data, Options, data_folders
from ottla.embedded.rules import named
from ottla.embedded.stopped import BrokerStopped
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.log.checkpoints import META_FILE
from ottla.log.files import Disk, MemoryDisk, PosixDisk
from ottla.metadata.controller import NewTopic
from ottla.metadata.draining import still_on
from ottla.metadata.topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.multibroker.cluster_actions import CONTROLLER, Controls
from ottla.multibroker.cluster_broker import ClusterBroker
from ottla.multibroker.cluster_faults import ClusterFaults
from ottla.multibroker.cluster_growth import Growth
from ottla.multibroker.cluster_nodes import ClusterNodes
from ottla.multibroker.cluster_options import Configs
from ottla.multibroker.cluster_quorum import Quorum
from ottla.multibroker.cluster_topic import AsyncClusterTopic, ClusterTopic, SyncClusterTopic
from ottla.multibroker.cluster_view import ClusterServer, PartitionView
from ottla.multibroker.controller import CONTROLLER_ID
from ottla.multibroker.node import forwarding_apis
from ottla.multibroker.node_clock import NodeClock
from ottla.server.broker import Broker as Server
from ottla.server.broker import StartError
from ottla.server.randomness import SeededRandomness, SystemRandomness
from ottla.server.request_log import ControlEvent, Request

if TYPE_CHECKING:
    from ottla.console import inside as inside_module
    from ottla.console import server as console_server
    from ottla.console.inside import Inside
    from ottla.embedded import own_registry, registry_handle
    from ottla.embedded.disk import DiskFaults
    from ottla.embedded.registry_handle import Access
    from ottla.embedded.scenario import Scenario
    from ottla.metadata.image import PartitionState
    from ottla.multibroker import cluster_controllers, cluster_http, cluster_scenario
    from ottla.multibroker.cluster_controllers import ClusterController
    from ottla.registry.options import RegistryOptions
    from ottla.server.api import Api
else:
    console_server = lazy("ottla.console.server")
    inside_module = lazy("ottla.console.inside")
    own_registry = lazy("ottla.embedded.own_registry")
    registry_handle = lazy("ottla.embedded.registry_handle")
    cluster_controllers = lazy("ottla.multibroker.cluster_controllers")
    cluster_http = lazy("ottla.multibroker.cluster_http")
    cluster_scenario = lazy("ottla.multibroker.cluster_scenario")

T = TypeVar("T")
_CALL_TIMEOUT_S = 60.0


class Cluster(EndpointAddresses, Controls, Growth, Quorum):
    """Brokers 1 to N with replicated topics. In memory unless `data` is a folder; every broker on a free port.

    With the preset `test` a broker counts as gone after one second; `preset="kafka"` keeps Kafka's timeouts. New topics
    get three replicas (or one per broker) unless the settings or the request say otherwise.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        controllers: int | None = None,
        combined: bool = False,
        config: Config | None = None,
        data: Data = None,
        preset: str = "test",
        settings: Mapping[str, object] | None = None,
        broker_settings: Mapping[int, Mapping[str, object]] | None = None,
        racks: Sequence[str] | None = None,
        partitions: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: ClockOption = None,
        as_version: str | None = None,
        control: int | None = None,
        seed: int | None = None,
        disks: Callable[[int], Disk] | None = None,
        console: int | None = None,
        registry: int | RegistryOptions | None = None,
    ) -> None:
        """With `controllers=3` a quorum of this many controllers keeps the metadata, and they can fail. Without it, one
        controller keeps the metadata and never fails. With `combined=True` the controllers are on the nodes of the
        first brokers.

        `racks` contains one rack per broker; given ports are those of the first broker. `settings` apply to all
        brokers; a `config` replaces preset and settings. `clock="virtual"` enables `cluster.clock.advance(…)`;
        `control=0` opens the HTTP control endpoint, `console=0` the web console, `registry=0` a schema registry; `seed`
        makes ids reproducible.
        """
        options = Options(
            config, preset=preset, settings=settings, partitions=partitions, host=host, port=port, registry=registry
        )
        shared = options.make_config()
        self._clock = Options(clock=clock).make_clock()
        self._folders = [Path(folder) for folder in data_folders(data)]
        self._data = self._folders[0] if self._folders else None
        self._seed, self._disks = seed, disks
        configs = Configs(
            shared,
            brokers,
            broker_settings=broker_settings,
            racks=racks,
            data=self._folders,
            controllers=controllers,
            combined=combined,
        )
        self._node_clocks: dict[int, NodeClock] = {}
        self._configs = configs
        self._controller_config = configs.of_controller()
        self._controller_disk: Disk | None = None
        self.nodes: ClusterNodes
        self.faults = ClusterFaults(self)
        """Faults that apply to every broker."""
        self.brokers: dict[int, ClusterBroker] = {}
        self._as_version = as_version
        for number in range(1, brokers + 1):
            self.brokers[number] = self._new_broker(number)
        self.controllers: dict[str, ClusterController] = {}
        """By name, c1 and so on; empty without a quorum."""
        if controllers is not None:
            self.controllers = cluster_controllers.make_controllers(
                self, controllers, configs.of_quorum_controller, self._node_options
            )
        self._control_port = control
        self._console_port = console
        self._registry_options = options.make_registry()
        self._endpoints = HttpEndpoints("cluster")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._loop_thread: int | None = None

    def _node_options(self, node_id: int, folder: str) -> dict[str, Any]:
        roots = self._folders[: 1 if folder.startswith("controller") else None]  # controllers need one
        return {
            "data": [root / folder for root in roots] if roots and self._disks is None else None,
            "clock": self._clock,
            "seed": None if self._seed is None else self._seed * 1000 + node_id,
            "disk": None if self._disks is None else self._disks(node_id),
        }

    def _new_broker(self, number: int) -> ClusterBroker:
        config = self._configs.of_broker(number)
        options = self._node_options(number, f"broker-{number}")
        return ClusterBroker(self, number, Options(config, as_version=self._as_version, **options))

    def clock_of(self, node_id: int) -> NodeClock:
        """The clock of a node, which may be wrong. It is kept when the node restarts."""
        return self._node_clocks.setdefault(node_id, NodeClock(self._clock))

    # -- life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._start_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop_all()

    def __enter__(self) -> Self:
        started: Future[asyncio.AbstractEventLoop] = Future()

        def run() -> None:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
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

    def __exit__(self, *_: object) -> None:
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

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the cluster does not run in the caller's thread."""
        return self._thread is not None and threading.get_ident() != self._loop_thread

    def _do(self, work: Coroutine[Any, Any, T], timeout: float = 0.0) -> Any:
        """Block for the result if the cluster has a thread; otherwise the caller awaits it."""
        if not self._is_elsewhere:
            return work
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout + _CALL_TIMEOUT_S)

    async def _start_all(self) -> None:
        if self._data is not None and (self._data / META_FILE).exists():
            # Its partitions would seem to be gone, and it would mistake the folders of brokers for partitions.
            raise StartError(f"{self._data} is the data folder of a single broker; use another folder for a cluster")
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        chance = SystemRandomness() if self._seed is None else SeededRandomness(self._seed)
        self.nodes = ClusterNodes(self._controller_config, self._clock, chance)
        if not self.controllers:
            if self._controller_disk is None or self._data is not None:
                self._controller_disk = self._make_controller_disk()
            self.nodes.start_single(self._controller_disk)
        if isinstance(self._clock, VirtualClock):
            self._clock.drive(self.nodes.timer, lambda work: self.call(lambda _: work()))
        try:
            if self.controllers:
                await self._start_quorum()
            for broker in self.brokers.values():
                await broker.start()
            if self._control_port is not None:
                await self._endpoints.start_control(cluster_http.ClusterControlServer(self, self._control_port))
            if self._console_port is not None:
                await self._endpoints.start_console(console_server.own_console(self.inside(), self._console_port))
            if self._registry_options is not None:
                schemas = own_registry.OwnRegistry(self._servers, self._registry_options, forwarding_apis)
                await self._endpoints.start_registry(schemas)
        except BaseException:
            await self._stop_all()
            raise

    def _make_controller_disk(self) -> Disk:
        if self._disks is not None:
            return self._disks(CONTROLLER_ID)
        return MemoryDisk() if self._data is None else PosixDisk(str(self._data / "controller"))

    def inside(self) -> Inside:
        """The internals that a console may show."""
        brokers = self.brokers
        inside = inside_module.Inside(
            self._servers,
            lambda: [broker.request_log for broker in brokers.values()],
            cluster_http.ClusterControlServer(self, 0).route,
        )
        inside.registry = self._endpoints.ask_registry
        return inside

    def _servers(self) -> dict[int, Server]:
        return {number: broker.server for number, broker in self.brokers.items() if broker.is_running}

    async def _stop_all(self) -> None:
        await self._endpoints.stop_registry()
        await self._endpoints.stop()
        self.nodes.is_stopping = True
        for broker in self.brokers.values():
            if broker.is_running and self.nodes.network.is_paused(broker.node_id):
                broker.node.resume()
        for number, broker in self.brokers.items():
            await self._process_of(number).end_start()
            await broker.stop()
        for controller in self.controllers.values():
            if controller.is_running and self.nodes.network.is_paused(controller.node_id):
                controller.node.resume()
            await controller.stop()
        if isinstance(self._clock, VirtualClock):
            self._clock.let_go(self.nodes.timer)
        self.nodes.stop()

    # -- what it is --------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers` setting: all brokers, including those that are down."""
        return self.bootstrap_for(None)

    def bootstrap_for(self, listener: str | None) -> str:
        """The bootstrap addresses of a listener by its name: `cluster.bootstrap_for("SASL_SSL")`."""
        return ",".join(broker.bootstrap_for(listener) for broker in self.brokers.values())

    def client_config(self, client: ClientName, role: Role = "common") -> Settings:
        """Client settings: the addresses and short delays. They contain no login, because users are in the settings."""
        return client_config(self.bootstrap, client, role)

    def __repr__(self) -> str:
        return f"<Cluster at {self.bootstrap}>" if self.is_running else "<Cluster, not running>"

    @property
    def clock(self) -> VirtualClock:
        """The time of all brokers, for `clock.advance(minutes=10)`; needs `clock="virtual"`."""
        return next(iter(self.brokers.values())).clock

    @property
    def registry_access(self) -> Access:
        """Access to the registry for its handles."""
        return self.own_registry().access(self)

    @property
    def registry(self) -> Any:
        """The schema registry, with the methods of `Broker.registry`; needs `registry=0` or a port."""
        kind = registry_handle.RegistryHandle if self._is_elsewhere else registry_handle.AsyncRegistry
        return kind(self.registry_access)

    def broker(self, broker_id: int) -> ClusterBroker:
        """One broker, for its faults, its requests and its data."""
        if broker_id not in self.brokers:
            raise ValueError(f"there is no broker {broker_id}; the brokers are {', '.join(map(str, self.brokers))}")
        return self.brokers[broker_id]

    def running(self) -> list[int]:
        return [number for number, broker in self.brokers.items() if broker.is_running]

    # -- looking inside ----------------------------------------------------------------------------------------

    def call(self, work: Callable[[ClusterServer], T]) -> T:
        """Run `work` on the cluster's loop, with a view of the cluster as one server."""
        view = ClusterServer(self.nodes)
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
        return ClusterServer(self.nodes)

    # The interface of a broker that faults, handles and the control endpoint use, for the whole cluster.

    @property
    def served_apis(self) -> tuple[Api, ...]:
        return next(iter(self.brokers.values())).served_apis

    @property
    def api_names(self) -> frozenset[str]:
        return next(iter(self.brokers.values())).api_names

    @property
    def disk_faults(self) -> DiskFaults | None:
        return next(iter(self.brokers.values())).disk_faults

    @property
    def thread(self) -> int | None:
        """The thread in which the brokers run."""
        return self._loop_thread

    @property
    def is_running(self) -> bool:
        return self._loop is not None and bool(self.running())

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def topic(self, name: str) -> ClusterTopic:
        """A topic of the cluster, with the methods of `Broker.topic`. Any broker may lead its partitions."""
        embedded: Any = self
        return SyncClusterTopic(embedded, name) if self._is_elsewhere else AsyncClusterTopic(embedded, name)

    def topics(self) -> list[str]:
        return self.call(lambda server: [name for name in server.topic_names() if name not in self._hidden_topics])

    @property
    def _hidden_topics(self) -> frozenset[str]:
        """The topic of the registry, if the cluster has a registry."""
        return frozenset() if self._endpoints.schemas is None else frozenset({own_registry.TOPIC})

    def group(self, group_id: str) -> Group:
        """A group of the cluster, with the methods of `Broker.group`. Any broker may coordinate it."""
        embedded: Any = self
        return Group(embedded, group_id)

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return self.call(lambda server: group_ids(server.as_server))

    def reset(
        self,
        *,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        subjects: Iterable[str] | None = None,
    ) -> None:
        """Remove all topics, groups and subjects, or only the given ones; clear the faults, and repair the network.

        Brokers that are down stay down.
        """

        def reset(server: ClusterServer) -> None:
            for group_id in group_ids(server.as_server) if groups is None else groups:
                remove_group(server.as_server, group_id)
            names = set(server.topic_names()) - self._hidden_topics if topics is None else set(topics)
            if self._endpoints.schemas is not None:
                self._endpoints.schemas.reset(subjects)
                names |= {own_registry.TOPIC} if subjects is None else set()
            server.controller.delete_topics([found for name in names if (found := server.metadata.topics.get(name))])

        self.faults.clear()
        for broker in self.brokers.values():
            broker.faults.clear()
        self.call(reset)
        self.heal()
        for clock in self._node_clocks.values():
            clock.skew_ms = 0
        for node in (*self.brokers.values(), *self.controllers.values()):
            node._log.clear()

    def run_scenario(self, scenario: Scenario) -> Any:
        """Run a scenario (a path, or its steps) and return the results of its steps; see docs/faults.md."""
        return self._do(cluster_scenario.run_on_cluster(self, scenario))

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic; `assignments` lists the replicas of each partition, the preferred leader first."""
        wanted = NewTopic(
            name,
            -1 if assignments else partitions,
            -1 if assignments else replication_factor,
            [(index, list(replicas)) for index, replicas in enumerate(assignments or ())],
            {key: str(value) for key, value in (config or {}).items()},
        )

        self._await_controller()

        def create(server: ClusterServer) -> None:
            outcome = server.controller.create_topics([wanted])[0]
            if isinstance(outcome, KafkaError):
                raise ValueError(f"topic {name!r} cannot be created: {outcome.message}") from outcome

        self.call(create)

    def partition(self, topic: str, partition: int = 0) -> PartitionView:
        """Leader, replicas, ISR and epochs from the controller, and the offsets of each replica."""
        return self.call(lambda server: server.partition_view(topic, partition))

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads the partition; -1 if there is none."""
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
        """The requests to all brokers, and the actions on the cluster, in order of time."""
        found: dict[int, Request | ControlEvent] = {}
        which = {key: named(value) for key, value in filters.items()}
        for node in (*self.brokers.values(), *self.controllers.values()):
            found.update((id(seen), seen) for seen in node._log.find(**which))
        return sorted(found.values(), key=lambda seen: seen.number)

    def wait_until(self, holds: Callable[[Cluster], bool], timeout: float = 60.0) -> Any:
        """Wait until `holds(cluster)`; AssertionError after `timeout` seconds of real time."""
        if self._is_elsewhere and _is_in_a_loop():
            raise RuntimeError("this would block the event loop: use `await cluster.wait_until_async(…)` here")
        return self._do(self._wait_until(holds, timeout), timeout)

    async def wait_until_async(self, holds: Callable[[Cluster], bool], timeout: float = 60.0) -> None:
        """The same for asyncio tests on a cluster with a thread: their loop keeps running."""
        assert self._loop is not None
        waiting = asyncio.run_coroutine_threadsafe(self._wait_until(holds, timeout), self._loop)
        await asyncio.wrap_future(waiting)

    def wait_in_sync(self, topic: str | None = None, timeout: float = 60.0) -> Any:
        """Wait until every partition (of a topic) has a leader and all of its replicas are in sync."""
        return self.wait_until(lambda cluster: cluster._is_in_sync(topic), timeout)

    async def wait_in_sync_async(self, topic: str | None = None, timeout: float = 60.0) -> None:
        await self.wait_until_async(lambda cluster: cluster._is_in_sync(topic), timeout)

    def _is_in_sync(self, topic: str | None) -> bool:
        return all(state.leader >= 0 and set(state.isr) == set(state.replicas) for state in self._states(topic))

    def _states(self, topic: str | None) -> Iterator[PartitionState]:
        for known, state in self.nodes.controller.image.partitions():
            if topic is None or known.name == topic:
                yield state

    async def _wait_until(self, holds: Callable[[Cluster], bool], timeout: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not holds(self):
            if loop.time() > deadline:
                raise AssertionError(f"the condition did not hold within {timeout:g} s; the cluster: {self.describe()}")
            await asyncio.sleep(0.01)

    def describe(self) -> dict[str, Any]:
        """Brokers, leaders and network problems, for people and for the control endpoint."""
        return self.call(
            lambda server: {
                "bootstrap": self.bootstrap,
                "brokers": {str(number): self._state_of(number) for number in self.brokers},
                "topics": server.describe_topics(),
                "replicas": {str(number): still_on(server.metadata, number) for number in self.brokers},
                "network": self.nodes.network.describe(),
                "clock_skew_ms": self._describe_clocks(),
                **self._describe_controllers(),
            }
        )

    def _state_of(self, broker_id: int) -> str:
        broker = self.brokers[broker_id]
        if not broker.is_running:
            return "starting" if broker.is_starting else "down"
        if self.nodes.network.is_paused(broker_id):
            return "paused"
        known = self.nodes.controller.image.brokers.get(broker_id)
        return "fenced" if known is None or known.fenced else "running"


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


__all__ = ["CONTROLLER", "Cluster", "ClusterBroker", "Config"]
