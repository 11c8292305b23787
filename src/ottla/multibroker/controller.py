"""The controller of a cluster in one process. Only the controller writes the metadata, and all brokers follow it.

It is a separate node, as in a KRaft cluster with dedicated controllers, and it does not fail: it is for tests of broker
failures. It keeps its log, `__cluster_metadata-0`, in its own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.lazy_imports import lazy
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller, Randomness
from ottla.metadata.image import MetadataImage
from ottla.metadata.metadata_log import METADATA_TOPIC_ID, MetadataLog
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.multibroker.controller_duties import ControllerDuties
from ottla.replication.replicas import METADATA_LOG_CONFIG
from ottla.wire.primitives import uuid_to_base64
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.config import Config
    from ottla.log.files import Disk
    from ottla.server.security import quotas
    from ottla.server.security.quotas import Quotas
else:
    quotas = lazy("ottla.server.security.quotas")

CONTROLLER_ID = 3000
"""The node id of the one controller. The controllers of a quorum are 3001, 3002, …"""


class _Remembering(MetadataImage):
    """The controller's image, with the records that it was made from, for brokers that start later."""

    def __init__(self) -> None:
        super().__init__()
        self.replayed: list[tuple[int, Message]] = []

    def replay(self, record: Message, offset: int) -> None:
        super().replay(record, offset)
        self.replayed.append((offset, record))


class ControllerNode:
    """A single controller with its log."""

    node_id = CONTROLLER_ID

    def __init__(self, config: Config, disk: Disk, clock: Clock, timer: Timer, chance: Randomness) -> None:
        self.config = config
        self.clock = clock
        self._timer = timer
        self._chance = chance
        self._disk = disk
        self.image = _Remembering()
        self.logs = LogManager(
            disk,
            lambda topic: METADATA_LOG_CONFIG,
            clock,
            new_token=lambda: chance.uuid().hex(),
            schedule=timer.schedule,
        )
        self._log: MetadataLog
        self.controller: Controller
        self.duties: ControllerDuties
        self.cluster_id = ""
        self.quotas: Quotas | None = None
        """The quotas for changes to topics. They are counted here and not by each broker."""
        self.batches: list[int] = []
        """The end of each append in the replayed records: brokers apply the appends one by one."""
        self.on_append: Callable[[], None] = lambda: None

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        identity = self.logs.open(
            uuid_to_base64(self._chance.uuid()), CONTROLLER_ID, uuid_to_base64(self._chance.uuid())
        )
        self.cluster_id = identity.cluster_id
        log_ = self.logs.get_or_create(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID)
        self.logs.metadata_log = log_
        self._log = MetadataLog(self._disk, log_, self.image, self.clock, CONTROLLER_ID)
        self.controller = Controller(self.image, self, self._effective_config, self._chance, self.directory_of)
        self._log.open(self.config["min.insync.replicas"])
        self._follow_quotas()
        self.image.removed_topics.clear()
        self.batches.append(len(self.image.replayed))
        self.duties = ControllerDuties(
            self.config, self.clock, self._timer, self.controller, lambda: self._log.last_offset
        )
        self.duties.begin()

    def stop(self) -> None:
        self.duties.end()
        self.logs.close()

    def _effective_config(self) -> Config:
        cluster, _ = self.image.broker_configs(CONTROLLER_ID)
        return self.config.with_dynamic(cluster, {}) if cluster else self.config

    def directory_of(self, broker_id: int) -> bytes:
        return self.image.folder_for_new(broker_id)

    @property
    def log(self) -> MetadataLog:
        return self._log

    @property
    def last_offset(self) -> int:
        return self._log.last_offset

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    def append(self, records: Sequence[Message]) -> None:
        """Write, replay, and notify the brokers."""
        self._log.append(records)
        if any(isinstance(record, stored.ClientQuotaRecord) for record in records):
            self._follow_quotas()
        self.image.removed_topics.clear()
        self.batches.append(len(self.image.replayed))
        self.on_append()

    def when_committed(self, value: Any) -> Any:
        """A single controller commits immediately."""
        return value

    def _follow_quotas(self) -> None:
        if not self.image.quotas:
            self.quotas = None
            return
        self.quotas = quotas.Quotas.followed(self.quotas, self.image, self.config, self.clock)
