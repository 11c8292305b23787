"""The surroundings of a broker that is one of several workers: the controller, and its followers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.config import Config, Listener
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.log.checkpoint_writer import CheckpointWriter
from ottla.log.checkpoints import MetaProperties, TopicPartition
from ottla.log.files import PosixDisk
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller
from ottla.metadata.elections import assign_folders, directory_of
from ottla.metadata.image import UNASSIGNED
from ottla.metadata.metadata_log import MetadataLog
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.server.broker import Broker, StartError, disk_for
from ottla.server.peers import Channel
from ottla.server.producer_ids import ProducerIds
from ottla.server.topology import Topology
from ottla.wire.primitives import uuid_from_base64
from ottla.wire.schema import Message
from ottla.workers import forwarding
from ottla.workers.channel import PEER_REQUEST, LinkChannel, serve_peer
from ottla.workers.checkpoints import ByFolder, ControllerCheckpoints, FollowerCheckpoints, SharedFolder
from ottla.workers.link import Arguments, Link, LinkLost
from ottla.workers.metadata import ForeignCluster, check_own_folders, follow_chunk

if TYPE_CHECKING:
    from ottla.http.endpoint import HttpEndpoint
    from ottla.server.log_dirs import Assignment, LogDirs
    from ottla.workers import metrics as metrics_module
    from ottla.workers.metrics import MetricsOfWorker
else:
    metrics_module = lazy("ottla.workers.metrics")

logger = logging.getLogger(__name__)

# Messages from the controller to a follower, and back.
STATE, METADATA, SERVE = "state", "metadata", "serve"
READY, SERVING, APPLIED, CHECKPOINT, CLOSED = "ready", "serving", "applied", "checkpoint", "closed"
FOLDERS_ASSIGNED = "folders assigned"
FOLDERS_FAILED = "folders failed"
"""In both directions: a folder that one worker cannot use is offline in all of them."""
METRICS, HIGH_WATERMARKS = "metrics", "high watermarks"

RECORDS_PER_BATCH = 1000
"""The batch size when a start writes the partitions into the metadata log."""
LOW_PRODUCER_IDS = 100
"""When this many ids of a block are left, the next block is fetched, as in Kafka, so that no request waits for it."""


@dataclass(slots=True)
class Seat:
    """The data that a worker process gets at its fork."""

    node_id: int
    worker_ids: list[int]
    config: Config
    sockets: list[tuple[Listener, socket.socket]]
    advertised: dict[int, list[tuple[str, str, int]]]
    """(listener, host, port) of every worker's own addresses; an empty host means any address of this machine."""
    links: dict[int, socket.socket] = field(default_factory=dict)
    """The link to each other worker, by its id."""
    metrics: socket.socket | None = None
    """The address at which the controller serves the metrics of all workers."""
    beside: Callable[[int, Broker], HttpEndpoint] | None = None
    """Creates the services of a worker besides its clients, from its position among the workers and its broker."""

    @property
    def controller_id(self) -> int:
        return self.worker_ids[0]


