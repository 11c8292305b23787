"""What is around a broker that is one of several workers: the controller, and those that follow it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.config import Config, Listener
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.log.checkpoints import MetaProperties, TopicPartition
from ottla.log.files import PosixDisk
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller
from ottla.metadata.elections import directory_of, elect_returned_broker, sharing_a_folder
from ottla.metadata.metadata_log import MetadataLog
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.server.broker import Broker, StartError
from ottla.server.peers import PeerServer
from ottla.server.producer_ids import Allocated, ProducerIds
from ottla.server.topology import Topology
from ottla.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.primitives import uuid_from_base64
from ottla.wire.schema import Message
from ottla.workers import forwarding
from ottla.workers.channel import PEER_REQUEST, LinkChannel, serve_peer
from ottla.workers.link import Arguments, Link, LinkLost
from ottla.workers.logs import ControllerLogs, FollowerLogs, Offsets
from ottla.workers.metadata import ForeignCluster, SharedFolderController, check_own_folder, follow_chunk

if TYPE_CHECKING:
    from ottla.workers import metrics as metrics_module
    from ottla.workers.metrics import MetricsOfWorker
else:
    metrics_module = lazy("ottla.workers.metrics")

logger = logging.getLogger(__name__)

# Messages of the controller to a follower, and back.
STATE, METADATA, SERVE = "state", "metadata", "serve"
READY, SERVING, APPLIED, CHECKPOINT, CLOSED = "ready", "serving", "applied", "checkpoint", "closed"
METRICS, HIGH_WATERMARKS = "metrics", "high watermarks"

RECORDS_PER_BATCH = 1000
"""Of what a start writes into the metadata log about all partitions."""
LOW_PRODUCER_IDS = 100
"""With so many ids left of a block the next one is fetched, as in Kafka: nobody waits for it."""


@dataclass(slots=True)
class Seat:
    """What a worker process is given at its fork."""

    node_id: int
    worker_ids: list[int]
    config: Config
    sockets: list[tuple[Listener, socket.socket]]
    advertised: dict[int, list[tuple[str, str, int]]]
    """(listener, host, port) of every worker's own addresses; the host is empty where any of this machine does."""
    links: dict[int, socket.socket] = field(default_factory=dict)
    """To each other worker, by its id."""
    metrics: socket.socket | None = None
    """Where the controller shows what all workers count."""

    @property
    def controller_id(self) -> int:
        return self.worker_ids[0]


class WorkerTopology(Topology):
    """What both kinds have in common: sockets that are bound already, and links to the other workers."""

    # An end is answered when its markers are sent. What the producer does next waits for them in the coordinator.
    # A worker that writes them answers on the link on which it asks for the next transaction: that wait is rare.
    answers_before_markers = True

    def __init__(self, seat: Seat) -> None:
        self.worker_ids = seat.worker_ids
        self.links: dict[int, Link] = {}
        self._seat = seat
        self._folder: PosixDisk
        self.metrics: MetricsOfWorker | None = None

    def new_broker(self) -> Broker:
        """The broker of this worker."""
        config = self._seat.config.with_static({"node.id": self._seat.node_id})
        self._folder = PosixDisk(config.log_dirs[0])
        return Broker(config, disk=self._folder, topology=self)

    def assemble(self, broker: Broker) -> None:
        super().assemble(broker)
        broker.channel = LinkChannel(self.links, lambda: broker.pace is not None and broker.pace.is_with_one)
        broker.controller_id = self._seat.controller_id
        broker.wildcard_listeners = frozenset(
            name for name, host, _ in self._seat.advertised[broker.node_id] if not host
        )

    def count_requests(self) -> None:
        """Switch metrics on; before the start."""
        self.metrics = metrics_module.MetricsOfWorker(self)

    def open_links(self) -> None:
        """Before anything else, on the running loop."""
        loop = asyncio.get_running_loop()
        self.links.update((peer, Link(sock, peer, loop)) for peer, sock in self._seat.links.items())

    def _start_links(self) -> None:
        for link in self.links.values():
            link.start(self._received, self._serve_worker, self._link_lost)

    def sockets(self) -> Sequence[tuple[Listener, socket.socket | None]]:
        return self._seat.sockets

    def new_controller(self) -> Controller:
        broker = self.broker
        return SharedFolderController(
            broker.metadata, broker.metadata_log, lambda: broker.config, broker.chance, self.directory_of
        )

    def directory_of(self, broker_id: int) -> bytes:
        return directory_of(self.broker.directory_id, self.worker_ids[0], broker_id)

    def unaddressed(self, listener: str) -> Container[int]:
        return self.worker_ids if listener in self.broker.wildcard_listeners else ()

    def _leader_of(self, key: TopicPartition) -> int | None:
        found = self.broker.directory.leader_of(key)
        return None if found is None else found[0]

    def _received(self, link: Link, kind: str, arguments: Arguments) -> None:
        raise AssertionError(f"worker {link.peer_id} sent {kind}")

    def _serve_worker(self, link: Link, name: str, arguments: Arguments) -> Any:
        """Do what another worker asks for."""
        if name == PEER_REQUEST:
            return serve_peer(self.broker.peer_server, link.peer_id, *arguments)
        assert self.metrics is not None, f"worker {link.peer_id} called {name}"
        if name == METRICS:
            return self.metrics.families(*arguments)
        assert name == HIGH_WATERMARKS, f"worker {link.peer_id} called {name}"
        return self.metrics.high_watermarks()

    def _link_lost(self, link: Link) -> None:
        """What it means is seen by who waits for that worker; the supervisor ends everything."""


