"""The broker: storage, its part of the cluster and its listeners, put together and taken apart in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Container, Sequence, Set
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla import lazy_imports
from ottla.clock import Clock, SystemClock, Timer
from ottla.config import Config, ConfigError, Listener
from ottla.enums import ConfigResourceType
from ottla.errors import KafkaError
from ottla.log.checkpoints import MetaProperties
from ottla.log.files import Disk, MemoryDisk
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller, Randomness
from ottla.metadata.elections import elect_returned_broker, sharing_a_folder
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import MetadataImage
from ottla.metadata.metadata_log import METADATA_TOPIC_ID, MetadataLog
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC, SHARE_STATE_TOPIC
from ottla.replication.replicas import Replicas
from ottla.server.api import Registry, registered_apis
from ottla.server.coordination import GroupsOfBroker
from ottla.server.coordinators import Coordinators
from ottla.server.directory import Directory
from ottla.server.housekeeping import Housekeeper
from ottla.server.net.buffers import ReceiveBuffers
from ottla.server.net.busy_poll import Pace
from ottla.server.net.connection import Connection
from ottla.server.net.listener import BoundListener, ListenError
from ottla.server.peers import Channel, NoOtherBrokers, PeerServer
from ottla.server.producer_ids import ProducerIds
from ottla.server.randomness import SystemRandomness
from ottla.server.security.manager import SECURITY_PROTOCOLS, Security
from ottla.server.services import Access, CurrentConfig, MadeLate, Services
from ottla.server.transactions import TransactionsOfBroker
from ottla.wire.primitives import ZERO_UUID, uuid_from_base64, uuid_to_base64
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.runtime.loader import Loader
    from ottla.metadata.metadata_source import MetadataSource
    from ottla.server.log_dirs import SpreadFolders
    from ottla.server.share.manager import ShareGroups

logger = logging.getLogger(__name__)

_STOP_GRACE_S = 2.0
"""How long a stop waits for clients to take the answers that were already on their way."""

_NEVER_MS = 1 << 62

_WILDCARDS = ("", "0.0.0.0", "::")


class StartError(Exception):
    """The broker cannot start; the message says why and what to do."""


class Broker:
    """A single broker, its own controller. Start it on the running event loop; `stop` leaves nothing behind."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        chance: Randomness | None = None,
        registry: Registry | None = None,
    ) -> None:
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
        self.metadata = MetadataImage()
        self.loop: asyncio.AbstractEventLoop
        self.timer: Timer
        self.logs: LogManager
        self.identity: MetaProperties
        self._directory_id = ZERO_UUID
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
        self._metadata_log: MetadataSource
        self._listeners: list[BoundListener] = []
        self._connections: set[Connection] = set()
        self.pace: Pace | None = None
        """Set where the process does nothing but serve: a busy connection may keep the loop for a moment."""
        self._all_closed: asyncio.Future[None] | None = None
        self.channel: Channel = self._new_channel()
        self.producer_ids = self._new_producer_ids()
        self.peer_server: PeerServer
        self._wildcard_listeners: frozenset[str] = frozenset()
        self._running = False

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind, open the data folder, register, and accept clients. Nothing is touched if a port cannot be bound."""
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
        self.directory = Directory(self.metadata, self.controller, self._unaddressed)
        self._register()
        self.security.open()
        self._metadata_log.subscribe(self.security.metadata_changed)
        self.coordinators = Coordinators(GroupsOfBroker(self), self._new_transactions(), self._new_share)
        self.coordinators.start(self._metadata_log)
        self.services = self._new_services()
        self.peer_server = self._new_peer_server()
        self.housekeeper = Housekeeper(self.logs, self.loop, self.timer, lambda: self.config)
        self._housekeeping()
        if self.spread is not None:
            self.spread.start(self._metadata_log)
        await self.security.start()
        await self._before_serving()
        self.transactions.others_reachable()

    async def stop(self) -> None:
        """Stop accepting, finish what is on its way, close the log cleanly. Safe to call twice."""
        if not self._running:
            return
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
        await self._before_closing()
        self.logs.close(self.epoch)
        self._release()

    def kill(self) -> None:
        """End as a killed process does: sockets closed, nothing written, no marker of a clean shutdown."""
        if not self._running:
            return
        self._running = False
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self._connections):
            connection.close()
        self.coordinators.stop()
        self._release()

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

    # What a broker that shares its folder with other processes (ottla.workers) does in its own way.

    async def _before_serving(self) -> None:
        """Everything is loaded; clients are accepted after this."""

    async def _before_closing(self) -> None:
        """Every connection is gone; the logs are closed after this."""

    def _sockets(self) -> Sequence[tuple[Listener, socket.socket | None]]:
        """The listeners, with their socket where it is bound already."""
        return [(listener, None) for listener in self.config.listeners]

    def _new_logs(self) -> LogManager:
        return LogManager(
            self.disk,
            self.replicas.log_config,
            self.clock,
            new_token=lambda: self.chance.uuid().hex(),
            schedule=self.timer.schedule,
            background=self.in_background,
        )

    def _new_spread(self) -> SpreadFolders | None:
        if len(self.disk.parts()) == 1:
            return None
        from ottla.log.multi_dir_disk import MultiDirDisk
        from ottla.server.log_dirs import SpreadFolders

        assert isinstance(self.disk, MultiDirDisk)
        return SpreadFolders(self, self.disk)

    def _new_controller(self) -> Controller:
        return Controller(self.metadata, self._metadata_log, lambda: self.config, self.chance, self._directory_of)

    def _new_channel(self) -> Channel:
        return NoOtherBrokers()

    def _new_producer_ids(self) -> ProducerIds:
        return ProducerIds(lambda done: done(self.controller.allocate_producer_ids(self.node_id, self.epoch)))

    def _new_peer_server(self) -> PeerServer:
        return PeerServer(self.services, self.config.listeners[0])

    def _new_transactions(self) -> TransactionsOfBroker:
        return TransactionsOfBroker(self, self.channel)

    def create_share_state_topic(self, then: Callable[[KafkaError | None], None]) -> None:
        """Make the share coordinator's topic; `then` is called when it can be used."""
        self.controller.create_internal_topic(SHARE_STATE_TOPIC)
        then(None)

    def _new_services(self) -> Services:
        return Services(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            current=self._current,
            late=MadeLate(self._current, self.metadata, self.clock, self.chance),
            registry=self.registry,
            metadata=self.metadata,
            metadata_log=self._metadata_log,
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
        from ottla.server.share.manager import ShareGroups
        from ottla.server.share.state import ShareStates

        return ShareGroups(self, ShareStates(self, self.channel))

    def _bind(self) -> None:
        for listener, sock in self._sockets():
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
        self.logs = self._new_logs()
        self.replicas.use(self.logs)
        self.identity = self.logs.open(
            uuid_to_base64(self.chance.uuid()), self.node_id, uuid_to_base64(self.chance.uuid())
        )
        metadata_log = self.logs.get_or_create(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID)
        self.logs.metadata_log = metadata_log
        own_log = MetadataLog(self.disk, metadata_log, self.metadata, self.clock, self.node_id)
        self._metadata_log = own_log
        self._directory_id = uuid_from_base64(self.identity.directory_id or "")
        self.spread = self._new_spread()
        self.controller = self._new_controller()
        own_log.open(self.config["min.insync.replicas"])
        self.metadata.removed_topics.clear()  # set_strays_aside looks after what a crash left of them
        self._apply_dynamic_config()
        if self.spread is not None:
            self.spread.open()
        self.replicas.report_missing()
        self.replicas.set_strays_aside()
        self.logs.load_all()
        self._metadata_log.subscribe(self._follow_dynamic_config)
        self._metadata_log.subscribe(self.replicas.metadata_changed)

    def _register(self) -> None:
        """Enter this start of the broker in the metadata, with the addresses it can be reached at."""
        advertised = self._advertised()
        self._wildcard_listeners = frozenset(name for name, host, _ in advertised if not host)
        # Several workers may have had the folder before.
        self.controller.commit(list(sharing_a_folder(self.metadata, [self.node_id], self._directory_id)))
        self._metadata_log.append([self._registration(self.node_id, advertised, self._metadata_log.last_offset + 1)])
        self.controller.commit(
            list(elect_returned_broker(self.metadata, self.node_id, new_epochs=not self.logs.clean_start))
        )

    def _registration(
        self, broker_id: int, advertised: Sequence[tuple[str, str, int]], epoch: int
    ) -> stored.RegisterBrokerRecord:
        endpoint = stored.RegisterBrokerRecord.BrokerEndpoint
        protocols = {bound.config.name: bound.config.security_protocol for bound in self._listeners}
        feature = stored.RegisterBrokerRecord.BrokerFeature
        return stored.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=self.chance.uuid(),
            broker_epoch=epoch,
            end_points=[
                endpoint(
                    name=name,
                    host=host or socket.gethostname(),
                    port=port,
                    security_protocol=SECURITY_PROTOCOLS[protocols[name]],
                )
                for name, host, port in advertised
            ],
            features=[
                feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=self.config["broker.rack"],
            fenced=False,
            log_dirs=[self._directory_of(broker_id)] if self.spread is None else self.spread.directory_ids,
        )

    def _directory_of(self, broker_id: int) -> bytes:
        """The id of the data folder in which a broker that is registered here keeps its partitions."""
        return self._directory_id if self.spread is None else self.spread.id_for_new

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

    def _advertised(self) -> list[tuple[str, str, int]]:
        """(listener, host, port) as clients shall use them; the host is "" where any address of this machine does.

        A listener on port 0 advertises the port that it got.
        """
        configured = {listener.name: listener for listener in self.config.advertised_listeners}
        addresses = []
        for bound in self._listeners:
            own = bound.config
            shown = configured.get(own.name, own)
            host = "" if shown.host in _WILDCARDS else shown.host
            port = bound.port if shown.port == 0 or (shown is own or shown.port == own.port) else shown.port
            addresses.append((own.name, host, port))
        return addresses

    def _housekeeping(self) -> None:
        """What is done now and then: retention, checkpoints, flushes, forgetting of old producers."""
        config = self.config
        self.housekeeper.start()
        self._every(
            config["log.retention.check.interval.ms"],
            self.housekeeper.sweep,
            first_ms=config["log.initial.task.delay.ms"],
        )
        self._every(config["log.flush.offset.checkpoint.interval.ms"], self.logs.checkpoint_recovery_points)
        self._every(
            config["log.flush.start.offset.checkpoint.interval.ms"],
            self.logs.checkpoint_start_offsets,
            self.logs.checkpoint_high_watermarks,
        )
        self._every(config["producer.id.expiration.check.interval.ms"], self.logs.expire_producers)
        if config["log.flush.scheduler.interval.ms"] < _NEVER_MS:
            self._every(config["log.flush.scheduler.interval.ms"], self.logs.flush_due)

    def _every(self, interval_ms: int, *jobs: Callable[[], object], first_ms: int | None = None) -> None:
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
        return f"{'127.0.0.1' if host in _WILDCARDS else host}:{port}"

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
        from ottla.coordinator.runtime.loader import Loader

        return Loader(self.clock, self.loop.call_soon, owns_process=self.pace is not None)

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
        return self._metadata_log.last_offset

    @property
    def metadata_epoch(self) -> int:
        """The leader epoch of the metadata quorum: one more with every start."""
        return self._metadata_log.leader_epoch

    @property
    def epoch(self) -> int:
        """Which start of this broker it is: the offset of its registration."""
        return self.metadata.brokers[self.node_id].epoch

    @property
    def is_controller(self) -> bool:
        """Whether this broker writes the metadata."""
        return self._metadata_log.is_own

    def _unaddressed(self, listener: str) -> Container[int]:
        """The brokers that advertise no address on a listener, as it is open on all interfaces."""
        return (self.node_id,) if listener in self._wildcard_listeners else ()


_ANY_PORT = "PLAINTEXT://127.0.0.1:0"
