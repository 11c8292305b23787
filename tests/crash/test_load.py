"""Many clients: connections that open and close, half frames, slow readers, and a stop with many clients.

Memory and file handles are measured from outside, in /proc.
"""

import contextlib
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.frames import encode_request
from ottla.wire.messages import ApiVersionsRequest
from support.batches import batch, records_of
from support.waiting import wait_for
from support.wire import Wire

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

CROWD = 1000
GROWTH_MAX_KB = 80_000
STOP_WITHIN_S = 30.0
MEGABYTES = 24


def handles(broker: Any) -> int:
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))


def memory_kb(broker: Any) -> int:
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def hello(number: int) -> bytes:
    request = ApiVersionsRequest(client_software_name="crowd", client_software_version="1")
    return encode_request(request, 3, number, "crowd")


def test_a_thousand_connections_abandoned_in_every_way(start_broker: Callable[..., Any]) -> None:
    broker = start_broker()
    with Wire(broker.address) as wire:
        wire.create_topic("t")
        assert wire.produce("t", batch(b"before")).error_code == 0
        handles_before, memory_before = handles(broker), memory_kb(broker)
        crowd = []
        for number in range(CROWD):
            one = socket.create_connection(broker.address)
            crowd.append(one)
            frame = hello(number)
            if number % 5 == 1:
                one.sendall(frame[: number % len(frame)])  # stops somewhere inside
            elif number % 5 == 2:
                one.sendall(struct.pack(">i", 90 << 20) + b"\0" * 100)  # announces a large frame
            elif number % 5 == 3:
                one.sendall(frame * 20)  # does not read the answers
            elif number % 5 == 4:
                for byte in frame[:6]:
                    one.sendall(bytes([byte]))
        assert wire.produce("t", batch(b"meanwhile")).error_code == 0
        for number, one in enumerate(crowd):
            if number % 2:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            one.close()
        wait_for(lambda: handles(broker) <= handles_before + 3, lambda: handles(broker))
        assert memory_kb(broker) - memory_before < GROWTH_MAX_KB
        assert wire.produce("t", batch(b"after")).error_code == 0
    assert "Traceback" not in broker.text()
    assert broker.stop() == 0


def test_requests_sent_before_a_reset_are_served(start_broker: Callable[..., Any]) -> None:
    """The broker finds bytes and the reset together: it serves the bytes, and closes the connection immediately."""
    broker = start_broker()
    with Wire(broker.address) as wire:
        wire.create_topic("t")
        handles_before = handles(broker)
        clients = [Wire(broker.address) for _ in range(20)]
        for client in clients:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0
        broker.process.send_signal(signal.SIGSTOP)
        for number, client in enumerate(clients):
            if number % 4 == 0:
                client.socket.sendall(struct.pack(">i", 90 << 20) + b"\0" * 100)  # a part of a large frame
            elif number % 4 == 1:
                client.socket.sendall(b"\0")  # a part of a length
            elif number % 4 == 2:
                assert client.produce("t", batch(b"%d" % number), acks=0) is None
            else:
                client.send(client.fetch_request([("t", 0, 0)], max_wait_ms=500_000, min_bytes=1 << 20), 12)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        broker.process.send_signal(signal.SIGCONT)
        wait_for(lambda: handles(broker) <= handles_before + 1, lambda: handles(broker))
        assert {record.value for record in records_of(wire.fetch("t", 0))} == {b"2", b"6", b"10", b"14", b"18"}
    assert broker.stop() == 0


def test_slow_readers_cost_no_memory_and_delay_no_other_client(start_broker: Callable[..., Any]) -> None:
    broker = start_broker()
    with Wire(broker.address) as wire:
        wire.create_topic("t", max_message_bytes=2 << 20)
        for _ in range(MEGABYTES):
            assert wire.produce("t", batch(os.urandom(1 << 20))).error_code == 0
        memory_before, handles_before = memory_kb(broker), handles(broker)
        readers = [Wire(broker.address) for _ in range(20)]
        for reader in readers:
            request = reader.fetch_request([("t", 0, 0)], partition_max_bytes=MEGABYTES << 20)
            reader.send(request, 12)
        began = time.monotonic()
        assert wire.produce("t", batch(b"x")).error_code == 0
        assert time.monotonic() - began < 30
        assert memory_kb(broker) - memory_before < GROWTH_MAX_KB
        # One of them resumes slowly, and gets everything.
        got = readers[0].receive()
        assert len(got.responses[0].partitions[0].records) >= MEGABYTES << 20
        for reader in readers:
            reader.close()
        wait_for(lambda: handles(broker) <= handles_before + 3, lambda: handles(broker))
    assert broker.stop() == 0


def test_a_stop_with_a_hundred_clients_keeps_its_deadline(start_broker: Callable[..., Any]) -> None:
    broker = start_broker()
    with Wire(broker.address) as wire:
        wire.create_topic("t", max_message_bytes=2 << 20)
        for _ in range(8):
            assert wire.produce("t", batch(os.urandom(1 << 20))).error_code == 0
        clients = [Wire(broker.address) for _ in range(100)]
        for number, client in enumerate(clients):
            kind = number % 4
            if kind == 0:  # a long poll
                client.send(client.fetch_request([("t", 0, 8)], max_wait_ms=60_000), 12)
            elif kind == 1:  # does not read its answer
                client.send(client.fetch_request([("t", 0, 0)], partition_max_bytes=8 << 20), 12)
            elif kind == 2:  # half a frame
                client.send_bytes(hello(1)[:9])
        time.sleep(0.2)
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < STOP_WITHIN_S
        polled = clients[0].receive()  # was answered before the end
        assert polled.responses[0].partitions[0].error_code == 0
        for client in clients:
            with contextlib.suppress(OSError):
                client.close()
    assert "Traceback" not in broker.text()
