"""How a server process is stopped."""

from __future__ import annotations

import asyncio
import signal

from ottla.system import on_signal


def stop_event() -> asyncio.Event:
    """An event on the running loop that SIGTERM or Ctrl-C sets."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(loop, number, stopped.set)
    return stopped
