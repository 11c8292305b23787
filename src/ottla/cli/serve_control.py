"""`ottla serve --control` and `--brokers`: what other programs steer over HTTP, in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.serve_console import console_of
from ottla.config import Config
from ottla.embedded.broker import Broker
from ottla.http.endpoint import HttpEndpoint
from ottla.http.metrics import monitoring_app
from ottla.multibroker.cluster import Cluster
from ottla.server.broker import StartError
from ottla.server.metrics import Metrics, MetricsOfSeveral, need_prometheus

if TYPE_CHECKING:
    from ottla.http.endpoint import HttpEndpoint
    from ottla.multibroker.cluster import Cluster
    from ottla.server.broker import Broker as Server


async def serve_with_control(
    config: Config,
    data: str | None,
    arguments: argparse.Namespace,
    announce: Callable[[Broker, str | None, str | None], None],
) -> int:
    """Serve until SIGTERM or Ctrl-C. Its clock is a virtual one, which runs with the real one until it is moved."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    broker = Broker(config, data=data, control=arguments.control, clock="virtual")
    endpoint = None if arguments.metrics is None else _watched_alone(broker, *arguments.metrics)
    if endpoint is not None:
        await endpoint.start()
    try:
        async with broker, console_of(broker.inside(), arguments) as console_url:
            announce(broker, None if endpoint is None else f"{endpoint.url}/metrics", console_url)
            await stopped.wait()
    finally:
        if endpoint is not None:
            await endpoint.stop()
    return 0


async def serve_cluster(
    config: Config,
    data: str | None,
    arguments: argparse.Namespace,
    announce: Callable[[Cluster, str | None, str | None], None],
) -> int:
    """Serve several brokers until SIGTERM or Ctrl-C: on the given ports and the next ones, data in a folder each."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    cluster = Cluster(
        arguments.brokers,
        config=config,
        data=data,
        control=arguments.control,
        clock=None if arguments.control is None else "virtual",
    )
    endpoint = None if arguments.metrics is None else _watched(cluster, *arguments.metrics)
    if endpoint is not None:
        await endpoint.start()
    try:
        async with cluster, console_of(cluster.inside(), arguments) as console_url:
            announce(cluster, None if endpoint is None else f"{endpoint.url}/metrics", console_url)
            await stopped.wait()
    finally:
        if endpoint is not None:
            await endpoint.stop()
    return 0


def _watched_alone(broker: Broker, host: str, port: int) -> HttpEndpoint:
    """The page of a broker that may be started again under way; its counters begin at zero then, as a process's do."""
    try:
        need_prometheus()
    except RuntimeError as error:
        raise StartError(str(error)) from error
    current: list[Metrics] = []

    def attach(server: Server) -> None:
        for before in current:
            server.registry.stop_instrumenting(before.instrument)
        current[:] = [Metrics(server)]
        server.registry.instrument(current[0].instrument)

    broker.on_new_server = attach
    return HttpEndpoint(host, port, monitoring_app(lambda: current[0].page(), lambda: broker.is_running))


def _watched(cluster: Cluster, host: str, port: int) -> HttpEndpoint:
    try:
        metrics = MetricsOfSeveral()
    except RuntimeError as error:
        raise StartError(str(error)) from error
    for broker in cluster.brokers.values():
        broker.on_new_server = metrics.attach
    return HttpEndpoint(host, port, monitoring_app(metrics.page, lambda: bool(cluster.running())))
