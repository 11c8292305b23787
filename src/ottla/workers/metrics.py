"""One metrics page for all workers: the controller collects the metrics of each, with a label for the worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.http.endpoint import HttpEndpoint
from ottla.http.metrics import monitoring_app
from ottla.server.metrics import Family, Gathered, Metrics, MetricsPage, page_of
from ottla.workers.link import LinkLost
from ottla.workers.topology import HIGH_WATERMARKS, METRICS

if TYPE_CHECKING:
    import socket

    from ottla.server.state_metrics import HighWatermarks
    from ottla.workers.topology import ControllerTopology, WorkerTopology

LABEL = "worker"


class MetricsOfWorker:
    """The metrics of one worker, for the worker that serves the page."""

    def __init__(self, worker: WorkerTopology) -> None:
        self._worker = worker
        self._metrics = Metrics(worker.broker)
        worker.broker.registry.instrument(self._metrics.instrument)

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        return {(each.topic, each.index): each.high_watermark for each in self._worker.broker.replicas}

    def families(self, high_watermarks: HighWatermarks) -> list[Family]:
        return self._metrics.families(high_watermarks)


async def _asked(worker: ControllerTopology, name: str, *arguments: Any) -> dict[int, Any]:
    """The answers of the other workers, without those that are gone."""
    peers = list(worker.links)
    calls = [worker.links[peer].call(name, *arguments) for peer in peers]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, LinkLost):
            raise answer
    return {peer: answer for peer, answer in zip(peers, answers, strict=True) if not isinstance(answer, LinkLost)}


def shared_endpoint(worker: ControllerTopology, sock: socket.socket) -> HttpEndpoint:
    """`/metrics` of all workers, `/health` and `/ready`."""

    async def page() -> MetricsPage:
        own = worker.metrics
        assert own is not None, "metrics are switched on in all workers or in none"
        if not worker.broker.is_running:  # links have no reader
            return page_of(Gathered(LABEL, {worker.broker.node_id: own.families({})}))
        # A group's lag needs the end offsets of partitions that other workers lead.
        known = own.high_watermarks()
        for part in (await _asked(worker, HIGH_WATERMARKS)).values():
            known.update(part)
        others = await _asked(worker, METRICS, known)
        return page_of(Gathered(LABEL, {worker.broker.node_id: own.families(known), **others}))

    host, port = sock.getsockname()[:2]
    return HttpEndpoint(host, port, monitoring_app(page, lambda: worker.broker.is_running), sock=sock)