class WorkerTopology(Topology):
    """The shared part of both kinds of workers: bound sockets, and links to the other workers."""

    # EndTxn is answered when its markers are sent. The producer's next request waits for them in the coordinator.
    # The worker that writes them answers on the same link as for the next transaction, so that wait is rare.
    answers_before_markers = True

    def __init__(self, seat: Seat) -> None:
        self.worker_ids = seat.worker_ids
        self.links: dict[int, Link] = {}
        self._seat = seat
        self._disk: PosixDisk
        self.metrics: MetricsOfWorker | None = None

    def new_broker(self) -> Broker:
        """The broker of this worker."""
        config = self._seat.config.with_static({"node.id": self._seat.node_id})
        self._disk = disk_for(config)
        return Broker(config, disk=self._disk, topology=self)

    def assemble(self, broker: Broker) -> None:
        broker.controller_id = self._seat.controller_id
        super().assemble(broker)
        broker.wildcard_listeners = frozenset(
            name for name, host, _ in self._seat.advertised[broker.node_id] if not host
        )

    def new_channel(self) -> Channel:
        broker = self.broker
        return LinkChannel(
            self.links, super().new_channel(), lambda: broker.pace is not None and broker.pace.is_with_one
        )

    def count_requests(self) -> None:
        """Switch metrics on; call this before the start."""
        self.metrics = metrics_module.MetricsOfWorker(self)

    def open_links(self) -> None:
        """Open the links, on the running loop; call this before anything else."""
        loop = asyncio.get_running_loop()
        self.links.update((peer, Link(sock, peer, loop)) for peer, sock in self._seat.links.items())

    def _start_links(self) -> None:
        for link in self.links.values():
            link.start(self._received, self._serve_worker, self._link_lost)

    def sockets(self) -> Sequence[tuple[Listener, socket.socket | None]]:
        return self._seat.sockets

    def new_controller(self) -> Controller:
        broker = self.broker
        return Controller(
            broker.metadata,
            broker.metadata_log,
            lambda: broker.config,
            broker.chance,
            self.directory_of,
            shares_folder=True,
        )

    def directory_of(self, broker_id: int) -> bytes:
        folders = self.directories_of(broker_id)
        return folders[0] if len(folders) == 1 else UNASSIGNED

    def directories_of(self, broker_id: int) -> list[bytes]:
        """Only the controller registers brokers, and the ids of its folders are those in the folders."""
        folder_ids = super().directories_of(broker_id)
        return sorted(directory_of(folder_id, self.worker_ids[0], broker_id) for folder_id in folder_ids)

    def own_directory(self, folder_id: bytes) -> bytes:
        return directory_of(folder_id, self.worker_ids[0], self.broker.node_id)

    def _root_of(self, key: TopicPartition) -> str:
        return self._disk.root_of(f"{key[0]}-{key[1]}")

    def _other_worker_lost(self, roots: Iterable[str]) -> None:
        for root in roots:
            self.broker.folder_failed(root, "another worker cannot use it")

    def unaddressed(self, listener: str) -> Container[int]:
        return self.worker_ids if listener in self.broker.wildcard_listeners else ()

    def _leader_of(self, key: TopicPartition) -> int | None:
        found = self.broker.directory.leader_of(key)
        return None if found is None else found[0]

    def _received(self, link: Link, kind: str, arguments: Arguments) -> None:
        raise AssertionError(f"worker {link.peer_id} sent {kind}")

    def _serve_worker(self, link: Link, name: str, arguments: Arguments) -> Any:
        """Serve a call of another worker."""
        if name == PEER_REQUEST:
            return serve_peer(self.broker.peer_server, link.peer_id, *arguments)
        assert self.metrics is not None, f"worker {link.peer_id} called {name}"
        if name == METRICS:
            return self.metrics.families(*arguments)
        assert name == HIGH_WATERMARKS, f"worker {link.peer_id} called {name}"
        return self.metrics.high_watermarks()

    def _link_lost(self, link: Link) -> None:
        """Do nothing: the calls that wait for that worker get an error, and the supervisor ends everything."""


