"""`ottla serve --control` and `--brokers`: what other programs steer over HTTP, in the foreground."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.config import Config
from ottla.testing.broker import Broker

if TYPE_CHECKING:
    from ottla.server.http import HttpEndpoint
    from ottla.testing.cluster import Cluster


async def serve_with_control(config: Config, data: str | None, port: int) -> int:
    """Serve until SIGTERM or Ctrl-C. Its clock is a virtual one, which runs with the real one until it is moved."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Broker(config, data=data, control=port, clock="virtual") as broker:
        where = "in memory" if data is None else f"data in {data}"
        host, bound = broker.address
        print(
            f"ottla {__version__}: listening on {host}:{bound} ({where}), control at {broker.control_url}", flush=True
        )
        await stopped.wait()
    return 0


async def serve_cluster(
    config: Config,
    brokers: int,
    preset: str,
    data: str | None,
    control: int | None,
    metrics: tuple[str, int] | None,
    announce: Callable[[Cluster, str | None], None],
) -> int:
    """Serve several brokers until SIGTERM or Ctrl-C: on the given ports and the next ones, data in a folder each."""
    from ottla.testing.cluster import Cluster

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    cluster = Cluster(
        brokers,
        config=config,
        preset=preset,
        data=data,
        control=control,
        clock=None if control is None else "virtual",
    )
    endpoint = None if metrics is None else _watched(cluster, *metrics)
    if endpoint is not None:
        await endpoint.start()
    try:
        async with cluster:
            announce(cluster, None if endpoint is None else f"{endpoint.url}/metrics")
            await stopped.wait()
    finally:
        if endpoint is not None:
            await endpoint.stop()
    return 0


def _watched(cluster: Cluster, host: str, port: int) -> HttpEndpoint:
    from ottla.server.broker import StartError
    from ottla.server.http import HttpEndpoint
    from ottla.server.metrics import MetricsOfSeveral, watching_pages

    try:
        metrics = MetricsOfSeveral()
    except RuntimeError as error:
        raise StartError(str(error)) from error
    for broker in cluster.brokers.values():
        broker.on_new_server = metrics.attach
    return HttpEndpoint(host, port, watching_pages(metrics.page, lambda: bool(cluster.running())))
