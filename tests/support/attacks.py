"""What a hostile client costs a broker: memory, file handles, and delays for other clients.

    python -m support.attacks OTTLA_OR_KAFKA_HOST:PORT PID [--count 10000]    prints a table

Each attack uses the plain listener and needs no password.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

from ottla.records.batch import Record, build_batch
from ottla.wire.messages import (
    ApiVersionsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    GetTelemetrySubscriptionsRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    MetadataRequest,
)
from support.waiting import ask_until_ready
from support.wire import Wire

Address = tuple[str, int]


def silent_connections(address: Address, count: int) -> list[socket.socket]:
    """Connections that send nothing."""
    return [socket.create_connection(address) for _ in range(count)]


def half_frames(address: Address, count: int) -> list[socket.socket]:
    """Connections that announce a frame of 100 MB and send ten bytes of it."""
    made = silent_connections(address, count)
    for each in made:
        each.sendall(struct.pack(">i", 100_000_000) + bytes(10))
    return made


def slow_bytes(address: Address, count: int) -> list[socket.socket]:
    """A frame that arrives byte by byte, like the frames of a client that sends one byte per second."""
    made = silent_connections(address, count)
    for byte in struct.pack(">i", 1000) + b"\0\3\0\0":
        for each in made:
            each.sendall(bytes((byte,)))
    return made


def half_handshakes(address: Address, count: int) -> list[socket.socket]:
    """The beginning of a TLS handshake. On a plain listener it is an invalid frame."""
    made = silent_connections(address, count)
    for each in made:
        each.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    return made


def client_ids(address: Address, count: int) -> list[socket.socket]:
    """Requests, each with a new client id."""
    with Wire(address) as wire:
        for number in range(count):
            wire.client_id = f"client-{number:010d}-{'x' * 40}"
            wire.call(ApiVersionsRequest(), 0)
    return []


def group_ids(address: Address, count: int) -> list[socket.socket]:
    """Requests for groups that do not exist, one by one and a hundred at a time."""
    with Wire(address) as wire:
        ask_until_ready(lambda: wire.call(FindCoordinatorRequest(key="g", key_type=0), 3))
        for number in range(0, count, 100):
            names = [f"group-{each:010d}-{'x' * 40}" for each in range(number, number + 100)]
            wire.call(DescribeGroupsRequest(groups=names), 5)
            wire.call(HeartbeatRequest(group_id=names[0], generation_id=1, member_id="m"), 3)
    return []


def producer_ids(address: Address, count: int) -> list[socket.socket]:
    with Wire(address) as wire:
        ask = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        ask_until_ready(lambda: wire.call(ask, 4))
        for _ in range(count):
            wire.call(ask, 4)
    return []


def new_groups(address: Address, count: int) -> list[socket.socket]:
    """New groups, each with one member that never returns with the member id that it gets."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    with Wire(address) as wire:
        for number in range(count):
            wire.call(
                JoinGroupRequest(
                    group_id=f"new-{number:010d}-{'x' * 40}",
                    session_timeout_ms=30_000,
                    rebalance_timeout_ms=30_000,
                    member_id="",
                    protocol_type="consumer",
                    protocols=[protocol],
                ),
                5,
            )
    return []


def writers(address: Address, count: int) -> list[socket.socket]:
    """Producer ids that write one record each. Their state expires after a day, as in Kafka."""
    with Wire(address) as wire:
        wire.create_topic("attacked")
        for number in range(count):
            record = Record(0, int(time.time() * 1000), None, b"v")
            batch = build_batch([record], producer_id=1_000_000 + number, producer_epoch=0, base_sequence=0)
            assert wire.produce("attacked", batch).error_code == 0
    return []


def topic_names(address: Address, count: int) -> list[socket.socket]:
    """Topics that do not exist, a hundred at a time: their names could end up in metric labels or caches."""
    with Wire(address) as wire:
        for number in range(0, count, 100):
            names = [f"topic-{each:010d}-{'x' * 40}" for each in range(number, number + 100)]
            topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
            wire.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    return []


def telemetry(address: Address, count: int) -> list[socket.socket]:
    """Clients that ask which metrics they should push, each with its own id."""
    chance = random.Random(1)
    with Wire(address) as wire:
        for _ in range(count):
            wire.call(GetTelemetrySubscriptionsRequest(client_instance_id=chance.randbytes(16)), 0)
    return []


def fetch_sessions(address: Address, count: int) -> list[socket.socket]:
    with Wire(address) as wire:
        for _ in range(count):
            wire.call(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=0, topics=[]), 11)
    return []


ATTACKS: dict[str, tuple[Callable[[Address, int], list[socket.socket]], float]] = {
    "silent connections": (silent_connections, 0.5),
    "one byte at a time": (slow_bytes, 0.1),
    "half TLS handshakes": (half_handshakes, 0.1),
    "client ids": (client_ids, 1.0),
    "group ids": (group_ids, 5.0),
    "new groups": (new_groups, 1.0),
    "producer ids": (producer_ids, 1.0),
    "producer ids that write": (writers, 1.0),
    "names of topics": (topic_names, 5.0),
    "telemetry": (telemetry, 1.0),
    "fetch sessions": (fetch_sessions, 1.0),
    "half frames of 100 MB": (half_frames, 0.1),
}
"""Each attack, and the share of `--count` that it uses."""


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def handles(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def request_ms(address: Address) -> float:
    """The time of the slowest of a few requests of another client; infinite if one takes more than half a minute."""
    slowest = 0.0
    with Wire(address) as wire:
        for _ in range(10):
            began = time.monotonic()
            try:
                wire.call(MetadataRequest(topics=[]), 9)
            except (OSError, TimeoutError):
                return float("inf")
            slowest = max(slowest, (time.monotonic() - began) * 1000)
    return slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("pid", type=int)
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    host, _, port = arguments.address.rpartition(":")
    address = host, int(port)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("| attack | count | memory grows by | handles after it | others wait at most |\n|---|---|---|---|---|")
    request_ms(address)
    for name, (attack, share) in ATTACKS.items():
        before = memory_mb(arguments.pid)
        count = int(arguments.count * share)
        held = attack(address, count)
        time.sleep(1)
        waited, grown = request_ms(address), memory_mb(arguments.pid) - before
        for each in held:
            each.close()
        time.sleep(1)
        print(
            f"| {name} | {count:,} | {grown:.1f} MB | {handles(arguments.pid)} | {waited:.1f} ms |",
            flush=True,
        )


if __name__ == "__main__":
    main()
