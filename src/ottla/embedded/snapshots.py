"""The state of a broker that can be restored: topics with their records, groups, offsets, transactions, users,
settings.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from ottla.embedded.clock import VirtualClock
from ottla.errors import KafkaStorageError
from ottla.metadata.topics import INTERNAL_TOPICS
from ottla.registry.options import RegistryOptions

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config import Config
    from ottla.embedded.broker import Broker
    from ottla.embedded.options import Options
    from ottla.log.files import DiskSnapshot
    from ottla.server.broker import Broker as Server


class Snapshot:
    """The result of `broker.snapshot()`, for `broker.restore(state)` on this broker or a similar one.

    It shares its bytes with the broker. A snapshot of a data folder is a folder next to it, which is removed with this
    object or with `close()`.
    """

    def __init__(self, of_disk: DiskSnapshot, topics: int) -> None:
        self.of_disk = of_disk
        self._topics = topics

    def close(self) -> None:
        """Release its memory or folder. Safe to call twice."""
        self.of_disk.close()

    def __repr__(self) -> str:
        return f"<snapshot with {self._topics} topics>"


def take_snapshot(server: Server) -> Snapshot:
    """The state of a running server; runs on its loop. Clients notice nothing."""
    try:
        return Snapshot(server.logs.snapshot(server.epoch), len(set(server.metadata.topics) - INTERNAL_TOPICS))
    except KafkaStorageError as error:
        raise RuntimeError(f"no snapshot could be taken: {error.message}") from error


def restore_disk(broker: Broker, state: Snapshot) -> None:
    """Put the state on the disk of a broker that is down."""
    if not isinstance(state, Snapshot):
        raise TypeError(f"restore takes what snapshot() returned, not {state!r}")
    try:
        broker.disk.restore(state.of_disk)
    except KafkaStorageError as error:
        raise ValueError(error.message) from error


def options_of_branch(
    options: Options, config: Config, clock: Clock, data: str | PathLike[str] | None
) -> tuple[Options, str | None]:
    """The options for a second broker with the same state, and its folder if it must be removed afterwards."""
    if options.disk is not None:
        raise RuntimeError("a broker with disk= has no branches: make it with data=, or in memory")
    if options.data is None and data is not None:
        raise ValueError("data= needs a broker with a data folder; this one is in memory")
    static = {"listeners": ",".join(str(listener._replace(port=0)) for listener in config.listeners)}
    temporary = None
    if options.data is not None:
        if data is None:
            data = temporary = _folder_beside(options.folders[0])
        static["log.dirs"] = os.fspath(data)
    registry = None if options.registry is None else RegistryOptions.of(options.registry)
    branch = replace(
        options,
        config=config.with_static(static),
        data=data,
        settings=None,
        partitions=None,
        tls=False,
        users=None,
        acls=None,
        clock=VirtualClock(clock.ahead_ms) if isinstance(clock, VirtualClock) else options.clock,
        control=None if options.control is None else 0,
        console=None if options.console is None else 0,
        registry=None if registry is None else replace(registry, port=0),
    )
    return branch, temporary


def _folder_beside(folder: str) -> str:
    parent, name = os.path.split(os.path.abspath(folder))
    return tempfile.mkdtemp(prefix=f".{name}-branch-", dir=parent)


def remove_folder(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