class ControllerTopology(WorkerTopology):
    """The first worker: it holds the folder's lock and the metadata log, and answers for all."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._passed_on = forwarding.controller_registry(self)
        """The same for what others pass on: metrics count a request where it came in, and nowhere else."""
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
        return self.broker.new_log_manager(ControllerLogs)

    def register(self) -> None:
        """Enter all workers, and give each its partitions."""
        try:
            check_own_folder(self.broker.metadata, self.broker.node_id, self.broker.directory_id)
        except ForeignCluster as error:
            raise StartError(str(error)) from error
        self._append(list(sharing_a_folder(self.broker.metadata, self.worker_ids, self.broker.directory_id)))
        for worker_id in self.worker_ids:
            epoch = self.broker.metadata_log.last_offset + 1
            self.broker.metadata_log.append(
                [self.broker.registration(worker_id, self._seat.advertised[worker_id], epoch)]
            )
        for worker_id in self.worker_ids:
            self._append(
                list(
                    elect_returned_broker(self.broker.metadata, worker_id, new_epochs=not self.broker.logs.clean_start)
                )
            )
        assert isinstance(self.broker.logs, ControllerLogs)
        self.broker.logs.share_out(self.broker.node_id, self._leader_of)

    def _append(self, records: Sequence[Message]) -> None:
        for start in range(0, len(records), RECORDS_PER_BATCH):
            self.broker.controller.commit(records[start : start + RECORDS_PER_BATCH])

    # -- start and stop ----------------------------------------------------------------------------------------

    async def before_serving(self) -> None:
        self._unready = set(self.links)
        self._unserving = set(self.links)
        self._unclosed = set(self.links)
        chunks = list(self._metadata_chunks())
        for peer_id, link in self.links.items():
            self._applied[peer_id] = self.broker.metadata_offset
            link.send_handle(self._folder.lock_handle)
            link.send(
                STATE,
                self.broker.identity.cluster_id,
                self.broker.identity.node_id,
                self.broker.identity.directory_id,
                self.broker.logs.clean_start,
                self.broker.metadata_epoch,
                self.broker.metadata_offset,
                chunks,
            )
        assert isinstance(self.broker.metadata_log, MetadataLog)
        self.broker.metadata_log.on_written = self._spread_the_word
        self._start_links()
        self.broker.logs.load_all()  # while the others recover theirs
        await self._wait_for(self._unready)
        for link in self.links.values():
            link.send(SERVE)
        await self._wait_for(self._unserving)
        if self._lost:
            raise StartError(f"worker {min(self._lost)} ended while it started")

    def _metadata_chunks(self) -> Iterator[bytes]:
        """All of the metadata, as a follower replays it."""
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
        """Wait until these are done with what they are expected to say, or are gone."""
        while workers - self._lost:
            self._something_happened.clear()
            await self._something_happened.wait()

    async def before_closing(self) -> None:
        assert isinstance(self.broker.logs, ControllerLogs)
        await self._wait_for(self._unclosed)
        self.broker.logs.all_closed = not self._unclosed

    def new_peer_server(self) -> PeerServer:
        return PeerServer(
            self.broker.services,
            self.broker.config.listeners[0],
            {AllocateProducerIdsRequest: self._allocate_producer_ids},
        )

    def _allocate_producer_ids(self, peer_id: int, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        ids = self.broker.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        return AllocateProducerIdsResponse(producer_id_start=ids.start, producer_id_len=len(ids))

    # -- the others --------------------------------------------------------------------------------------------

    def _spread_the_word(self, batch: bytearray) -> None:
        for link in self.links.values():
            link.send(METADATA, bytes(batch))

    async def all_followed(self) -> None:
        """Wait until every worker has followed the metadata as far as it goes now."""
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
            assert isinstance(self.broker.logs, ControllerLogs)
            self.broker.logs.hand_in(link.peer_id, *arguments)
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

    def _serve_worker(self, link: Link, name: str, arguments: Arguments) -> Any:
        if name == forwarding.REQUEST:
            return forwarding.serve(self.broker, self._passed_on, link.peer_id, arguments)
        return super()._serve_worker(link, name, arguments)

    def _link_lost(self, link: Link) -> None:
        self._lost.add(link.peer_id)
        self._something_happened.set()


class FollowerTopology(WorkerTopology):
    """Any other worker: it follows the controller's metadata and serves the partitions that it leads."""

    def __init__(self, seat: Seat, state: Arguments) -> None:
        super().__init__(seat)
        self._state = state
        self._may_serve: asyncio.Future[None]
        self.on_orphaned: Callable[[], None] = lambda: None
        """The controller is gone: nothing may be written any more."""

    @property
    def controller_link(self) -> Link:
        return self.links[self._seat.controller_id]

    # -- start and stop ----------------------------------------------------------------------------------------

    def assemble(self, broker: Broker) -> None:
        super().assemble(broker)
        broker.registry = forwarding.follower_registry(self)
        broker.producer_ids = ProducerIds(self._allocate_producer_ids, refill_at=LOW_PRODUCER_IDS)

    def new_logs(self) -> LogManager:
        logs = self.broker.new_log_manager(FollowerLogs)
        logs.hand_in = self._hand_in
        return logs

    def open_metadata(self) -> None:
        """The controller sent what it knows when this worker was forked."""
        broker = self.broker
        cluster_id, node_id, directory_id, _, metadata_epoch, metadata_offset, chunks = self._state
        self._followed = FollowedMetadata(broker.metadata, metadata_epoch)
        broker.metadata_log = self._followed
        for chunk in chunks:
            follow_chunk(self._followed, chunk)
        self._followed.last_offset = metadata_offset  # the offsets in a snapshot are its own
        broker.identity = MetaProperties(cluster_id, node_id, directory_id)
        broker.directory_id = uuid_from_base64(directory_id)
        broker.controller = self.new_controller()

    def open_logs(self) -> None:
        broker = self.broker
        assert isinstance(broker.logs, FollowerLogs)
        clean_start = self._state[3]
        self._state = ()
        led = [
            (topic.name, partition.index)
            for topic, partition in broker.metadata.partitions()
            if partition.leader == broker.node_id
        ]
        broker.logs.open_shared(broker.identity, clean_start, led)

    def register(self) -> None:
        """The controller did."""

    async def before_serving(self) -> None:
        self._may_serve = self.broker.loop.create_future()
        self._start_links()
        self.controller_link.send(READY)
        await self._may_serve

    def serving(self) -> None:
        self.controller_link.send(SERVING)

    def stopped(self) -> None:
        assert isinstance(self.broker.logs, FollowerLogs)
        self.controller_link.send(CLOSED, self.broker.logs.closed_cleanly)
        self.controller_link.finish()

    def _hand_in(self, path: str, offsets: Offsets) -> None:
        self.controller_link.send(CHECKPOINT, path, offsets)

    # -- the controller ----------------------------------------------------------------------------------------

    def _received(self, link: Link, kind: str, arguments: Arguments) -> None:
        if kind == METADATA:
            try:
                follow_chunk(self._followed, arguments[0])
            except KafkaError as error:
                # The partition is opened again when somebody asks for it, and who asks is told what is wrong.
                logger.error("following the metadata failed: %s", error)
            link.send(APPLIED, self._followed.last_offset)
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

    def _allocate_producer_ids(self, allocated: Allocated) -> None:
        def answered(response: AllocateProducerIdsResponse | None, error: Exception | None) -> None:
            if response is None or response.error_code:
                allocated(None)
            else:
                first = response.producer_id_start
                allocated(range(first, first + response.producer_id_len))

        request = AllocateProducerIdsRequest(broker_id=self.broker.node_id, broker_epoch=self.epoch)
        self.broker.channel.send(self._seat.controller_id, request, answered)

    def create_share_state_topic(self, then: Callable[[KafkaError | None], None]) -> None:
        """Only the controller can; it answers when every worker knows the topic."""
        forwarding.create_share_state_topic(self, then)
