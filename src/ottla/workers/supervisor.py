"""Starts the workers and watches them; if one ends unexpectedly, all end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ottla.config import Config, Listener
from ottla.server.broker import StartError
from ottla.server.metrics import MISSING
from ottla.server.net.listener import ListenError, bind
from ottla.workers.process import LOST_CONTROLLER, READY, run_worker
from ottla.workers.topology import Seat

if TYPE_CHECKING:
    from ottla.http.endpoint import HttpEndpoint
    from ottla.server.broker import Broker

logger = logging.getLogger(__name__)

STOP_SECONDS = 60.0
"""How long workers may take to stop before they are killed."""


def serve_workers(
    config: Config,
    count: int,
    on_ready: Callable[[str, str | None], None],
    metrics: tuple[str, int] | None = None,
    beside: Callable[[int, Broker], HttpEndpoint] | None = None,
) -> int:
    """Run `count` workers until SIGTERM, SIGINT or the end of one.

    `metrics` is the host and port of a page for all of them. `on_ready` gets the bootstrap addresses and the address
    of the page. `beside` creates the services of each worker besides its clients. Returns the exit code: 0 after a
    requested stop. Raises ListenError before anything is started.
    """
    if metrics is not None:
        _check_installed()
    seats, addresses = _seats(config, count)
    url = None if metrics is None else _open_metrics(seats, *metrics)
    for seat in seats:
        seat.beside = beside
    lifeline, lifeline_end = os.pipe()
    status, status_end = os.pipe()
    gc.freeze()  # modules loaded so far stay shared between the workers
    workers: dict[int, int] = {}
    for seat in seats:
        pid = os.fork()
        if pid == 0:
            os.close(lifeline_end)
            os.close(status)
            _become(seat, seats, lifeline, status_end)
        workers[pid] = seat.node_id
    for seat in seats:
        _close_all(seat)
    os.close(status_end)
    os.close(lifeline)
    try:
        return asyncio.run(_Watch(workers, status, lambda: on_ready(addresses, url)).run())
    finally:
        os.close(lifeline_end)
        os.close(status)


def _check_installed() -> None:
    if find_spec("prometheus_client") is None:
        raise StartError(MISSING)


def _open_metrics(seats: list[Seat], host: str, port: int) -> str:
    """Bind the port of the page and return its address."""
    try:
        sock = bind(host, port)
    except ListenError:
        for seat in seats:
            _close_all(seat)
        raise
    for seat in seats:
        seat.metrics = sock
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{sock.getsockname()[1]}/metrics"


def _become(seat: Seat, seats: list[Seat], lifeline: int, status: int) -> None:
    """Never returns: the child must not continue with the parent's code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the supervisor, too
    code = 1
    try:
        for other in seats:
            if other is not seat:
                shared = {sock.fileno() for _, sock in seat.sockets}
                if seat.metrics is not None and seat.node_id == seat.controller_id:
                    shared.add(seat.metrics.fileno())
                _close_all(other, keep=shared)
        code = run_worker(seat, lifeline, status)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        logger.exception("worker %d failed", seat.node_id)
    finally:
        os._exit(code)


def _close_all(seat: Seat, keep: Collection[int] = ()) -> None:
    for sock in [*(sock for _, sock in seat.sockets), *seat.links.values(), seat.metrics]:
        if sock is not None and sock.fileno() not in keep:
            sock.close()


def _seats(config: Config, count: int) -> tuple[list[Seat], str]:
    """Bind all ports, so that a port in use is found before anything changes."""
    worker_ids = [config.node_id + number for number in range(count)]
    seats = [Seat(worker_id, worker_ids, config, [], {}) for worker_id in worker_ids]
    advertised: dict[int, list[tuple[str, str, int]]] = {worker_id: [] for worker_id in worker_ids}
    shown = {listener.name: listener for listener in config.advertised_listeners}
    addresses = []
    opened: list[socket.socket] = []
    try:
        for listener in config.listeners:
            shared = bind(listener.host, listener.port)
            opened.append(shared)
            addresses.append(f"{listener.host or '0.0.0.0'}:{shared.getsockname()[1]}")
            for number, seat in enumerate(seats, 1):
                own = listener._replace(port=_own_port(listener, number))
                sock = bind(own.host, own.port)
                opened.append(sock)
                port: int = sock.getsockname()[1]
                seat.sockets += [(listener, shared), (own._replace(port=port), sock)]
                advertised[seat.node_id].append(_shown(shown.get(listener.name, listener), listener, port, number))
    except ListenError:
        for sock in opened:
            sock.close()
        raise
    for place, seat in enumerate(seats):
        seat.advertised = advertised
        for other in seats[place + 1 :]:
            seat.links[other.node_id], other.links[seat.node_id] = socket.socketpair()
    return seats, ", ".join(addresses)


def _own_port(listener: Listener, number: int) -> int:
    if listener.port == 0:
        return 0
    if listener.port + number > 65535:
        raise ListenError(f"worker {number} has no port above {listener.port} for listener {listener.name}")
    return listener.port + number


def _shown(shown: Listener, listener: Listener, port: int, number: int) -> tuple[str, str, int]:
    """The address of a worker for clients: its own port, or the advertised port plus the same offset."""
    host = "" if shown.host in ("", "0.0.0.0", "::") else shown.host
    return listener.name, host, port if shown.port in (0, listener.port) else shown.port + number


class _Watch:
    """Waits for the end of the workers."""

    def __init__(self, workers: dict[int, int], status: int, on_ready: Callable[[], None]) -> None:
        self._workers = workers
        self._status = status
        self._on_ready = on_ready
        self._stopping = False
        self._is_ready = False
        self._code = 0
        self._all_gone = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_reader(self._status, self._status_changed)
        self._reap()  # workers that ended before the handler was installed
        await self._all_gone.wait()
        return self._code

    def _status_changed(self) -> None:
        asyncio.get_running_loop().remove_reader(self._status)
        if os.read(self._status, 64) == READY:
            self._is_ready = True
            self._on_ready()

    def _reap(self) -> None:
        ended: list[tuple[int, int]] = []
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid in self._workers:
                ended.append((self._workers.pop(pid), os.waitstatus_to_exitcode(status)))
        for worker_id, code in ended:
            self._ended(worker_id, code)
        if not self._workers:
            self._all_gone.set()

    def _ended(self, worker_id: int, code: int) -> None:
        # Our signal may reach a worker that is still starting, and a worker may lose its controller, which stops too.
        if self._stopping and code in (0, -signal.SIGTERM, LOST_CONTROLLER):
            return
        if code == 0:  # SIGTERM went to the whole process group, and this worker was faster than the supervisor
            self._stop()
            return
        self._code = 1
        if code != LOST_CONTROLLER and (code < 0 or self._is_ready):
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            print(f"ottla: worker {worker_id} {how}; the broker stops", file=sys.stderr, flush=True)
        self._stop()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._kill)

    def _kill(self) -> None:
        print(f"ottla: killing {len(self._workers)} worker(s) that did not stop", file=sys.stderr, flush=True)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._workers:
            os.kill(pid, number)
