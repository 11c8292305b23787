"""The two kinds of workers: the controller, and those that follow it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.config import Config, Listener
from ottla.errors import KafkaError
from ottla.log.checkpoints import MetaProperties, TopicPartition
from ottla.log.files import PosixDisk
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller
from ottla.metadata.elections import directory_of, elect_returned_broker, sharing_a_folder
from ottla.metadata.metadata_log import MetadataLog
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.replication.replicas import Replicas
from ottla.server.broker import Broker, StartError
from ottla.server.peers import Channel, PeerServer
from ottla.server.producer_ids import Allocated, ProducerIds
from ottla.server.transactions import TransactionsOfBroker
from ottla.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.primitives import uuid_from_base64
from ottla.wire.schema import Message
from ottla.workers import forwarding
from ottla.workers.channel import PEER_REQUEST, LinkChannel, serve_peer
from ottla.workers.link import Arguments, Link, LinkLost
from ottla.workers.logs import ControllerLogs, FollowerLogs, Offsets
from ottla.workers.metadata import ForeignCluster, SharedFolderController, check_own_folder, follow_chunk

if TYPE_CHECKING:
    from ottla.workers.metrics import MetricsOfWorker

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


class WorkerBroker(Broker):
    """What both kinds have in common: sockets that are bound already, links, transactions across workers."""

    def __init__(self, seat: Seat) -> None:
        config = seat.config.with_static({"node.id": seat.node_id})
        self.worker_ids = seat.worker_ids
        self.links: dict[int, Link] = {}
        self._seat = seat
        self._folder = PosixDisk(config.log_dirs[0])
        super().__init__(config, disk=self._folder)
        self.controller_id = seat.controller_id
        listeners = seat.advertised[seat.node_id]
        self._wildcard_listeners = frozenset(name for name, host, _ in listeners if not host)
        self.metrics: MetricsOfWorker | None = None

    def count_requests(self) -> None:
        """Switch metrics on; before the start."""
        from ottla.workers.metrics import MetricsOfWorker

        self.metrics = MetricsOfWorker(self)

    def open_links(self) -> None:
        """Before anything else, on the running loop."""
        loop = asyncio.get_running_loop()
        self.links.update((peer, Link(sock, peer, loop)) for peer, sock in self._seat.links.items())

    def _start_links(self) -> None:
        for link in self.links.values():
            link.start(self._received, self._serve_worker, self._link_lost)

    def _sockets(self) -> Sequence[tuple[Listener, socket.socket | None]]:
        return self._seat.sockets

    def _new_controller(self) -> Controller:
        return SharedFolderController(
            self.metadata, self._metadata_log, lambda: self.config, self.chance, self._directory_of
        )

    def _directory_of(self, broker_id: int) -> bytes:
        return directory_of(self._directory_id, self.worker_ids[0], broker_id)

    def _new_transactions(self) -> TransactionsOfBroker:
        # An end is answered when its markers are sent. What the producer does next waits for them in the coordinator.
        # A worker that writes them answers on the link on which it asks for the next transaction: that wait is rare.
        return TransactionsOfBroker(self, self.channel, answers_before_markers=True)

    def _new_channel(self) -> Channel:
        return LinkChannel(self.links, lambda: self.pace is not None and self.pace.is_with_one)

    def _unaddressed(self, listener: str) -> Container[int]:
        return self.worker_ids if listener in self._wildcard_listeners else ()

    def _leader_of(self, key: TopicPartition) -> int | None:
        found = self.directory.leader_of(key)
        return None if found is None else found[0]

    def _received(self, link: Link, kind: str, arguments: Arguments) -> None:
        raise AssertionError(f"worker {link.peer_id} sent {kind}")

    def _serve_worker(self, link: Link, name: str, arguments: Arguments) -> Any:
        """Do what another worker asks for."""
        if name == PEER_REQUEST:
            return serve_peer(self.peer_server, link.peer_id, *arguments)
        assert self.metrics is not None, f"worker {link.peer_id} called {name}"
        if name == METRICS:
            return self.metrics.families(*arguments)
        assert name == HIGH_WATERMARKS, f"worker {link.peer_id} called {name}"
        return self.metrics.high_watermarks()

    def _link_lost(self, link: Link) -> None:
        """What it means is seen by who waits for that worker; the supervisor ends everything."""


class ControllerWorker(WorkerBroker):
    """The first worker: it holds the folder's lock and the metadata log, and answers for all."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self.registry = forwarding.controller_registry(self)
        self._passed_on = forwarding.controller_registry(self)
        """The same for what others pass on: metrics count a request where it came in, and nowhere else."""
        self.changing = asyncio.Lock()
        self._applied: dict[int, int] = {}
        self._unready: set[int] = set()
        self._unserving: set[int] = set()
        self._unclosed: set[int] = set()
        self._lost: set[int] = set()
        self._something_happened = asyncio.Event()

    def _new_logs(self) -> LogManager:
        return ControllerLogs(
            self.disk,
            self.replicas.log_config,
            self.clock,
            new_token=lambda: self.chance.uuid().hex(),
            schedule=self.timer.schedule,
            background=self.in_background,
        )

    def _register(self) -> None:
        """Enter all workers, and give each its partitions."""
        try:
            check_own_folder(self.metadata, self.node_id, self._directory_id)
        except ForeignCluster as error:
            raise StartError(str(error)) from error
        self._append(list(sharing_a_folder(self.metadata, self.worker_ids, self._directory_id)))
        for worker_id in self.worker_ids:
            epoch = self._metadata_log.last_offset + 1
            self._metadata_log.append([self._registration(worker_id, self._seat.advertised[worker_id], epoch)])
        for worker_id in self.worker_ids:
            self._append(list(elect_returned_broker(self.metadata, worker_id, new_epochs=not self.logs.clean_start)))
        assert isinstance(self.logs, ControllerLogs)
        self.logs.share_out(self.node_id, self._leader_of)

    def _append(self, records: Sequence[Message]) -> None:
        for start in range(0, len(records), RECORDS_PER_BATCH):
            self.controller.commit(records[start : start + RECORDS_PER_BATCH])

    # -- start and stop ----------------------------------------------------------------------------------------

    async def _before_serving(self) -> None:
        self._unready = set(self.links)
        self._unserving = set(self.links)
        self._unclosed = set(self.links)
        chunks = list(self._metadata_chunks())
        for peer_id, link in self.links.items():
            self._applied[peer_id] = self.metadata_offset
            link.send_handle(self._folder.lock_handle)
            link.send(
                STATE,
                self.identity.cluster_id,
                self.identity.node_id,
                self.identity.directory_id,
                self.logs.clean_start,
                self.metadata_epoch,
                self.metadata_offset,
                chunks,
            )
        assert isinstance(self._metadata_log, MetadataLog)
        self._metadata_log.on_written = self._spread_the_word
        self._start_links()
        self.logs.load_all()  # while the others recover theirs
        await self._wait_for(self._unready)
        for link in self.links.values():
            link.send(SERVE)
        await self._wait_for(self._unserving)
        if self._lost:
            raise StartError(f"worker {min(self._lost)} ended while it started")

    def _metadata_chunks(self) -> Iterator[bytes]:
        """All of the metadata, as a follower replays it."""
        assert isinstance(self._metadata_log, MetadataLog)
        snapshot = self._metadata_log.newest_snapshot()
        if snapshot is not None:
            yield self.disk.read_bytes(snapshot[1])
        first = snapshot[0] if snapshot is not None else 0
        metadata_log = self._metadata_log.log
        for batch in metadata_log.batches(max(first, metadata_log.log_start_offset)):
            if batch.next_offset > first:
                yield bytes(batch.view())

    async def _wait_for(self, workers: set[int]) -> None:
        """Wait until these are done with what they are expected to say, or are gone."""
        while workers - self._lost:
            self._something_happened.clear()
            await self._something_happened.wait()

    async def _before_closing(self) -> None:
        assert isinstance(self.logs, ControllerLogs)
        await self._wait_for(self._unclosed)
        self.logs.all_closed = not self._unclosed

    def _new_peer_server(self) -> PeerServer:
        return PeerServer(
            self.services, self.config.listeners[0], {AllocateProducerIdsRequest: self._allocate_producer_ids}
        )

    def _allocate_producer_ids(self, peer_id: int, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        ids = self.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        return AllocateProducerIdsResponse(producer_id_start=ids.start, producer_id_len=len(ids))

    # -- the others --------------------------------------------------------------------------------------------

    def _spread_the_word(self, batch: bytearray) -> None:
        for link in self.links.values():
            link.send(METADATA, bytes(batch))

    async def all_followed(self) -> None:
        """Wait until every worker has followed the metadata as far as it goes now."""
        offset = self.metadata_offset
        await self._wait_for_applied(offset)

    async def _wait_for_applied(self, offset: int) -> None:
        while any(applied < offset for peer, applied in self._applied.items() if peer not in self._lost):
            self._something_happened.clear()
            await self._something_happened.wait()

    def _received(self, link: Link, kind: str, arguments: Arguments) -> None:
        if kind == APPLIED:
            (self._applied[link.peer_id],) = arguments
        elif kind == CHECKPOINT:
            assert isinstance(self.logs, ControllerLogs)
            self.logs.hand_in(link.peer_id, *arguments)
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
            return forwarding.serve(self, self._passed_on, link.peer_id, arguments)
        return super()._serve_worker(link, name, arguments)

    def _link_lost(self, link: Link) -> None:
        self._lost.add(link.peer_id)
        self._something_happened.set()


class FollowerWorker(WorkerBroker):
    """Any other worker: it follows the controller's metadata and serves the partitions that it leads."""

    def __init__(self, seat: Seat, state: Arguments) -> None:
        super().__init__(seat)
        self.registry = forwarding.follower_registry(self)
        self._state = state
        self._may_serve: asyncio.Future[None]
        self.on_orphaned: Callable[[], None] = lambda: None
        """The controller is gone: nothing may be written any more."""

    @property
    def controller_link(self) -> Link:
        return self.links[self.controller_id]

    # -- start and stop ----------------------------------------------------------------------------------------

    def _open_storage(self) -> None:
        cluster_id, node_id, directory_id, clean_start, metadata_epoch, metadata_offset, chunks = self._state
        self._state = ()
        self.replicas = Replicas(self.node_id, self.metadata, lambda: self.config, self.clock)
        logs = FollowerLogs(
            self.disk,
            self.replicas.log_config,
            self.clock,
            new_token=lambda: self.chance.uuid().hex(),
            schedule=self.timer.schedule,
            background=self.in_background,
        )
        logs.hand_in = self._hand_in
        self.logs = logs
        self.replicas.use(logs)
        self._followed = followed = FollowedMetadata(self.metadata, metadata_epoch)
        self._metadata_log = followed
        for chunk in chunks:
            follow_chunk(followed, chunk)
        followed.last_offset = metadata_offset  # the offsets in a snapshot are its own
        self.metadata.removed_topics.clear()
        self.identity = MetaProperties(cluster_id, node_id, directory_id)
        self._directory_id = uuid_from_base64(directory_id)
        self.controller = self._new_controller()
        self._apply_dynamic_config()
        logs.open_shared(
            self.identity,
            clean_start,
            [
                (topic.name, partition.index)
                for topic, partition in self.metadata.partitions()
                if partition.leader == self.node_id
            ],
        )
        logs.load_all()
        followed.subscribe(self._follow_dynamic_config)
        followed.subscribe(self.replicas.metadata_changed)

    def _register(self) -> None:
        """The controller did."""

    async def _before_serving(self) -> None:
        self._may_serve = self.loop.create_future()
        self._start_links()
        self.controller_link.send(READY)
        await self._may_serve

    async def start(self) -> None:
        await super().start()
        self.controller_link.send(SERVING)

    async def stop(self) -> None:
        await super().stop()
        assert isinstance(self.logs, FollowerLogs)
        self.controller_link.send(CLOSED, self.logs.closed_cleanly)
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
        if link.peer_id == self.controller_id:
            if self._running:
                self.on_orphaned()
            elif not self._may_serve.done():
                self._may_serve.set_exception(LinkLost())

    def _new_producer_ids(self) -> ProducerIds:
        return ProducerIds(self._allocate_producer_ids, refill_at=LOW_PRODUCER_IDS)

    def _allocate_producer_ids(self, allocated: Allocated) -> None:
        def answered(response: AllocateProducerIdsResponse | None, error: Exception | None) -> None:
            if response is None or response.error_code:
                allocated(None)
            else:
                first = response.producer_id_start
                allocated(range(first, first + response.producer_id_len))

        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.epoch)
        self.channel.send(self.controller_id, request, answered)

    def create_share_state_topic(self, then: Callable[[KafkaError | None], None]) -> None:
        """Only the controller can; it answers when every worker knows the topic."""
        forwarding.create_share_state_topic(self, then)
