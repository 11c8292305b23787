"""Faults of a whole cluster: they apply to all brokers, and are counted together."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.embedded.faults import Faults
from ottla.metadata.topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from ottla.multibroker.cluster import Cluster
    from ottla.server.broker import Broker as Server

T = TypeVar("T")


class ClusterFaults(Faults):
    """`cluster.faults`: like the faults of one broker. Faults of a group or a producer happen at its coordinator."""

    def __init__(self, cluster: Cluster) -> None:
        embedded: Any = cluster
        super().__init__(embedded)
        self._cluster = cluster

    def watch_disk(self) -> None:
        for broker in self._cluster.brokers.values():
            broker.faults.watch_disk()

    def _at_folder(self, folder: str | None, work: Callable[[Server], T]) -> T:
        for broker in self._cluster.brokers.values():
            if folder is not None and os.path.abspath(folder) in map(os.path.abspath, broker.options.folders):
                return broker.call(work)
        raise ValueError(f"no broker of this cluster has the data folder {folder}; name one of them")

    def _at_group(self, group: str, work: Callable[[Server], T]) -> T:
        return self._cluster.call(lambda view: work(view.coordinating(GROUP_METADATA_TOPIC, group)))

    def _at_transactional_id(self, transactional_id: str, work: Callable[[Server], T]) -> T:
        return self._cluster.call(lambda view: work(view.coordinating(TRANSACTION_STATE_TOPIC, transactional_id)))
