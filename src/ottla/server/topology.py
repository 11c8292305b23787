"""What depends on the brokers around a broker: its parts that differ, and the steps of its life.

`Topology` is a broker that is alone. `workers/topology.py` has the two kinds of worker processes on one data folder,
`multibroker/node.py` a broker of a cluster in one process. Each says here, and nowhere else, what is different.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller
from ottla.metadata.elections import elect_returned_broker, sharing_a_folder
from ottla.metadata.metadata_log import METADATA_TOPIC_ID, MetadataLog
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC, SHARE_STATE_TOPIC, single_broker_settings
from ottla.server.peers import NoOtherBrokers, PeerServer
from ottla.server.producer_ids import ProducerIds
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64

if TYPE_CHECKING:
    from ottla.config import Listener
    from ottla.server.broker import Broker

logger = logging.getLogger(__name__)


class Topology:
    """A broker that is alone: it writes its own metadata log, and there is nobody to ask.

    The broker calls the methods in the order in which they stand here.
    """

    broker: Broker
    answers_before_markers = False
    """Whether the end of a transaction is answered while other brokers still write its markers."""

    # -- parts -------------------------------------------------------------------------------------------------

    def assemble(self, broker: Broker) -> None:
        """The broker is made: give it what other brokers are reached with."""
        self.broker = broker
        broker.channel = NoOtherBrokers()
        broker.producer_ids = ProducerIds(
            lambda done: done(broker.controller.allocate_producer_ids(broker.node_id, self.epoch))
        )

    async def before_start(self) -> None:
        """Nothing is bound or opened yet. If the start fails, `ended` is called."""

    def sockets(self) -> Sequence[tuple[Listener, socket.socket | None]]:
        """The listeners, with their socket where it is bound already."""
        return [(listener, None) for listener in self.broker.config.listeners]

    def new_logs(self) -> LogManager:
        return self.broker.new_log_manager(LogManager)

    def open_metadata(self) -> None:
        """Give the broker its identity, its source of metadata and its controller; replay the metadata."""
        broker = self.broker
        broker.identity = broker.logs.open(
            uuid_to_base64(broker.chance.uuid()), broker.node_id, uuid_to_base64(broker.chance.uuid())
        )
        log = broker.logs.get_or_create(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID)
        broker.logs.metadata_log = log
        metadata_log = MetadataLog(broker.disk, log, broker.metadata, broker.clock, broker.node_id)
        broker.metadata_log = metadata_log
        broker.directory_id = uuid_from_base64(broker.identity.directory_id or "")
        broker.open_log_dirs()
        broker.controller = self.new_controller()
        metadata_log.open(broker.config["min.insync.replicas"])

    def new_controller(self) -> Controller:
        broker = self.broker
        return Controller(broker.metadata, broker.metadata_log, lambda: broker.config, broker.chance, self.directory_of)

    def directory_of(self, broker_id: int) -> bytes:
        """The id of the data folder in which a broker that is registered here keeps its partitions."""
        broker = self.broker
        return broker.directory_id if broker.spread is None else broker.spread.id_for_new

    def open_logs(self) -> None:
        """The metadata is known: see which logs of the data folder belong to it."""
        broker = self.broker
        if broker.spread is not None:
            broker.spread.open()
        broker.replicas.report_missing()
        broker.replicas.set_strays_aside()

    def register(self) -> None:
        """Enter this start of the broker in the metadata, with the addresses it can be reached at."""
        broker = self.broker
        advertised = broker.advertise()
        # Several workers may have had the folder before.
        broker.controller.commit(list(sharing_a_folder(broker.metadata, [broker.node_id], broker.directory_id)))
        epoch = broker.metadata_log.last_offset + 1
        broker.metadata_log.append([broker.registration(broker.node_id, advertised, epoch)])
        broker.controller.commit(
            list(elect_returned_broker(broker.metadata, broker.node_id, new_epochs=not broker.logs.clean_start))
        )

    @property
    def epoch(self) -> int:
        """Which start of the broker it is: the offset of its registration."""
        return self.broker.metadata.brokers[self.broker.node_id].epoch

    def unaddressed(self, listener: str) -> Container[int]:
        """The brokers that advertise no address on a listener, as it is open on all interfaces of this machine."""
        return (self.broker.node_id,) if listener in self.broker.wildcard_listeners else ()

    def new_peer_server(self) -> PeerServer:
        return PeerServer(self.broker.services, self.broker.config.listeners[0])

    def create_share_state_topic(self, then: Callable[[KafkaError | None], None]) -> None:
        """Make the share coordinator's topic; `then` is called when it can be used."""
        self.broker.controller.create_internal_topic(SHARE_STATE_TOPIC)
        then(None)

    # -- life --------------------------------------------------------------------------------------------------

    async def before_serving(self) -> None:
        """Everything is loaded; clients are accepted after this."""
        lines = single_broker_settings(self.broker.config, self.broker.metadata.topics)
        if lines:
            logger.warning(
                "there is one broker, and some internal topics want more replicas, so groups or transactions have no "
                "coordinator; add to the settings: %s",
                ", ".join(lines),
            )

    def serving(self) -> None:
        """Clients are accepted."""

    def before_stop(self) -> None:
        """Clients are still served."""

    async def before_closing(self) -> None:
        """Every connection is gone; the logs are closed after this."""

    def before_kill(self) -> None:
        """The broker ends without a word."""

    def ended(self) -> None:
        """The broker is gone, for whatever reason."""

    def stopped(self) -> None:
        """The broker ended by a clean stop."""
