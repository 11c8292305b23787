"""Many TLS handshakes at once, and clients that never finish theirs."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.server.security import tls_transport
from ottla.wire.messages.metadata import ApiVersionsRequest
from support.tls_floods import client_hello

HANDSHAKES = 40
TLS, PLAIN = 0, 1


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what happens in the broker sets no event here
        await asyncio.sleep(0)


async def connected(running: Any, count: int) -> list[socket.socket]:
    """Connections to the TLS listener that the broker has accepted."""
    before = len(list(running.broker.connections))
    made = [socket.create_connection(("127.0.0.1", running.port(TLS))) for _ in range(count)]
    await until(lambda: len(list(running.broker.connections)) == before + count)
    return made


def answered(sockets: list[socket.socket]) -> int:
    """How many clients got the broker's part of the handshake."""
    count = 0
    for each in sockets:
        each.setblocking(False)
        with suppress(BlockingIOError):
            count += len(each.recv(1, socket.MSG_PEEK))
    return count


def both_listeners(certificates: Any) -> dict[str, object]:
    return {
        **certificates.settings(),
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
    }


def test_others_are_served_between_handshakes_that_come_at_once(
    run: Any, run_broker: Any, certificates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKES_NS", 1)  # one per turn of the loop

    async def main() -> None:
        async with run_broker(settings=both_listeners(certificates)) as running:
            other = await running.connect(PLAIN)
            attackers = await connected(running, HANDSHAKES)
            hello = client_hello()
            for each in attackers:
                each.sendall(hello)
            await other.call(ApiVersionsRequest(), 0)
            assert 0 < answered(attackers) < HANDSHAKES // 2
            await until(lambda: answered(attackers) == HANDSHAKES)
            for each in attackers:
                each.close()

    run(main())


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_handshakes_that_stop_are_closed_like_idle_connections(
    run: Any, run_broker: Any, certificates: Any, share: float
) -> None:
    async def main() -> None:
        clock = ManualClock(1_700_000_000_000)
        settings = {**both_listeners(certificates), "connections.max.idle.ms": 5_000}
        async with run_broker(settings=settings, clock=clock) as running:
            (attacker,) = await connected(running, 1)
            hello = client_hello()
            attacker.sendall(hello[: int(len(hello) * share)])
            await running.settle()
            clock.advance(20_000)
            await until(lambda: not list(running.broker.connections))
            attacker.close()

    run(main())
