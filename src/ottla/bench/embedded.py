"""Measures the line `embed`: a broker in this Python process, up to its first answer. Prints JSON.

Run as a program. Only the standard library is imported before the clock starts, as in a test that has a broker fixture.
"""

from __future__ import annotations

import asyncio
import json
import time

ROUNDS = 5
API_VERSIONS_V0 = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"


async def start_and_ask() -> float:
    """Seconds from creating a broker until it has answered ApiVersions on its port."""
    from ottla.server.broker import Broker

    started = time.perf_counter()
    async with Broker() as broker:
        host, port = broker.addresses[0]
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(API_VERSIONS_V0)
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
        seconds = time.perf_counter() - started
        writer.close()
        await writer.wait_closed()
    return seconds


def main() -> None:
    started = time.perf_counter()
    import ottla.server.broker  # noqa: F401

    import_seconds = time.perf_counter() - started
    first = asyncio.run(start_and_ask())
    later = sorted(asyncio.run(start_and_ask()) for _ in range(ROUNDS))
    print(json.dumps({"ms": later[ROUNDS // 2] * 1e3, "first_ms": first * 1e3, "import_ms": import_seconds * 1e3}))


if __name__ == "__main__":
    main()
