"""The child process of `ottla.spawn()`: a broker that runs as long as the pipe to its standard input is open.

The first line of that input contains its options.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading

from ottla.embedded.broker import Broker
from ottla.embedded.options import check_names
from ottla.server.broker import StartError
from ottla.server.net.listener import ListenError


async def main(options: str) -> None:
    """Print the addresses, or the startup error, as one line of JSON. Stop cleanly when the parent ends."""
    try:
        given = json.loads(options)
        check_names(given)
        broker = Broker(**given)
        await broker.start()
    except Exception as error:
        kind = "type" if isinstance(error, TypeError) else "value" if isinstance(error, ValueError) else "other"
        print(json.dumps({"error": str(error), "kind": kind}), flush=True)
        if isinstance(error, (TypeError, ValueError, StartError, ListenError)):
            return  # the message is enough
        raise
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
