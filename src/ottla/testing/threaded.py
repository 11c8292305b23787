"""A broker in a thread of its own, for tests without an event loop, or with one that shall not be shared."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ottla.config import Config
from ottla.embedded.broker import Broker, BrokerStopped, Embedded
from ottla.embedded.clock import VirtualClock
from ottla.embedded.faults import Faults
from ottla.embedded.groups import Group
from ottla.embedded.options import InProcessOptions
from ottla.embedded.topics import SyncTopic
from ottla.lazy_imports import lazy
from ottla.server.request_log import Request

if TYPE_CHECKING:
    from ottla.embedded import client_config
    from ottla.embedded import scenario as scenario_module
    from ottla.embedded.client_config import ClientName, Role, Settings
    from ottla.embedded.scenario import Scenario
else:
    client_config = lazy("ottla.embedded.client_config")
    scenario_module = lazy("ottla.embedded.scenario")

T = TypeVar("T")
_LIFE_TIMEOUT_S = 30.0


class ServedBroker:
    """A `Broker` behind a thread; its methods block for the moment that they need."""

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
        """End like a killed process: nothing is flushed or said. up() recovers what was written."""
        self._live(self._broker.kill())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start_thread(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()

        def run() -> None:
            with asyncio.Runner() as runner:
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
        """The broker inside, which runs in the thread."""
        return self._broker

    @property
    def is_running(self) -> bool:
        """Whether clients are served."""
        return self._broker.is_running

    @property
    def bootstrap(self) -> str:
        """What to give a client as `bootstrap.servers`."""
        return self._broker.bootstrap

    @property
    def control_url(self) -> str:
        """Where tests in other languages steer this broker."""
        return self._broker.control_url

    @property
    def console_url(self) -> str:
        """The address of the web console; needs `console=0` or a port."""
        return self._broker.console_url

    @property
    def clock(self) -> VirtualClock:
        """The broker's time, for `clock.advance(minutes=10)`; needs `clock="virtual"`."""
        return self._broker.clock

    @property
    def faults(self) -> Faults:
        """Faults on demand; see docs/faults.md."""
        return self._broker.faults

    def topic(self, name: str) -> SyncTopic:
        """A topic by its name, which need not exist yet."""
        return SyncTopic(self._broker, name)

    def group(self, group_id: str) -> Group:
        """A group by its id, which need not exist yet."""
        return self._broker.group(group_id)

    def client_config(self, client: ClientName, role: Role = "common") -> Settings:
        """Settings with which a client finds this broker and is quick in tests."""
        return client_config.client_config(self.bootstrap, client, role)

    def topics(self) -> list[str]:
        """The names of all topics but the internal ones."""
        return self._broker.topics()

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return self._broker.groups()

    def requests(
        self, api: str | None = None, client_id: str | None = None, topic: str | None = None, group: str | None = None
    ) -> list[Request]:
        """The requests that came in, oldest first; the last 2,000 are kept."""
        return self._broker.requests(api, client_id, topic, group)

    def reset(self, *, topics: Iterable[str] | None = None, groups: Iterable[str] | None = None) -> None:
        """Make it empty again: no topics, no groups, no faults, no requests seen. `topics` and `groups` narrow it."""
        self._broker.reset(topics=topics, groups=groups)

    def __repr__(self) -> str:
        return repr(self._broker).replace("<Broker", "<ServedBroker", 1)

    def run_scenario(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Run a scenario (a path, or its steps) and return what its steps did; see docs/faults.md."""
        return self._live(scenario_module.run_scenario(self._broker, scenario))


def serve(config: Config | None = None, **options: Unpack[InProcessOptions]) -> ServedBroker:
    """A broker in a thread of its own: `with ottla.serve() as broker: …`. Takes the options of `Broker`."""
    return ServedBroker(Broker(config, **options))
