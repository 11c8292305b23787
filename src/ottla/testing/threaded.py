"""A broker in its own thread, for tests without an event loop, or with one that should not be shared."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ottla.config import Config
from ottla.embedded.broker import Broker, Embedded
from ottla.embedded.clock import VirtualClock
from ottla.embedded.faults import Faults
from ottla.embedded.groups import Group
from ottla.embedded.options import InProcessOptions, check_names
from ottla.embedded.request_waits import RequestWaits
from ottla.embedded.stopped import BrokerStopped
from ottla.embedded.topics import SyncTopic
from ottla.lazy_imports import lazy
from ottla.server.request_log import Request

if TYPE_CHECKING:
    from ottla.embedded import registry_handle
    from ottla.embedded import scenario as scenario_module
    from ottla.embedded.client_config import ClientName, Role, Settings
    from ottla.embedded.recording import Recording
    from ottla.embedded.registry_handle import RegistryHandle
    from ottla.embedded.rules import GroupName, TopicName
    from ottla.embedded.scenario import Scenario
    from ottla.embedded.snapshots import Snapshot
else:
    registry_handle = lazy("ottla.embedded.registry_handle")
    scenario_module = lazy("ottla.embedded.scenario")

T = TypeVar("T")
_LIFE_TIMEOUT_S = 30.0


class ServedBroker(RequestWaits[Request]):
    """A `Broker` in its own thread; its methods block until they are done."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, or start again on the same port and data."""
        if self._thread is not None and self._broker.is_running:
            raise RuntimeError("the broker is running already: stop() it first, or use restart()")
        if self._thread is None:
            self._start_thread()
        try:
            self._live(self._broker.start())
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Stop cleanly and end the thread; data and port are kept for a start(). Safe to call twice."""
        if self._thread is None:
            return
        try:
            self._live(self._broker.stop())
        finally:
            self._end_thread()

    def restart(self) -> None:
        """Stop cleanly, and start again on the same port and data."""
        self._live(self._broker.restart())

    def down(self) -> None:
        """Stop cleanly, but keep the port: clients are refused until up()."""
        self._live(self._broker.down())

    def up(self) -> None:
        """Start again after down() or kill()."""
        self._live(self._broker.up())

    def kill(self) -> None:
        """End like a killed process: nothing is flushed, and clients get no answer. up() recovers what was written."""
        self._live(self._broker.kill())

    def __enter__(self) -> Self:
        if not self.is_running:  # a branch is already running
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start_thread(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()

        def run() -> None:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                loop = runner.get_loop()
                started.set_result(loop)
                asyncio.set_event_loop(loop)
                loop.run_forever()

        self._thread = threading.Thread(target=run, name="ottla", daemon=True)
        self._thread.start()
        self._loop = started.result(_LIFE_TIMEOUT_S)

    def _end_thread(self) -> None:
        assert self._loop is not None and self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIFE_TIMEOUT_S)
        self._thread = self._loop = None

    def _live(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise BrokerStopped("the broker is not running: start() it first")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIFE_TIMEOUT_S)

    # -- looking inside ----------------------------------------------------------------------------------------

    @property
    def embedded(self) -> Embedded:
        """The broker that runs in the thread."""
        return self._broker

    @property
    def is_running(self) -> bool:
        """Whether the broker serves clients."""
        return self._broker.is_running

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers` setting."""
        return self._broker.bootstrap

    @property
    def control_url(self) -> str:
        """The URL at which tests in other languages control this broker."""
        return self._broker.control_url

    @property
    def console_url(self) -> str:
        """The address of the web console; needs `console=0` or a port."""
        return self._broker.console_url

    @property
    def registry_url(self) -> str:
        """The value for a client's `schema.registry.url` setting; needs `registry=0` or a port."""
        return self._broker.registry_url

    @property
    def registry(self) -> RegistryHandle:
        """The schema registry; needs `registry=0` or a port."""
        return registry_handle.RegistryHandle(self._broker.registry_access)

    @property
    def clock(self) -> VirtualClock:
        """The broker's time, for `clock.advance(minutes=10)`; needs `clock="virtual"`."""
        return self._broker.clock

    @property
    def faults(self) -> Faults:
        """Faults on demand; see docs/faults.md."""
        return self._broker.faults

    def start_registry(self) -> None:
        """Serve a schema registry from now on, if the broker does not have one already."""
        self._live(self._broker.start_registry())

    def topic(self, name: str) -> SyncTopic:
        """A topic by its name, which need not exist yet."""
        return SyncTopic(self._broker, name)

    def group(self, group_id: str) -> Group:
        """A group by its id, which need not exist yet."""
        return self._broker.group(group_id)

    def bootstrap_for(self, listener: str | None = None) -> str:
        """The bootstrap address of a listener, by its name."""
        return self._broker.bootstrap_for(listener)

    def client_config(
        self, client: ClientName, role: Role = "common", *, user: str | None = None, mechanism: str = "PLAIN"
    ) -> Settings:
        """Client settings: the address, the login (of the first user, or of `user`), and short delays."""
        return self._broker.client_config(client, role, user=user, mechanism=mechanism)

    def topics(self) -> list[str]:
        """The names of all topics except the internal ones."""
        return self._broker.topics()

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return self._broker.groups()

    def requests(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
    ) -> list[Request]:
        """The requests that arrived, oldest first; the last 2,000 are kept."""
        return self._broker.requests(api, client_id, topic, group)

    def reset(
        self,
        *,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        subjects: Iterable[str] | None = None,
    ) -> None:
        """Remove all topics, groups and subjects, or only the given ones; clear the faults and the requests."""
        self._broker.reset(topics=topics, groups=groups, subjects=subjects)

    def snapshot(self) -> Snapshot:
        """The state, for `restore`: topics, records, groups, transactions, users, settings. Bytes are shared."""
        return self._broker.snapshot()

    def restore(self, state: Snapshot) -> None:
        """Return to a snapshot. As after a restart, clients reconnect; faults and the list of requests are cleared."""
        self._live(self._broker.restore(state))

    def branch(self, data: str | PathLike[str] | None = None) -> ServedBroker:
        """A second, running broker that starts with the state of this broker: `with broker.branch() as other: …`.

        It has the same options, but its own port and thread. With a data folder, it gets its own folder next to the
        first. That folder is removed when it stops; pass a folder as `data` to keep the data.
        """
        branch = ServedBroker(self._broker.branch(data))
        branch.start()
        return branch

    def record(self, path: str | PathLike[str]) -> Recording:
        """Write every request and its answer to a file, until `stop()` or the end of the `with` block."""
        return self._broker.record(path)

    def __repr__(self) -> str:
        return repr(self._broker).replace("<Broker", "<ServedBroker", 1)

    def run_scenario(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Run a scenario (a path, or its steps) and return the results of its steps; see docs/faults.md."""
        return self._live(scenario_module.run_scenario(self._broker, scenario))


def serve(config: Config | None = None, **options: Unpack[InProcessOptions]) -> ServedBroker:
    """A broker in its own thread: `with ottla.serve() as broker: …`. Accepts the options of `Broker`."""
    check_names(options)
    return ServedBroker(Broker(config, **options))
