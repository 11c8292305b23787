"""The parts of a broker that depend on other brokers, and the steps of starting and stopping.

`Topology` is a single broker. `workers/topology.py` has the two kinds of worker processes on the same data folders,
`multibroker/node.py` a broker of a cluster in one process. They differ only in these methods.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

from ottla.enums import ApiKey
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller
from ottla.metadata.elections import assign_folders, elect_returned_broker, sharing_folders
from ottla.metadata.metadata_log import METADATA_TOPIC_ID, MetadataLog
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC, SHARE_STATE_TOPIC, single_broker_settings
from ottla.raft.voters import Endpoint, Voter
from ottla.server.peers import Channel, LocalChannel, PeerServer
from ottla.server.producer_ids import ProducerIds, over_channel
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.config import Listener
    from ottla.server.broker import Broker
    from ottla.server.log_dirs import Assignment
    from ottla.server.registration import Advertised
    from ottla.wire import messages
    from ottla.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
else:
    messages = lazy("ottla.wire.messages")

logger = logging.getLogger(__name__)


class Topology:
    """A single broker: it writes its own metadata log.

    The broker calls the methods in this order.
    """

    broker: Broker
    _epoch = -1
    answers_before_markers = False
    """Whether EndTxn is answered while other brokers still write its markers."""
    has_other_replicas = False
    """Whether other brokers may have what this one has lost."""

    # -- parts -------------------------------------------------------------------------------------------------

    def assemble(self, broker: Broker) -> None:
        """The broker is created: give it the channel to other brokers."""
        self.broker = broker
        broker.channel = self.new_channel()
        broker.producer_ids = self.new_producer_ids()

    def new_channel(self) -> Channel:
        return LocalChannel(self.broker.node_id, lambda: self.broker.peer_server)

    def new_producer_ids(self, refill_at: int = 0) -> ProducerIds:
        broker = self.broker
        allocate = over_channel(broker.channel, broker.controller_id, broker.node_id, lambda: self.epoch)
        return ProducerIds(allocate, refill_at=refill_at)

    async def before_start(self) -> None:
        """Nothing is bound or opened yet. If the start fails, `ended` is called."""

    def sockets(self) -> Sequence[tuple[Listener, socket.socket | None]]:
        """The listeners, with their sockets if they are already bound."""
        return [(listener, None) for listener in self.broker.config.listeners]

    def new_logs(self) -> LogManager:
        return self.broker.new_log_manager()

    def open_metadata(self) -> None:
        """Give the broker its identity, its source of metadata and its controller; replay the metadata."""
        broker = self.broker
        broker.identity = broker.logs.open(
            uuid_to_base64(broker.chance.uuid()), broker.node_id, uuid_to_base64(broker.chance.uuid())
        )
        log = broker.logs.get_or_create(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID)
        broker.logs.metadata_log = log
        metadata_log = MetadataLog(broker.disk, log, broker.metadata, broker.clock, broker.node_id)
        metadata_log.voter = self._voter
        broker.metadata_log = metadata_log
        broker.directory_id = uuid_from_base64(broker.identity.directory_id or "")
        broker.open_log_dirs()
        broker.controller = self.new_controller()
        metadata_log.open(broker.config["min.insync.replicas"])

    def _voter(self) -> Voter:
        """This broker as the only voter; its controller has no separate port."""
        broker = self.broker
        name = broker.config["controller.listener.names"][0]
        host, port = broker.addresses[0]
        return Voter(broker.node_id, broker.directory_id, (Endpoint(name, host, port),))

    def new_controller(self) -> Controller:
        broker = self.broker
        return Controller(broker.metadata, broker.metadata_log, lambda: broker.config, broker.chance, self.directory_of)

    def directory_of(self, broker_id: int) -> bytes:
        """The id of the data folder of a new replica on a broker that is registered here."""
        broker = self.broker
        return broker.directory_id if broker.log_dirs is None else broker.log_dirs.id_for_new

    def directories_of(self, broker_id: int) -> list[bytes]:
        """The ids of all data folders of such a broker."""
        broker = self.broker
        return [broker.directory_id] if broker.log_dirs is None else broker.log_dirs.directory_ids

    @property
    def folder_ids(self) -> list[bytes]:
        """The ids in the data folders themselves."""
        return [uuid_from_base64(directory_id) for directory_id in self.broker.logs.directory_ids]

    def own_directory(self, folder_id: bytes) -> bytes:
        """The id under which this broker registers a folder."""
        return folder_id

    def open_logs(self) -> None:
        """The metadata is known: find the logs of the data folder that belong to it."""
        broker = self.broker
        if broker.log_dirs is not None:
            broker.log_dirs.open()
        broker.replicas.report_missing()
        broker.replicas.set_strays_aside()

    def recover_logs(self) -> None:
        """Recover the logs after an unclean stop."""
        self.broker.logs.load_all()

    def register(self) -> None:
        """Register this start of the broker in the metadata, with its addresses."""
        broker = self.broker
        advertised = broker.advertise()
        self.share_folders([broker.node_id])
        self.register_broker(broker.node_id, advertised)
        self.elect_returned(broker.node_id)

    def share_folders(self, broker_ids: Sequence[int]) -> None:
        """Let these brokers, and no others, use the data folders. Other workers may have used them before."""
        broker = self.broker
        is_spread = broker.log_dirs is not None
        self.commit(list(sharing_folders(broker.metadata, broker_ids, self.folder_ids, is_spread=is_spread)))
        if broker.log_dirs is not None:
            broker.log_dirs.note_missing()

    def register_broker(self, broker_id: int, advertised: Sequence[Advertised]) -> None:
        metadata_log = self.broker.metadata_log
        metadata_log.append([self.broker.registration(broker_id, advertised, metadata_log.last_offset + 1)])

    def elect_returned(self, broker_id: int) -> None:
        """Let a broker that has just registered lead the partitions that it can."""
        broker = self.broker
        if broker.log_dirs is not None:
            self.commit(broker.controller.broker_changes.without_folders(broker_id))
        self.commit(list(elect_returned_broker(broker.metadata, broker_id, new_epochs=not broker.logs.clean_start)))

    def commit(self, records: Sequence[Message]) -> None:
        """Change the metadata; only the controller can."""
        self.broker.controller.commit(records)

    @property
    def epoch(self) -> int:
        """The broker epoch: the offset of its registration."""
        known = self.broker.metadata.brokers.get(self.broker.node_id)
        if known is not None:
            self._epoch = known.epoch
        return self._epoch  # the last one, if the broker was unregistered

    def folders_failed(self, directory_ids: Sequence[bytes]) -> None:
        """Data folders of this broker failed, and it continues without them: report this to the metadata."""
        broker = self.broker
        self.commit(broker.controller.broker_changes.folders_failed(broker.node_id, directory_ids))

    def assign_folders(self, assigned: Sequence[Assignment]) -> None:
        """Record in the metadata in which of its folders this broker has these replicas."""
        broker = self.broker
        self.commit(assign_folders(broker.metadata, broker.node_id, assigned))

    def unaddressed(self, listener: str) -> Container[int]:
        """The brokers that advertise no address on a listener, because it is open on all interfaces of this machine."""
        return (self.broker.node_id,) if listener in self.broker.wildcard_listeners else ()

    def new_peer_server(self) -> PeerServer:
        broker = self.broker

        def allocate_producer_ids(peer_id: int, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
            ids = broker.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
            return messages.AllocateProducerIdsResponse(producer_id_start=ids.start, producer_id_len=len(ids))

        return PeerServer(
            broker.services, broker.config.listeners[0], {ApiKey.ALLOCATE_PRODUCER_IDS: allocate_producer_ids}
        )

    def create_share_state_topic(self, then: Callable[[KafkaError | None], None]) -> None:
        """Create the share coordinator's topic; `then` is called when it can be used."""
        self.broker.controller.create_internal_topic(SHARE_STATE_TOPIC)
        then(None)

    # -- lifecycle ---------------------------------------------------------------------------------------------

    async def before_serving(self) -> None:
        """Everything is loaded; clients are accepted after this."""
        lines = single_broker_settings(self.broker.config, self.broker.metadata.topics)
        if lines:
            logger.warning(
                "there is only one broker, but some internal topics need more replicas, so groups or transactions "
                "have no coordinator; add to the settings: %s",
                ", ".join(lines),
            )

    def serving(self) -> None:
        """Clients are accepted."""

    def before_stop(self) -> None:
        """Clients are still served."""

    async def before_closing(self) -> None:
        """Every connection is gone; the logs are closed after this."""

    def before_kill(self) -> None:
        """The broker is about to be killed."""

    def ended(self) -> None:
        """The broker is gone, for whatever reason."""

    def stopped(self) -> None:
        """The broker ended by a clean stop."""
