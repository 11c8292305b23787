"""The process behind `ottla.spawn()`: a broker that lives as long as the pipe to its standard input is open.

The first line of that input holds its options.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading

from ottla.embedded.broker import Broker


async def main(options: str) -> None:
    """Print the addresses as one line of JSON, and stop cleanly when the parent ends."""
    broker = Broker(**json.loads(options))
    await broker.start()
    registry_url = None if broker.options.registry is None else broker.registry_url
    ready = {
        "bootstrap": broker.bootstrap,
        "control": broker.control_url,
        "registry": registry_url,
        "protocol": broker.login.protocol,
        "ca_file": broker.login.ca_file,
    }
    print(json.dumps(ready), flush=True)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_parent() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_parent, daemon=True).start()
    await ended.wait()
    await broker.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.stdin.readline()))
