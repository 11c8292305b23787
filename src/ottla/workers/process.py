"""The life of one worker process, from its fork to its exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.config import ConfigError
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.server.broker import StartError
from ottla.server.net.busy_poll import pace_of_process
from ottla.server.net.listener import ListenError
from ottla.workers.link import LinkLost, receive_first
from ottla.workers.topology import STATE, ControllerTopology, FollowerTopology, Seat, WorkerTopology

if TYPE_CHECKING:
    import socket

    import uvloop

    from ottla.http.endpoint import HttpEndpoint
    from ottla.workers import metrics as metrics_module
else:
    metrics_module = lazy("ottla.workers.metrics")
    uvloop = lazy("uvloop")

logger = logging.getLogger(__name__)

FAILED, LOST_CONTROLLER = 1, 3
"""Exit codes; the second one only follows from the end of another worker."""

READY = b"ready"


def run_worker(seat: Seat, lifeline: int, status: int) -> int:
    """Serve until SIGTERM or until the supervisor is gone (then `lifeline` ends). Worker 1 says READY on `status`."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        new_loop = uvloop.new_event_loop
    try:
        is_controller = seat.node_id == seat.controller_id
        worker = ControllerTopology(seat) if is_controller else _follower(seat)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_work(worker, lifeline, status if is_controller else -1, seat.metrics))
    except (ConfigError, ListenError, StartError, KafkaError) as error:
        print(f"ottla: {error}", file=sys.stderr, flush=True)
        return FAILED
    except LinkLost:
        return LOST_CONTROLLER


def _follower(seat: Seat) -> FollowerTopology:
    """Wait for what the controller has to say before anything is opened."""
    # The handle is the folder's lock. It stays open: nobody else may have the folder while any worker lives.
    _, kind, state = receive_first(seat.links[seat.controller_id])
    assert kind == STATE, f"the controller began with {kind}"
    worker = FollowerTopology(seat, state)
    worker.on_orphaned = lambda: os._exit(LOST_CONTROLLER)
    return worker


async def _work(worker: WorkerTopology, lifeline: int, status: int, metrics: socket.socket | None) -> int:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    os.set_blocking(lifeline, False)
    loop.add_reader(lifeline, stopped.set)
    broker = worker.new_broker()
    broker.pace = pace_of_process()
    worker.open_links()
    endpoint = _metrics_endpoint(worker, metrics) if metrics is not None else None
    if endpoint is not None:
        await endpoint.start()
    await broker.start()
    if status >= 0:
        os.write(status, READY)
    await stopped.wait()
    loop.remove_reader(lifeline)
    await broker.stop()
    if endpoint is not None:
        await endpoint.stop()
    return 0


def _metrics_endpoint(worker: WorkerTopology, sock: socket.socket) -> HttpEndpoint | None:
    """Count what this worker does; the controller shows it."""
    worker.count_requests()
    return metrics_module.shared_endpoint(worker, sock) if isinstance(worker, ControllerTopology) else None
