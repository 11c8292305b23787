"""The broker: storage, its part of the cluster and its listeners, put together and taken apart in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence, Set
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from ottla import lazy_imports
from ottla.clock import Clock, SystemClock, Timer
from ottla.config import Config, ConfigError
from ottla.enums import ConfigResourceType
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.log.checkpoints import MetaProperties
from ottla.log.files import Disk, MemoryDisk
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller, Randomness
from ottla.metadata.image import MetadataImage
from ottla.replication.replicas import Replicas
from ottla.server.api import Registry, registered_apis
from ottla.server.coordinators import Coordinators
from ottla.server.directory import Directory
from ottla.server.groups import GroupsOfBroker
from ottla.server.housekeeping import Housekeeper
from ottla.server.net.buffers import ReceiveBuffers
from ottla.server.net.busy_poll import Pace
from ottla.server.net.connection import Connection
from ottla.server.net.listener import BoundListener, ListenError
from ottla.server.peers import Channel, PeerServer
from ottla.server.producer_ids import ProducerIds
from ottla.server.randomness import SystemRandomness
from ottla.server.registration import WILDCARDS, Advertised, advertised_addresses, registration_record
from ottla.server.security.manager import Security
from ottla.server.services import Access, CurrentConfig, MadeLate, Services
from ottla.server.topology import Topology
from ottla.server.transactions import TransactionsOfBroker
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.runtime import loader
    from ottla.coordinator.runtime.loader import Loader
    from ottla.log import multi_dir_disk
    from ottla.metadata.metadata_source import MetadataSource
    from ottla.server import log_dirs
    from ottla.server.log_dirs import SpreadFolders
    from ottla.server.share import manager as share_manager
    from ottla.server.share import state as share_state
    from ottla.server.share.manager import ShareGroups
else:
    loader = lazy("ottla.coordinator.runtime.loader")
    log_dirs = lazy("ottla.server.log_dirs")
    multi_dir_disk = lazy("ottla.log.multi_dir_disk")
    share_manager = lazy("ottla.server.share.manager")
    share_state = lazy("ottla.server.share.state")

logger = logging.getLogger(__name__)

LogsT = TypeVar("LogsT", bound=LogManager)

_STOP_GRACE_S = 2.0
"""How long a stop waits for clients to take the answers that were already on their way."""

_NEVER_MS = 1 << 62


class StartError(Exception):
    """The broker cannot start; the message says why and what to do."""


class Broker:
    """A broker, put together from its parts. Start it on the running event loop; `stop` leaves nothing behind."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        chance: Randomness | None = None,
        registry: Registry | None = None,
        topology: Topology | None = None,
    ) -> None:
        """`topology` says what is around the broker; without one it is alone."""
        config = config if config is not None else Config.load(preset="dev", overrides={"listeners": _ANY_PORT})
        self._current = CurrentConfig(config)
        self.disk: Disk = disk if disk is not None else MemoryDisk()
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.chance: Randomness = chance if chance is not None else SystemRandomness()
        self.registry = registry if registry is not None else registered_apis()
        self.buffers = ReceiveBuffers()
        self.node_id: int = self.config.node_id
        self.controller_id = self.node_id
        self.request_bytes_max: int = self.config["socket.request.max.bytes"]
        self.request_elements_max = self.request_bytes_max // BYTES_PER_ELEMENT
        self.metadata = MetadataImage()
        self.loop: asyncio.AbstractEventLoop
        self.timer: Timer
        self.logs: LogManager
        self.identity: MetaProperties
        self.directory_id = ZERO_UUID
        self.spread: SpreadFolders | None = None
        """Set where there are several data folders."""
        self.housekeeper: Housekeeper
        self.replicas: Replicas
        self.coordinators: Coordinators
        self.controller: Controller
        self.directory: Directory
        self.security: Security
        self.access = Access()
        self.services: Services
        """What handlers use."""
        self.metadata_log: MetadataSource
        self._listeners: list[BoundListener] = []
        self._connections: set[Connection] = set()
        self.pace: Pace | None = None
        """Set where the process does nothing but serve: a busy connection may keep the loop for a moment."""
        self._all_closed: asyncio.Future[None] | None = None
        self.channel: Channel
        self.producer_ids: ProducerIds
        self.peer_server: PeerServer
        self.wildcard_listeners: frozenset[str] = frozenset()
        """Those that are open on all interfaces, and advertise no address."""
        self._running = False
        self.topology = topology if topology is not None else Topology()
        self.topology.assemble(self)

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind, open the data folder, register, and accept clients. Nothing is touched if a port cannot be bound."""
        try:
            await self.topology.before_start()
            await self._start()
        except BaseException:
            self.topology.ended()
            raise
        self.topology.serving()

    async def _start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.timer = Timer(self.clock, self.loop)
        lazy_imports.started()
        try:
            self.security = Security(self)
            self._bind()
            self._open_storage()
            await self._open_services()
        except BaseException:
            self._release()
            raise
        self._running = True
        for listener in self._listeners:
            listener.start(self.loop, self._connected)

    async def _open_services(self) -> None:
        """Enter the cluster, and load what the coordinators keep in the logs."""
        self.directory = Directory(self.metadata, self.controller, self.topology.unaddressed)
        self.topology.register()
        self.security.open()
        self.metadata_log.subscribe(self.security.metadata_changed)
        transactions = TransactionsOfBroker(
            self, self.channel, answers_before_markers=self.topology.answers_before_markers
        )
        self.coordinators = Coordinators(GroupsOfBroker(self), transactions, self._new_share)
        self.coordinators.start(self.metadata_log)
        self.services = self._new_services()
        self.peer_server = self.topology.new_peer_server()
        self.housekeeper = Housekeeper(self.logs, self.loop, self.timer, lambda: self.config)
        self._housekeeping()
        if self.spread is not None:
            self.spread.start(self.metadata_log)
        await self.security.start()
        await self.topology.before_serving()
        self.transactions.others_reachable()

    async def stop(self) -> None:
        """Stop accepting, finish what is on its way, close the log cleanly. Safe to call twice."""
        if not self._running:
            return
        self.topology.before_stop()
        self._running = False
        for listener in self._listeners:
            listener.close()
        self.coordinators.stop()
        for partition in self.replicas:
            partition.changed()  # long polls are answered now
        for connection in tuple(self._connections):
            connection.finish()
        if self._connections:
            self._all_closed = self.loop.create_future()
            await asyncio.wait([self._all_closed], timeout=_STOP_GRACE_S)
        for connection in tuple(self._connections):
            connection.close()
        await self.security.stop()
        await self.housekeeper.stop()
        if self.spread is not None:
            self.spread.stop()
        await self.topology.before_closing()
        self.logs.close(self.epoch)
        self._release()
        self.topology.ended()
        self.topology.stopped()

    def kill(self) -> None:
        """End as a killed process does: sockets closed, nothing written, no marker of a clean shutdown."""
        if not self._running:
            return
        self.topology.before_kill()
        self._running = False
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self._connections):
            connection.close()
        self.coordinators.stop()
        self._release()
        self.topology.ended()

    @property
    def is_running(self) -> bool:
        """Clients are served."""
        return self._running

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _release(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        lazy_imports.stopped()
        self.timer.close()
        self.disk.close()

    # -- parts -------------------------------------------------------------------------------------------------

    def new_log_manager(self, kind: type[LogsT]) -> LogsT:
        return kind(
            self.disk,
            self.replicas.log_config,
            self.clock,
            new_token=lambda: self.chance.uuid().hex(),
            schedule=self.timer.schedule,
            background=self.in_background,
        )

    def open_log_dirs(self) -> None:
        """With several data folders: know which log is in which."""
        if len(self.disk.parts()) > 1:
            assert isinstance(self.disk, multi_dir_disk.MultiDirDisk)
            self.spread = log_dirs.SpreadFolders(self, self.disk)

    def _new_services(self) -> Services:
        return Services(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            current=self._current,
            late=MadeLate(self._current, self.metadata, self.clock, self.chance),
            registry=self.registry,
            metadata=self.metadata,
            metadata_log=self.metadata_log,
            controller=self.controller,
            directory=self.directory,
            replicas=self.replicas,
            logs=self.logs,
            log_dirs=self.spread,
            coordinators=self.coordinators,
            producer_ids=self.producer_ids,
            security=self.security,
            access=self.access,
            clock=self.clock,
            timer=self.timer,
            loop=self.loop,
            randomness=self.chance,
        )

    def _new_share(self) -> ShareGroups:
        return share_manager.ShareGroups(self, share_state.ShareStates(self, self.channel))

    def _bind(self) -> None:
        for listener, sock in self.topology.sockets():
            self._listeners.append(
                BoundListener(
                    listener,
                    self.config["socket.listen.backlog.size"],
                    self._buffer_size("socket.send.buffer.bytes"),
                    self._buffer_size("socket.receive.buffer.bytes"),
                    sock,
                )
            )
        if not self._listeners:
            raise ListenError("no listener is configured (see the setting `listeners`)")

    def _buffer_size(self, key: str) -> int:
        """What somebody asked for; without that the kernel finds a better size than Kafka's default of 100 KB."""
        return int(self.config[key]) if key in self.config.static else -1

    def _open_storage(self) -> None:
        self.replicas = Replicas(self.node_id, self.metadata, lambda: self.config, self.clock)
        self.logs = self.topology.new_logs()
        self.replicas.use(self.logs)
        self.topology.open_metadata()
        self.metadata.removed_topics.clear()  # `open_logs` looks after what a crash left of them
        self._apply_dynamic_config()
        self.topology.open_logs()
        self.logs.load_all()
        self.metadata_log.subscribe(self._follow_dynamic_config)
        self.metadata_log.subscribe(self.replicas.metadata_changed)

    def advertise(self) -> list[Advertised]:
        """The addresses of this broker for its registration."""
        advertised = advertised_addresses(self.config, self._listeners)
        self.wildcard_listeners = frozenset(name for name, host, _ in advertised if not host)
        return advertised

    def registration(self, broker_id: int, advertised: Sequence[Advertised], epoch: int) -> stored.RegisterBrokerRecord:
        log_dirs = [self.topology.directory_of(broker_id)] if self.spread is None else self.spread.directory_ids
        return registration_record(
            broker_id, self.chance.uuid(), epoch, self.config, self._listeners, advertised, log_dirs
        )

    def _follow_dynamic_config(self, records: Sequence[Message]) -> None:
        """Dynamic settings are in force as soon as they are in the metadata; partitions ask for them next."""
        if any(
            isinstance(record, stored.ConfigRecord) and record.resource_type == ConfigResourceType.BROKER
            for record in records
        ):
            self._apply_dynamic_config()
            self.security.config_changed()

    def _apply_dynamic_config(self) -> None:
        cluster, own = self.metadata.broker_configs(self.node_id)
        try:
            self._current.config = self.config.with_dynamic(cluster, own)
        except ConfigError as error:
            # They were checked when they were set, but a properties file may have changed under them.
            logger.error("the dynamic settings are left aside: %s", error)

    def _housekeeping(self) -> None:
        """What is done now and then: retention, checkpoints, flushes, forgetting of old producers."""
        config = self.config
        self.housekeeper.start()
        self.every(
            config["log.retention.check.interval.ms"],
            self.housekeeper.sweep,
            first_ms=config["log.initial.task.delay.ms"],
        )
        self.every(config["log.flush.offset.checkpoint.interval.ms"], self.logs.checkpoint_recovery_points)
        self.every(
            config["log.flush.start.offset.checkpoint.interval.ms"],
            self.logs.checkpoint_start_offsets,
            self.logs.checkpoint_high_watermarks,
        )
        self.every(config["producer.id.expiration.check.interval.ms"], self.logs.expire_producers)
        if config["log.flush.scheduler.interval.ms"] < _NEVER_MS:
            self.every(config["log.flush.scheduler.interval.ms"], self.logs.flush_due)

    def every(self, interval_ms: int, *jobs: Callable[[], object], first_ms: int | None = None) -> None:
        def run() -> None:
            for job in jobs:
                try:
                    job()
                except KafkaError as error:
                    logger.error("%s failed: %s", job.__name__, error)
            self.timer.schedule(interval_ms, run)

        self.timer.schedule(interval_ms if first_ms is None else first_ms, run)

    def in_background(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run slow disk work in a thread; `done` runs on the loop if it went well."""

        def finished(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                done()
            else:
                logger.error("flushing in the background failed: %s", error)

        self.loop.run_in_executor(None, work).add_done_callback(finished)

    # -- connections -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Serve nobody for a while, as a process that is stopped (SIGSTOP): connections stay, nothing is answered."""
        self.timer.pause()
        for listener in self._listeners:
            listener.hold()
        for connection in self._connections:
            connection.hold_back()

    def resume(self) -> None:
        self.timer.resume()

    def release_connections(self) -> None:
        """After `resume`: serve clients again."""
        for listener in self._listeners:
            listener.release()
        for connection in tuple(self._connections):
            connection.let_go()

    @property
    def connections(self) -> Set[Connection]:
        """Those of all listeners."""
        return self._connections

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(host, port) of every listener."""
        return [(listener.config.host or "0.0.0.0", listener.port) for listener in self._listeners]

    @property
    def bootstrap(self) -> str:
        """What to give a client as `bootstrap.servers`."""
        if not self._running:
            raise RuntimeError("the broker is not running; start it before asking for its bootstrap address")
        host, port = self.addresses[0]
        return f"{'127.0.0.1' if host in WILDCARDS else host}:{port}"

    def _connected(self, bound: BoundListener, sock: socket.socket, address: tuple[str, int]) -> None:
        connection = self.security.accept(bound, sock, address)
        if connection is None:
            return
        self._connections.add(connection)
        self._watch_idleness(connection)

    def _watch_idleness(self, connection: Connection) -> None:
        """Close a connection that nothing moved on for `connections.max.idle.ms`; one timer each, set anew rarely."""
        limit_ms = self.config["connections.max.idle.ms"]
        if limit_ms < 0:
            return

        def check() -> None:
            left_ms = connection.last_active_ms + limit_ms - self.clock.monotonic_ms()
            if left_ms > 0:
                connection.idle_timer = self.timer.schedule(left_ms, check)
            else:
                connection.close("idle for longer than connections.max.idle.ms", logging.INFO)

        connection.idle_timer = self.timer.schedule(limit_ms, check)

    def connection_closed(self, connection: Connection) -> None:
        if connection.idle_timer is not None:
            connection.idle_timer.cancel()
        self._connections.discard(connection)
        self.security.closed(connection)
        if self.coordinators.share_in_use is not None:
            self.coordinators.share_in_use.connection_closed(connection)
        if not self._connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    # -- the cluster -------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings as they are now."""
        return self._current.config

    @cached_property
    def coordinator_loader(self) -> Loader:
        """Loads what the coordinators keep in the logs, while clients are served."""
        return loader.Loader(self.clock, self.loop.call_soon, owns_process=self.pace is not None)

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordinators.groups.coordinator

    @property
    def transactions(self) -> TransactionsOfBroker:
        return self.coordinators.transactions

    @property
    def share(self) -> ShareGroups:
        return self.coordinators.share

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def metadata_offset(self) -> int:
        return self.metadata_log.last_offset

    @property
    def metadata_epoch(self) -> int:
        """The leader epoch of the metadata quorum: one more with every start."""
        return self.metadata_log.leader_epoch

    @property
    def epoch(self) -> int:
        """Which start of this broker it is: the offset of its registration."""
        return self.topology.epoch

    @property
    def is_controller(self) -> bool:
        """Whether this broker writes the metadata."""
        return self.metadata_log.is_own


BYTES_PER_ELEMENT = 512
"""A request may have an element, of any of its arrays, for each so many bytes of `socket.request.max.bytes`: 204,800
by default. Kafka has no such bound; here an element that takes a byte on the wire may take a kilobyte in memory."""
_ANY_PORT = "PLAINTEXT://127.0.0.1:0"
