"""The broker: starts and stops its storage, its part of the cluster and its listeners, in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla import lazy_imports
from ottla.clock import Clock, SystemClock, Timer
from ottla.config import Config, ConfigError
from ottla.enums import ConfigResourceType
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.log.checkpoints import MetaProperties
from ottla.log.files import Disk, MemoryDisk, PosixDisk
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller, Randomness
from ottla.metadata.image import MetadataImage
from ottla.replication.replicas import Replicas
from ottla.server.api import Registry, registered_apis
from ottla.server.coordinators import Coordinators
from ottla.server.directory import Directory
from ottla.server.housekeeping import Housekeeper
from ottla.server.net.busy_poll import Pace
from ottla.server.net.connection import Connection
from ottla.server.net.connections import Connections
from ottla.server.net.listener import BoundListener, ListenError
from ottla.server.peers import Channel, PeerServer
from ottla.server.producer_ids import ProducerIds
from ottla.server.randomness import SystemRandomness
from ottla.server.registration import WILDCARDS, Advertised, advertised_addresses, registration_record
from ottla.server.security.manager import Security
from ottla.server.services import Access, CoordinatorServices, CurrentConfig, MadeLate, SecurityServices, Services
from ottla.server.topology import Topology
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.runtime import loader
    from ottla.coordinator.runtime.loader import Loader
    from ottla.log import multi_dir_disk
    from ottla.log.checkpoint_writer import FolderCheckpoints
    from ottla.metadata.metadata_source import MetadataSource
    from ottla.server import log_dirs
    from ottla.server.log_dirs import LogDirs
    from ottla.server.share.manager import ShareGroups
    from ottla.server.transactions import TransactionsOfBroker
else:
    loader = lazy("ottla.coordinator.runtime.loader")
    log_dirs = lazy("ottla.server.log_dirs")
    multi_dir_disk = lazy("ottla.log.multi_dir_disk")

logger = logging.getLogger(__name__)

_STOP_GRACE_S = 2.0
"""How long a stop waits for clients to read pending answers."""

_NEVER_MS = 1 << 62


def disk_for(config: Config) -> PosixDisk:
    """A disk over the configured data folders."""
    folders, metadata_folder = config.log_dirs, config["metadata.log.dir"]
    if len(folders) == 1 and metadata_folder == folders[0]:
        return PosixDisk(folders[0])
    return multi_dir_disk.MultiDirDisk(folders, metadata_folder)


class StartError(Exception):
    """The broker cannot start; the message says why and what to do."""


class Broker:
    """A broker, assembled from its parts. Start it on the running event loop; `stop` leaves nothing behind."""

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
        """`topology` describes the broker's surroundings; without it, this is a single broker."""
        config = config if config is not None else Config.load(preset="dev", overrides={"listeners": _ANY_PORT})
        self._current = CurrentConfig(config)
        self.disk: Disk = disk if disk is not None else MemoryDisk()
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.chance: Randomness = chance if chance is not None else SystemRandomness()
        self.registry = registry if registry is not None else registered_apis()
        self.node_id: int = self.config.node_id
        self.controller_id = self.node_id
        self.metadata = MetadataImage()
        self.loop: asyncio.AbstractEventLoop
        self.timer: Timer
        self.logs: LogManager
        self.identity: MetaProperties
        self.directory_id = ZERO_UUID
        self.log_dirs: LogDirs | None = None
        """Set if there are several data folders."""
        self.housekeeper: Housekeeper
        self.replicas: Replicas
        self.coordinators: Coordinators
        self.controller: Controller
        self.directory: Directory
        self.security: Security
        self.access = Access()
        self.services: Services
        """The services that request handlers use."""
        self.metadata_log: MetadataSource
        self._listeners: list[BoundListener] = []
        self.connections: Connections
        self.pace: Pace | None = None
        """Set if the process only serves clients: a busy connection may keep the loop for a moment."""
        self.channel: Channel
        self.producer_ids: ProducerIds
        self.peer_server: PeerServer
        self.has_halted = False
        """Whether it stopped because of its disk."""
        self.on_halt: Callable[[], None] = lambda: None
        """Called after such a stop."""
        self.wildcard_listeners: frozenset[str] = frozenset()
        """Listeners on all interfaces without an advertised address."""
        self._running = False
        self.topology = topology if topology is not None else Topology()
        self.topology.assemble(self)

    # -- lifecycle ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind, open the data folder, register, and accept clients. Nothing is changed if a port cannot be bound."""
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
            self.connections = Connections(self._current, self.clock, self.timer, self._connection_closed, self.pace)
            self.security = Security(self._security_services())
            self._bind()
            self._open_storage()
            await self._open_services()
        except BaseException:
            self._release()
            raise
        self._running = True
        self._watch_folders()
        for listener in self._listeners:
            listener.start(self.loop, self._connected)

    async def _open_services(self) -> None:
        """Join the cluster, and load the coordinators' state from the logs."""
        self.directory = Directory(self.metadata, self.controller, self.topology.unaddressed)
        self.topology.register()
        self.registry = self.security.open(self.registry)
        self.metadata_log.subscribe(self.security.metadata_changed)
        self.coordinators = Coordinators(
            self._coordinator_services(),
            self.metadata_log,
            self.topology.create_share_state_topic,
            answers_before_markers=self.topology.answers_before_markers,
        )
        self.coordinators.start()
        self.services = self._new_services()
        self.peer_server = self.topology.new_peer_server()
        self.housekeeper = Housekeeper(self.logs, self.loop, self.timer, lambda: self.config)
        self._housekeeping()
        if self.log_dirs is not None:
            self.log_dirs.start(self.metadata_log)
        await self.security.start(self.controller if self.is_controller else None)
        await self.topology.before_serving()
        self.transactions.others_reachable()

    async def stop(self, *, keep_data: bool = True) -> None:
        """Stop accepting, finish the current requests, close the logs cleanly. Safe to call twice.

        Without `keep_data` the logs are not closed, because the data will be replaced.
        """
        if not self._running:
            return
        self.topology.before_stop()
        self._running = False
        for listener in self._listeners:
            listener.close()
        self.coordinators.stop()
        for partition in self.replicas:
            partition.changed()  # long polls are answered now
        await self.connections.finish(_STOP_GRACE_S)
        await self.security.stop()
        await self.housekeeper.stop()
        if self.log_dirs is not None:
            self.log_dirs.stop()
        await self.topology.before_closing()
        if keep_data:
            self.logs.close(self.epoch)
        else:
            self.logs.give_up()
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
        self.connections.close()
        self.coordinators.stop()
        self._release()
        self.topology.ended()

    @property
    def is_running(self) -> bool:
        """Whether clients are served."""
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

    def new_log_manager(self, folder_checkpoints: FolderCheckpoints | None = None) -> LogManager:
        return LogManager(
            self.disk,
            self.replicas.log_config,
            self.clock,
            new_token=lambda: self.chance.uuid().hex(),
            schedule=self.timer.schedule,
            background=self.in_background,
            folder_checkpoints=folder_checkpoints,
        )

    def open_log_dirs(self) -> None:
        """With several data folders, find out which log is in which folder."""
        if self.disk.is_spread:
            assert isinstance(self.disk, multi_dir_disk.MultiDirDisk)
            self.log_dirs = log_dirs.LogDirs(self, self.disk)

    def _watch_folders(self) -> None:
        """Handle failures of data folders on the loop, regardless of the thread in which they occur, after the current
        call."""
        if isinstance(self.disk, PosixDisk):

            def failed(root: str, what: str) -> None:
                self.loop.call_soon_threadsafe(self.folder_failed, root, what)

            self.disk.watch(failed)

    def folder_failed(self, root: str, what: str) -> None:
        """A broker that loses its metadata folder, or its last folder, stops at once, as Apache Kafka does."""
        if not self._running or (self.log_dirs is not None and self.log_dirs.take_offline(root, what)):
            return
        logger.critical(
            "the data folder %s failed (%s), and the broker cannot continue without it, so it stops. Repair the folder "
            "and start the broker again",
            root,
            what,
        )
        self.halt()

    def halt(self) -> None:
        """Stop at once because of the disk; the caller has logged why."""
        self.has_halted = True
        self.kill()
        self.on_halt()

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
            log_dirs=self.log_dirs,
            coordinators=self.coordinators,
            producer_ids=self.producer_ids,
            security=self.security,
            access=self.access,
            clock=self.clock,
            timer=self.timer,
            loop=self.loop,
            randomness=self.chance,
        )

    def _security_services(self) -> SecurityServices:
        return SecurityServices(
            current=self._current,
            metadata=self.metadata,
            access=self.access,
            connections=self.connections,
            clock=self.clock,
            timer=self.timer,
            loop=self.loop,
            randomness=self.chance,
        )

    def _coordinator_services(self) -> CoordinatorServices:
        return CoordinatorServices(
            node_id=self.node_id,
            current=self._current,
            metadata=self.metadata,
            directory=self.directory,
            replicas=self.replicas,
            channel=self.channel,
            producer_ids=self.producer_ids,
            clock=self.clock,
            timer=self.timer,
            loop=self.loop,
            randomness=self.chance,
            loader=lambda: self._coordinator_loader,
            pace=self.pace,
        )

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
        """The configured size; by default the kernel finds a better size than Kafka's default of 100 KB."""
        return int(self.config[key]) if key in self.config.static else -1

    def _open_storage(self) -> None:
        self.replicas = Replicas(self.node_id, self.metadata, lambda: self.config, self.clock)
        self.logs = self.topology.new_logs()
        self.replicas.use(self.logs)
        self.topology.open_metadata()
        self.metadata.removed_topics.clear()  # `open_logs` recovers them after a crash
        self._apply_dynamic_config()
        self.topology.open_logs()
        self.topology.recover_logs()
        self.metadata_log.subscribe(self._follow_dynamic_config)
        self.metadata_log.subscribe(self.replicas.metadata_changed)

    def advertise(self) -> list[Advertised]:
        """The addresses of this broker for its registration."""
        advertised = advertised_addresses(self.config, self._listeners)
        self.wildcard_listeners = frozenset(name for name, host, _ in advertised if not host)
        return advertised

    def registration(self, broker_id: int, advertised: Sequence[Advertised], epoch: int) -> stored.RegisterBrokerRecord:
        directories = self.topology.directories_of(broker_id)
        return registration_record(
            broker_id, self.chance.uuid(), epoch, self.config, self._listeners, advertised, directories
        )

    def _follow_dynamic_config(self, records: Sequence[Message]) -> None:
        """Apply dynamic settings as soon as they are in the metadata, before the partitions read them."""
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
            # They were checked when they were set, but the properties file may have changed since.
            logger.error("the dynamic settings are ignored: %s", error)

    def _housekeeping(self) -> None:
        """Periodic work: retention, checkpoints, flushes, expiry of old producers."""
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
        """Run slow disk work in a thread; `done` runs on the loop after success."""

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
        """Serve nothing for a while, like a stopped process (SIGSTOP): connections stay open, nothing is answered."""
        self.timer.pause()
        for listener in self._listeners:
            listener.hold()
        self.connections.hold_back()

    def resume(self) -> None:
        self.timer.resume()

    def release_connections(self) -> None:
        """After `resume`: serve clients again."""
        for listener in self._listeners:
            listener.release()
        self.connections.let_go()

    @property
    def bound_listeners(self) -> Sequence[BoundListener]:
        return self._listeners

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """(host, port) of every listener."""
        return [(listener.config.host or "0.0.0.0", listener.port) for listener in self._listeners]

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for a client."""
        if not self._running:
            raise RuntimeError("the broker is not running; start it before asking for its bootstrap address")
        host, port = self.addresses[0]
        return f"{'127.0.0.1' if host in WILDCARDS else host}:{port}"

    def _connected(self, bound: BoundListener, sock: socket.socket, address: tuple[str, int]) -> None:
        connection = self.security.accept(bound, sock, address, self.services, self.connections)
        if connection is not None:
            self.connections.add(connection)

    def _connection_closed(self, connection: Connection) -> None:
        self.security.closed(connection)
        if self.coordinators.share_in_use is not None:
            self.coordinators.share_in_use.connection_closed(connection)

    # -- the cluster -------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The current settings."""
        return self._current.config

    @cached_property
    def _coordinator_loader(self) -> Loader:
        """Loads the coordinators' state from the logs, while clients are served."""
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
        """The leader epoch of the metadata quorum: it increases by one with every start."""
        return self.metadata_log.leader_epoch

    @property
    def epoch(self) -> int:
        """The broker epoch: the offset of its registration."""
        return self.topology.epoch

    @property
    def is_controller(self) -> bool:
        """Whether this broker writes the metadata."""
        return self.metadata_log.is_own


_ANY_PORT = "PLAINTEXT://127.0.0.1:0"
