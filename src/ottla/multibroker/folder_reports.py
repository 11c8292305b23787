"""The reports of a broker to the controller about its data folders: their replicas, and failed folders.

Replicas are reported with AssignReplicasToDirs, failed folders in the heartbeat (KIP-858). Both are sent until the
controller has them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.multibroker.controller_link import ActiveController
from ottla.wire.messages import AssignReplicasToDirsRequest

if TYPE_CHECKING:
    from ottla.multibroker.node import BrokerNode
    from ottla.server.log_dirs import Assignment

logger = logging.getLogger(__name__)

RETRY_MS = 500

_Folder = AssignReplicasToDirsRequest.DirectoryData
_Topic = AssignReplicasToDirsRequest.TopicData
_Partition = AssignReplicasToDirsRequest.PartitionData


class FolderReports:
    """The reports of one broker."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._assigned: dict[tuple[bytes, int], bytes] = {}
        """Replicas whose folder the controller does not know yet."""
        self._is_registered = False
        self._is_sending = False
        self.failed: list[bytes] = []
        """The folders that failed since the start."""
        self._unknown: set[bytes] = set()
        """Failed folders that the controller does not know about yet."""

    def registered(self) -> None:
        """Called when the controller knows this start of the broker."""
        self._is_registered = True
        self._send()

    # -- replicas in folders -----------------------------------------------------------------------------------

    def assign(self, assigned: Sequence[Assignment]) -> None:
        self._assigned.update(((topic_id, index), directory) for topic_id, index, directory in assigned)
        self._send()

    def _send(self) -> None:
        node = self._node
        if self._is_sending or not self._assigned or not self._is_registered or not node.is_alive:
            return
        self._is_sending = True
        sent = dict(self._assigned)
        request = _request(node.node_id, node.broker_epoch, sent)

        def answered(_: Any, error: Exception | None) -> None:
            self._is_sending = False
            if not node.is_alive:
                return
            if error is None:
                for key, directory in sent.items():
                    if self._assigned.get(key) == directory:  # otherwise it was moved in the meantime
                        del self._assigned[key]
                self._send()
            else:
                node.broker.timer.schedule(RETRY_MS, self._send)

        def assign(active: ActiveController) -> Any:
            return active.when_committed(active.duties.assign_replicas_to_dirs(request))

        node.link.call(assign, answered)

    # -- failed folders ----------------------------------------------------------------------------------------

    def report_failed(self, directory_ids: Sequence[bytes]) -> None:
        """Report without waiting for the next heartbeat. If that fails, the broker stops: others think it leads."""
        node = self._node
        self.failed += directory_ids
        self._unknown.update(directory_ids)
        timeout_ms: int = node.broker.config["log.dir.failure.timeout.ms"]
        node.broker.timer.schedule(timeout_ms, self._time_is_up)
        node.heartbeat_now()

    def heard(self, directory_ids: Iterable[bytes]) -> None:
        """The controller has answered a heartbeat with these folders."""
        self._unknown.difference_update(directory_ids)

    def _time_is_up(self) -> None:
        node = self._node
        if self._unknown and node.is_alive:
            logger.critical(
                "broker %d could not report its failed data folders to the controller within "
                "log.dir.failure.timeout.ms; it stops, so that other brokers can lead the partitions in them",
                node.node_id,
            )
            node.broker.halt()


def _request(broker_id: int, epoch: int, assigned: dict[tuple[bytes, int], bytes]) -> AssignReplicasToDirsRequest:
    folders: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, index), directory in assigned.items():
        folders.setdefault(directory, {}).setdefault(topic_id, []).append(index)
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        directories=[
            _Folder(
                id=directory,
                topics=[
                    _Topic(topic_id=topic_id, partitions=[_Partition(partition_index=index) for index in indexes])
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory, topics in folders.items()
        ],
    )
