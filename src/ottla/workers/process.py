"""The life of one worker process, from its fork to its exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

from ottla.config import ConfigError
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.server.broker import StartError
from ottla.server.net.busy_poll import pace_of_process
from ottla.server.net.listener import ListenError
from ottla.server.stop_signals import stop_event
from ottla.system import new_event_loop
from ottla.workers.link import LinkLost, receive_first
from ottla.workers.topology import STATE, ControllerTopology, FollowerTopology, Seat, WorkerTopology

if TYPE_CHECKING:
    import socket

    from ottla.http.endpoint import HttpEndpoint
    from ottla.workers import metrics as metrics_module
else:
    metrics_module = lazy("ottla.workers.metrics")

logger = logging.getLogger(__name__)

FAILED, LOST_CONTROLLER = 1, 3
"""Exit codes; the second one means that another worker ended first."""

READY = b"ready"


def run_worker(seat: Seat, lifeline: int, status: int) -> int:
    """Serve until SIGTERM or until the supervisor is gone (then `lifeline` ends). Worker 1 writes READY to `status`."""
    try:
        is_controller = seat.node_id == seat.controller_id
        worker = ControllerTopology(seat) if is_controller else _follower(seat)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_work(worker, lifeline, status if is_controller else -1, seat))
    except (ConfigError, ListenError, StartError, KafkaError) as error:
        print(f"ottla: {error}", file=sys.stderr, flush=True)
        return FAILED
    except LinkLost:
        return LOST_CONTROLLER


def _follower(seat: Seat) -> FollowerTopology:
    """Wait for the controller's first message before anything is opened."""
    # The handles are the folders' locks. They stay open: nobody else may use a folder while any worker runs.
    _, kind, state = receive_first(seat.links[seat.controller_id])
    assert kind == STATE, f"the controller began with {kind}"
    worker = FollowerTopology(seat, state)
    worker.on_orphaned = lambda: os._exit(LOST_CONTROLLER)
    return worker


async def _work(worker: WorkerTopology, lifeline: int, status: int, seat: Seat) -> int:
    loop = asyncio.get_running_loop()
    stopped = stop_event()
    os.set_blocking(lifeline, False)
    loop.add_reader(lifeline, stopped.set)
    broker = worker.new_broker()
    broker.pace = pace_of_process()
    broker.on_halt = lambda: os._exit(FAILED)  # the others end with it
    worker.open_links()
    endpoints = [] if seat.metrics is None else _metrics_endpoints(worker, seat.metrics)
    if seat.beside is not None:
        endpoints.append(seat.beside(seat.worker_ids.index(seat.node_id), broker))
    for endpoint in endpoints:
        await endpoint.start()
    await broker.start()
    if status >= 0:
        os.write(status, READY)
    await stopped.wait()
    loop.remove_reader(lifeline)
    await broker.stop()
    for endpoint in endpoints:
        await endpoint.stop()
    return 0


def _metrics_endpoints(worker: WorkerTopology, sock: socket.socket) -> list[HttpEndpoint]:
    """Count the requests of this worker; the controller shows them."""
    worker.count_requests()
    return [metrics_module.shared_endpoint(worker, sock)] if isinstance(worker, ControllerTopology) else []
