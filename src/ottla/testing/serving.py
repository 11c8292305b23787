"""`ottla serve --control` and `--brokers`: what other programs steer over HTTP, in the foreground."""

from __future__ import annotations

import asyncio
import signal

from ottla import __version__
from ottla.config import Config, ConfigError
from ottla.testing.broker import Broker

_OWN_KEYS = ("node.id", "broker.id", "log.dirs", "log.dir", "listeners", "advertised.listeners", "broker.rack")
"""What each broker of a cluster has for itself."""


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


async def serve_cluster(config: Config, brokers: int, preset: str, data: str | None, control: int | None) -> int:
    """Serve several brokers until SIGTERM or Ctrl-C: on the given port and the next ones, data in a folder each."""
    from ottla.testing.cluster import Cluster

    first = config.listeners[0]
    if len(config.listeners) > 1 or first.security_protocol != "PLAINTEXT":
        raise ConfigError("--brokers serves one PLAINTEXT listener a broker; leave out other listeners")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    settings = {
        key: value
        for key, value in config.static.items()
        # The preset is the cluster's to apply: it has more than one replica to offer.
        if key not in _OWN_KEYS and not config.origins.get(key, "").startswith("preset")
    }
    async with Cluster(
        brokers,
        data=data,
        preset=preset,
        settings=settings,
        host=first.host or "127.0.0.1",
        port=first.port,
        control=control,
        clock=None if control is None else "virtual",
    ) as cluster:
        where = "in memory" if data is None else f"data in {data}"
        steer = "" if control is None else f", control at {cluster.control_url}"
        print(f"ottla {__version__}: {brokers} brokers listening on {cluster.bootstrap} ({where}){steer}", flush=True)
        await stopped.wait()
    return 0
