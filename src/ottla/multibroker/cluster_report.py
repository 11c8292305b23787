"""The report on the cluster of a failed test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.embedded.report import report
from ottla.server.request_log import ControlEvent

if TYPE_CHECKING:
    from ottla.multibroker.cluster import Cluster


def cluster_report(cluster: Cluster) -> str:
    """The report as text: the brokers, the partitions and the actions on them, then the report on a broker."""
    state = cluster.describe()
    lines = [f"broker {number}: {what}" for number, what in state["brokers"].items()]
    for topic, partitions in state["topics"].items():
        lines += [
            f"{topic}-{each['partition']}: leader {each['leader']}, replicas {each['replicas']}, isr {each['isr']}"
            for each in partitions
        ]
    lines += [str(seen) for seen in cluster.requests(api=ControlEvent.api)]
    embedded: Any = cluster
    return "\n".join([*lines, report(embedded)])
