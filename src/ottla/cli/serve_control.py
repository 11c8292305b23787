"""`ottla serve --control` and `--brokers`: brokers in the foreground that other programs control over HTTP."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.serve_console import console_of
from ottla.cli.serve_registry import wanted
from ottla.config import Config
from ottla.embedded.broker import Broker
from ottla.http.endpoint import HttpEndpoint
from ottla.http.metrics import monitoring_app
from ottla.multibroker.cluster import Cluster
from ottla.server.broker import StartError
from ottla.server.metrics import Metrics, MetricsOfSeveral, need_prometheus
from ottla.server.stop_signals import stop_event

if TYPE_CHECKING:
    from ottla.server.broker import Broker as Server

Served = TypeVar("Served", Broker, Cluster)


async def serve_with_control(
    config: Config,
    data: Sequence[str] | None,
    arguments: argparse.Namespace,
    announce: Callable[[Broker, str | None, str | None], None],
) -> int:
    """Serve until SIGTERM or Ctrl-C. The broker has a virtual clock, which follows the real one until it is
    advanced.
    """
    stopped = stop_event()
    broker = Broker(config, data=data, control=arguments.control, clock="virtual", registry=wanted(arguments))
    endpoint = None if arguments.metrics is None else _watched_alone(broker, *arguments.metrics)
    return await _serve(broker, stopped, endpoint, arguments, announce)


async def serve_cluster(
    config: Config,
    data: Sequence[str] | None,
    arguments: argparse.Namespace,
    announce: Callable[[Cluster, str | None, str | None], None],
) -> int:
    """Serve several brokers until SIGTERM or Ctrl-C: on the given ports and the next ones, with one data folder per
    broker.
    """
    stopped = stop_event()
    cluster = Cluster(
        arguments.brokers,
        controllers=arguments.controllers,
        combined=arguments.combined,
        config=config,
        data=data,
        control=arguments.control,
        clock=None if arguments.control is None else "virtual",
        registry=wanted(arguments),
    )
    endpoint = None if arguments.metrics is None else _watched(cluster, *arguments.metrics)
    return await _serve(cluster, stopped, endpoint, arguments, announce)


async def _serve(
    served: Served,
    stopped: asyncio.Event,
    endpoint: HttpEndpoint | None,
    arguments: argparse.Namespace,
    announce: Callable[[Served, str | None, str | None], None],
) -> int:
    if endpoint is not None:
        await endpoint.start()
    try:
        async with served, console_of(served.inside(), arguments) as console_url:
            await arguments.setup.prepare_inside(served.inside())
            announce(served, None if endpoint is None else f"{endpoint.url}/metrics", console_url)
            await stopped.wait()
    finally:
        if endpoint is not None:
            await endpoint.stop()
    return 0


def _watched_alone(broker: Broker, host: str, port: int) -> HttpEndpoint:
    """The metrics of a broker that may be restarted. Its counters then begin at zero, like those of a new process."""
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