class ControllerTopology(WorkerTopology):
    """The first worker. It holds the locks of the folders and the metadata log, and is the controller."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._passed_on = forwarding.controller_registry(self)
        """The APIs for forwarded requests, without metrics: a request is counted only where it arrived."""
        self.changing = asyncio.Lock()
        self._applied: dict[int, int] = {}
        self._unready: set[int] = set()
        self._unserving: set[int] = set()
        self._unclosed: set[int] = set()
        self._lost: set[int] = set()
        self._something_happened = asyncio.Event()

    def assemble(self, broker: Broker) -> None:
        super().assemble(broker)
        broker.registry = forwarding.controller_registry(self)

    def new_logs(self) -> LogManager:
        broker = self.broker
        folders = {
            part.root: SharedFolder(part, CheckpointWriter(part, broker.in_background)) for part in self._disk.parts()
        }
        self._checkpoints = ControllerCheckpoints(folders, lambda key: broker.logs.holds(key), self._root_of)
        return broker.new_log_manager(self._checkpoints)

    def recover_logs(self) -> None:
        """Each worker recovers its own logs, when it knows which partitions it leads."""

    def register(self) -> None:
        """Register all workers, and assign each its partitions."""
        broker = self.broker
        try:
            check_own_folders(broker.metadata, broker.node_id, self.folder_ids)
        except ForeignCluster as error:
            raise StartError(str(error)) from error
        self.share_folders(self.worker_ids)
        for worker_id in self.worker_ids:
            self.register_broker(worker_id, self._seat.advertised[worker_id])
        for worker_id in self.worker_ids:
            self.elect_returned(worker_id)
        self._checkpoints.share_out(broker.node_id, self._leader_of)
        broker.logs.keep_only(lambda key: self._leader_of(key) == broker.node_id)
        if broker.log_dirs is not None:
            broker.log_dirs.keep_only(broker.logs.unopened)
            self._leave_out_failed(broker.log_dirs)

    def commit(self, records: Sequence[Message]) -> None:
        for start in range(0, len(records), RECORDS_PER_BATCH):
            super().commit(records[start : start + RECORDS_PER_BATCH])

    def _leave_out_failed(self, log_dirs: LogDirs) -> None:
        for root in log_dirs.offline_roots:
            self._checkpoints.leave_out(root)

    def folders_failed(self, directory_ids: Sequence[bytes]) -> None:
        super().folders_failed(directory_ids)
        assert self.broker.log_dirs is not None
        self._leave_out_failed(self.broker.log_dirs)
        for link in self.links.values():
            link.send(FOLDERS_FAILED, self.broker.log_dirs.offline_roots)

    # -- start and stop ----------------------------------------------------------------------------------------

    async def before_serving(self) -> None:
        self._unready = set(self.links)
        self._unserving = set(self.links)
        self._unclosed = set(self.links)
        chunks = list(self._metadata_chunks())
        for peer_id, link in self.links.items():
            self._applied[peer_id] = self.broker.metadata_offset
            link.send_handles([part.lock_handle for part in self._disk.parts()])
            link.send(
                STATE,
                self.broker.identity.cluster_id,
                self.broker.identity.node_id,
                self.broker.identity.directory_id,
                self.broker.logs.clean_start,
                self.broker.metadata_epoch,
                self.broker.metadata_offset,
                chunks,
                self.broker.logs.directory_ids,
                *self._folder_states(),
            )
        assert isinstance(self.broker.metadata_log, MetadataLog)
        self.broker.metadata_log.on_written = self._send_to_workers
        self._start_links()
        self.broker.logs.load_all()  # while the others recover theirs
        await self._wait_for(self._unready)
        for link in self.links.values():
            link.send(SERVE)
        await self._wait_for(self._unserving)
        if self._lost:
            raise StartError(f"worker {min(self._lost)} ended while it started")

    def _folder_states(self) -> tuple[list[str], list[tuple[TopicPartition, str]]]:
        """Which folders are offline, and which moves between folders start again."""
        log_dirs = self.broker.log_dirs
        if log_dirs is None:
            return [], []
        return log_dirs.offline_roots, [(key, part.root) for key, part in log_dirs.interrupted]

    def _metadata_chunks(self) -> Iterator[bytes]:
        """All metadata, in the form in which a follower replays it."""
        assert isinstance(self.broker.metadata_log, MetadataLog)
        snapshot = self.broker.metadata_log.newest_snapshot()
        if snapshot is not None:
            yield self.broker.disk.read_bytes(snapshot[1])
        first = snapshot[0] if snapshot is not None else 0
        metadata_log = self.broker.metadata_log.log
        for batch in metadata_log.batches(max(first, metadata_log.log_start_offset)):
            if batch.next_offset > first:
                yield bytes(batch.view())

    async def _wait_for(self, workers: set[int]) -> None:
        """Wait until these workers have sent the expected message, or are gone."""
        while workers - self._lost:
            self._something_happened.clear()
            await self._something_happened.wait()

    async def before_closing(self) -> None:
        await self._wait_for(self._unclosed)
        self._checkpoints.all_closed = not self._unclosed

    # -- the others --------------------------------------------------------------------------------------------

    def _send_to_workers(self, batch: bytearray) -> None:
        for link in self.links.values():
            link.send(METADATA, bytes(batch))

    async def all_followed(self) -> None:
        """Wait until every worker has applied the metadata up to its current end."""
        offset = self.broker.metadata_offset
        await self._wait_for_applied(offset)

    async def _wait_for_applied(self, offset: int) -> None:
        while any(applied < offset for peer, applied in self._applied.items() if peer not in self._lost):
            self._something_happened.clear()
            await self._something_happened.wait()

    def _received(self, link: Link, kind: str, arguments: Arguments) -> None:
        if kind == APPLIED:
            (self._applied[link.peer_id],) = arguments
        elif kind == CHECKPOINT:
            self._checkpoints.hand_in(link.peer_id, *arguments)
        elif kind == FOLDERS_ASSIGNED:
            self._folders_assigned(link.peer_id, *arguments)
        elif kind == FOLDERS_FAILED:
            directory_ids, roots = arguments
            self.commit(self.broker.controller.broker_changes.folders_failed(link.peer_id, directory_ids))
            self._other_worker_lost(roots)
        elif kind == READY:
            self._unready.discard(link.peer_id)
        elif kind == SERVING:
            self._unserving.discard(link.peer_id)
        elif kind == CLOSED:
            if arguments[0]:
                self._unclosed.discard(link.peer_id)
        else:
            super()._received(link, kind, arguments)
        self._something_happened.set()

    def _folders_assigned(self, worker_id: int, assigned: Sequence[Assignment]) -> None:
        topics = self.broker.metadata.topics_by_id
        still_there = [each for each in assigned if each[0] in topics]
        self.commit(assign_folders(self.broker.metadata, worker_id, still_there))
        # The folder may have failed in the meantime.
        self.commit(self.broker.controller.broker_changes.left_in_failed_folders(worker_id, still_there))

    def _serve_worker(self, link: Link, name: str, arguments: Arguments) -> Any:
        if name == forwarding.REQUEST:
            return forwarding.serve(self.broker, self._passed_on, link.peer_id, arguments)
        return super()._serve_worker(link, name, arguments)

    def _link_lost(self, link: Link) -> None:
        self._lost.add(link.peer_id)
        self._something_happened.set()


class FollowerTopology(WorkerTopology):
    """Any other worker. It follows the controller's metadata and serves the partitions that it leads."""

    def __init__(self, seat: Seat, state: Arguments) -> None:
        super().__init__(seat)
        self._state = state
        self._may_serve: asyncio.Future[None]
        self.on_orphaned: Callable[[], None] = lambda: None
        """The controller is gone: nothing may be written."""

    @property
    def controller_link(self) -> Link:
        return self.links[self._seat.controller_id]

    # -- start and stop ----------------------------------------------------------------------------------------

    def assemble(self, broker: Broker) -> None:
        super().assemble(broker)
        broker.registry = forwarding.follower_registry(self)

    def new_producer_ids(self, refill_at: int = LOW_PRODUCER_IDS) -> ProducerIds:
        return super().new_producer_ids(refill_at)

    def new_logs(self) -> LogManager:
        self._checkpoints = FollowerCheckpoints(self._hand_in, lambda key: self.broker.logs.holds(key), self._root_of)
        return self.broker.new_log_manager(self._checkpoints)

    def open_metadata(self) -> None:
        """The controller sent the metadata when this worker was forked."""
        broker = self.broker
        cluster_id, node_id, directory_id, _, metadata_epoch, metadata_offset, chunks, *_ = self._state
        self._followed = FollowedMetadata(broker.metadata, metadata_epoch)
        broker.metadata_log = self._followed
        for chunk in chunks:
            follow_chunk(self._followed, chunk)
        self._followed.last_offset = metadata_offset  # the offsets in a snapshot are its own
        broker.identity = MetaProperties(cluster_id, node_id, directory_id)
        broker.directory_id = uuid_from_base64(directory_id)
        broker.open_log_dirs()
        broker.controller = self.new_controller()

    def open_logs(self) -> None:
        broker = self.broker
        clean_start = self._state[3]
        *_, directory_ids, offline_roots, moving = self._state
        self._state = ()
        led = [
            (topic.name, partition.index)
            for topic, partition in broker.metadata.partitions()
            if partition.leader == broker.node_id
        ]
        log_dirs = broker.log_dirs
        if log_dirs is not None:
            log_dirs.leave_out(offline_roots)
        broker.logs.directory_ids = directory_ids
        broker.logs.open_part(broker.identity, clean_start, led)
        if log_dirs is not None:
            log_dirs.open()
            log_dirs.keep_only(broker.logs.unopened)
            log_dirs.continue_moves(moving)

    def register(self) -> None:
        """Do nothing: the controller registered this worker."""

    async def before_serving(self) -> None:
        self._may_serve = self.broker.loop.create_future()
        self._start_links()
        self.controller_link.send(READY)
        await self._may_serve

    def serving(self) -> None:
        self.controller_link.send(SERVING)

    def stopped(self) -> None:
        self.controller_link.send(CLOSED, self._checkpoints.closed_cleanly)
        self.controller_link.finish()

    def _hand_in(self, path: str, offsets: ByFolder) -> None:
        self.controller_link.send(CHECKPOINT, path, offsets)

    def assign_folders(self, assigned: Sequence[Assignment]) -> None:
        self.controller_link.send(FOLDERS_ASSIGNED, assigned)

    def folders_failed(self, directory_ids: Sequence[bytes]) -> None:
        assert self.broker.log_dirs is not None
        self.controller_link.send(FOLDERS_FAILED, directory_ids, self.broker.log_dirs.offline_roots)

    # -- the controller ----------------------------------------------------------------------------------------

    def _received(self, link: Link, kind: str, arguments: Arguments) -> None:
        if kind == METADATA:
            try:
                follow_chunk(self._followed, arguments[0])
            except KafkaError as error:
                # The partition is opened again with the next request for it, whose answer reports the problem.
                logger.error("following the metadata failed: %s", error)
            link.send(APPLIED, self._followed.last_offset)
        elif kind == FOLDERS_FAILED:
            self._other_worker_lost(*arguments)
        elif kind == SERVE:
            self._may_serve.set_result(None)
        else:
            super()._received(link, kind, arguments)

    def _link_lost(self, link: Link) -> None:
        if link.peer_id == self._seat.controller_id:
            if self.broker.is_running:
                self.on_orphaned()
            elif not self._may_serve.done():
                self._may_serve.set_exception(LinkLost())

    def create_share_state_topic(self, then: Callable[[KafkaError | None], None]) -> None:
        """Only the controller can create it; it answers when every worker knows the topic."""
        forwarding.create_share_state_topic(self, then)
