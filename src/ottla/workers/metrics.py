"""One metrics page for all workers: the controller asks each for its own, and a label says whose is whose."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.server.http import HttpAnswer, HttpEndpoint
from ottla.server.metrics import HighWatermarks, Metrics, broker_pages, page_of
from ottla.workers.broker import HIGH_WATERMARKS, METRICS
from ottla.workers.link import LinkLost

if TYPE_CHECKING:
    import socket

    from ottla.workers.broker import ControllerWorker, WorkerBroker

LABEL = "worker"

Family = tuple[str, str, str, list[tuple[str, dict[str, str], float]]]
"""Name, help, type, and the samples with their labels; as it goes from worker to worker."""


class MetricsOfWorker:
    """What one worker counts, for whoever makes the page."""

    def __init__(self, worker: WorkerBroker) -> None:
        self._worker = worker
        self._metrics = Metrics(worker)
        worker.registry.instrument(self._metrics.instrument)

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        return {(each.topic, each.index): each.high_watermark for each in self._worker.replicas}

    def families(self, high_watermarks: HighWatermarks) -> list[Family]:
        return [
            (
                metric.name,
                metric.documentation,
                metric.type,
                [(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples],
            )
            for metric in self._metrics.collect(high_watermarks)
        ]


class _Gathered:
    """The metrics of all workers, as one registry would have them."""

    def __init__(self, by_worker: dict[int, list[Family]]) -> None:
        self._by_worker = by_worker

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import Metric

        merged: dict[str, Metric] = {}
        for worker_id, families in self._by_worker.items():
            for name, documentation, kind, samples in families:
                metric = merged.get(name)
                if metric is None:
                    metric = merged[name] = Metric(name, documentation, kind)
                for sample, labels, value in samples:
                    metric.add_sample(sample, {LABEL: str(worker_id), **labels}, value)
        return iter(merged.values())


async def _asked(worker: ControllerWorker, name: str, *arguments: Any) -> dict[int, Any]:
    """What each of the other workers answers; who is gone is left out."""
    peers = list(worker.links)
    calls = [worker.links[peer].call(name, *arguments) for peer in peers]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, LinkLost):
            raise answer
    return {peer: answer for peer, answer in zip(peers, answers, strict=True) if not isinstance(answer, LinkLost)}


def shared_endpoint(worker: ControllerWorker, sock: socket.socket) -> HttpEndpoint:
    """`/metrics` of all workers, `/health` and `/ready`."""

    async def page() -> HttpAnswer:
        own = worker.metrics
        assert own is not None, "metrics are switched on in all workers or in none"
        if not worker.is_running:  # links have nobody who reads them
            return page_of(_Gathered({worker.node_id: own.families({})}))
        # A group's lag needs the ends of partitions, whoever leads them.
        known = own.high_watermarks()
        for part in (await _asked(worker, HIGH_WATERMARKS)).values():
            known.update(part)
        others = await _asked(worker, METRICS, known)
        return page_of(_Gathered({worker.node_id: own.families(known), **others}))

    host, port = sock.getsockname()[:2]
    return HttpEndpoint(host, port, broker_pages(worker, page), sock=sock)
