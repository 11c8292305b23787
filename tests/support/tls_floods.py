"""Floods of TLS handshakes, on Ottla and on Apache Kafka with the same certificate: what they cost, and how long other
clients wait.

    python -m support.tls_floods [--count 1000]    prints a table

Another client asks for metadata on the plain listener all the time. Its slowest answer is the time that other clients
wait.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ottla.wire.messages import MetadataRequest
from support.attacks import Address, memory_mb, silent_connections
from support.interop.secured import Secured
from support.wire import Wire

Attack = Callable[[Address, int], list[socket.socket]]


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def client_hello() -> bytes:
    """The first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


def half_hellos(address: Address, count: int) -> list[socket.socket]:
    """Clients that stop in the middle of their first message."""
    hello = client_hello()
    made = silent_connections(address, count)
    for each in made:
        each.sendall(hello[: len(hello) // 2])
    return made


def unfinished(address: Address, count: int) -> list[socket.socket]:
    """Clients that make the broker sign, all at once, and then send nothing more."""
    hello = client_hello()
    made = silent_connections(address, count)
    for each in made:
        each.sendall(hello)
    for each in made:
        each.recv(1)
    return made


def new_connections(address: Address, count: int) -> list[socket.socket]:
    """Whole handshakes, each on a new connection that is closed at once."""
    context = client_context()
    for _ in range(count):
        with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname="localhost"):
            pass
    return []


ATTACKS: dict[str, Attack] = {
    "TLS clients that send half of their first message": half_hellos,
    "TLS clients that leave after the broker has signed": unfinished,
    "new TLS connections, one after the other": new_connections,
}


def _attack(
    name: str,
    address: Address,
    count: int,
    done: multiprocessing.synchronize.Event,
    end: multiprocessing.synchronize.Event,
) -> None:
    held = ATTACKS[name](address, count)
    done.set()
    end.wait()
    for each in held:
        each.close()


def slowest_ms(wire: Wire, until: Callable[[], bool]) -> float:
    slowest = 0.0
    while True:
        began = time.monotonic()
        wire.call(MetadataRequest(topics=[]), 9)
        slowest = max(slowest, (time.monotonic() - began) * 1000)
        if until():
            return slowest
        time.sleep(0.001)


def measured(broker: Secured, name: str, count: int) -> tuple[float, float, float]:
    """How much memory an attack takes, how long others wait meanwhile, and how long it lasts, in MB, ms and s."""
    done, end = multiprocessing.Event(), multiprocessing.Event()
    tls = ("127.0.0.1", broker.addresses["SSL"])
    attacker = multiprocessing.Process(target=_attack, args=(name, tls, count, done, end), daemon=True)
    with broker.wire() as wire:
        slowest_ms(wire, lambda: True)
        before, began = memory_mb(broker.pid), time.monotonic()
        attacker.start()
        slowest = slowest_ms(wire, done.is_set)
        lasted = time.monotonic() - began
        grown = memory_mb(broker.pid) - before
    end.set()
    attacker.join(60)
    return grown, slowest, lasted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", choices=("ottla", "kafka"))
    arguments = parser.parse_args()
    print("| attack | broker | count | memory grows by | others wait at most | lasts |\n|---|---|---|---|---|---|")
    for kind in ("ottla", "kafka"):
        if arguments.only not in (None, kind):
            continue
        with tempfile.TemporaryDirectory() as folder:
            broker = Secured(kind, Path(folder) / kind)
            try:
                new_connections(("127.0.0.1", broker.addresses["SSL"]), 50)  # memory that the first handshakes load
                for name in ATTACKS:
                    grown, slowest, lasted = measured(broker, name, arguments.count)
                    row = f"{arguments.count:,} | {grown:.1f} MB | {slowest:.0f} ms | {lasted:.1f} s"
                    print(f"| {name} | {kind} | {row} |", flush=True)
            finally:
                broker.stop()


if __name__ == "__main__":
    main()
