"""`ottla serve --control`: a broker in the foreground that other programs steer over HTTP."""

from __future__ import annotations

import asyncio
import signal

from ottla import __version__
from ottla.config import Config
from ottla.testing.broker import Broker


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
