"""Ports for servers that cannot use port 0 and report the port they got."""

import os
import random
import socket
from contextlib import ExitStack
from pathlib import Path

FIRST_PORT = 10_240
CONTROLLER_STEP = 1000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int = 1) -> list[int]:
    """Ports in a row that are free, as are those 1000 above, where Apache Kafka has its controller.

    They are outside the ephemeral range: otherwise a server that takes seconds to start could lose its port to a
    connection that another program opens meanwhile. Each test process uses its own part of the range.
    """
    low = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    parts = max(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), 1)
    width = (low - FIRST_PORT - CONTROLLER_STEP - count) // parts
    for _ in range(1000):
        first = FIRST_PORT + width * worker + random.SystemRandom().randrange(width)
        ports = list(range(first, first + count))
        if _are_free([*ports, *(port + CONTROLLER_STEP for port in ports)]):
            return ports
    raise OSError("no free ports")


def _are_free(ports: list[int]) -> bool:
    with ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            return False
    return True
