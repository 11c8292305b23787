"""The shared part of `ottla console` and `ottla registry`: an HTTP service for a cluster, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Protocol

from ottla.cli import common, terminal
from ottla.server.net.listener import ListenError


class Service(Protocol):
    @property
    def url(self) -> str: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def add_options(parser: argparse.ArgumentParser, default_port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=default_port, help=f"the port to listen on, 0 for a free one ({default_port})"
    )


async def serve(service: Service, name: str, bootstrap: str, stopped: asyncio.Event, *, as_json: bool) -> int:
    """Start the service, print its address, and stop it when `stopped` is set."""
    try:
        await service.start()
    except ListenError as error:
        raise common.CommandError(str(error)) from None
    if as_json:
        terminal.print_json({"url": service.url, "bootstrap": bootstrap})
    else:
        print(f"the {name} of {bootstrap} is on {service.url}")
    sys.stdout.flush()
    await stopped.wait()
    await service.stop()
    return common.OK
