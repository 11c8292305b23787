"""A broker for tests on the running event loop: options, a life of stops and starts, and a look inside.

It owns the data, the clock, the faults and the port; a new server is made inside at every start, as a process is.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from ottla.config import Config
from ottla.embedded.clock import VirtualClock
from ottla.embedded.faults import Faults
from ottla.embedded.groups import Group, group_ids, remove_group
from ottla.embedded.options import ClockOption, Options
from ottla.embedded.topics import AsyncTopic
from ottla.lazy_imports import lazy
from ottla.log.files import Disk
from ottla.metadata.controller import Randomness
from ottla.metadata.topics import INTERNAL_TOPICS
from ottla.server.api import Api, Registry, RequestContext
from ottla.server.broker import Broker as Server
from ottla.server.request_log import ControlEvent, Request, RequestLog

if TYPE_CHECKING:
    from ottla.console import inside as inside_module
    from ottla.console import server as console_server
    from ottla.console.inside import Inside
    from ottla.console.server import ConsoleServer
    from ottla.embedded import client_config
    from ottla.embedded import control as control_module
    from ottla.embedded import scenario as scenario_module
    from ottla.embedded.client_config import ClientName, Role, Settings
    from ottla.embedded.control import ControlServer
    from ottla.embedded.scenario import Scenario
else:
    console_server = lazy("ottla.console.server")
    inside_module = lazy("ottla.console.inside")
    client_config = lazy("ottla.embedded.client_config")
    control_module = lazy("ottla.embedded.control")
    scenario_module = lazy("ottla.embedded.scenario")

T = TypeVar("T")
_CALL_TIMEOUT_S = 30.0


class BrokerStopped(RuntimeError):
    """The broker is not running; the message says what to do."""


class Embedded:
    """What a broker in this process offers, whatever thread it runs in."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._config = options.make_config()
        self._clock = options.make_clock()
        self.disk, self.disk_faults = options.make_disk(self._clock)
        self._chance = options.make_chance()
        self._log = RequestLog()
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._placeholders: list[socket.socket] = []
        self._control: ControlServer | None = None
        self._console: ConsoleServer | None = None
        self.thread: int | None = None
        self.faults = self._new_faults()
        served = options.make_registry()
        self.served_apis: tuple[Api, ...] = tuple(served.apis.values())
        self._registry = Registry([api.replace(handler=self._watched(api)) for api in self.served_apis])

    def _new_faults(self) -> Faults:
        return Faults(self)

    def __repr__(self) -> str:
        where = f"at {self.bootstrap}" if self.is_running else "not running"
        return f"<{type(self).__name__} {where}>"

    # -- what it is --------------------------------------------------------------------------------------------

    @property
    def api_names(self) -> frozenset[str]:
        return frozenset(api.name for api in self.served_apis)

    @property
    def is_running(self) -> bool:
        """Whether clients are served."""
        return self._server is not None and self._server.is_running

    @property
    def server(self) -> Server:
        """The server inside. It is another one after a restart."""
        if self._server is None or not self._server.is_running:
            raise BrokerStopped("the broker is not running: start it (again) with start(), or use it inside its `with`")
        return self._server

    @property
    def bootstrap(self) -> str:
        """What to give a client as `bootstrap.servers`."""
        if not self.is_running:
            raise BrokerStopped("the broker is not running, so it has no bootstrap address: start() it first")
        return self.server.bootstrap

    @property
    def address(self) -> tuple[str, int]:
        """The bootstrap address, as host and port."""
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    @property
    def control_url(self) -> str:
        """Where tests in other languages steer this broker."""
        if self._control is None:
            raise RuntimeError("the control endpoint is off: make the broker with control=0 (a free port) or a port")
        return self._control.url

    @property
    def console_url(self) -> str:
        """The address of the web console."""
        if self._console is None:
            raise RuntimeError("the console is off: make the broker with console=0 (a free port) or a port")
        return self._console.url

    @property
    def request_log(self) -> RequestLog:
        """All requests that are kept, for those who follow them."""
        return self._log

    @property
    def clock(self) -> VirtualClock:
        """The broker's time, for `clock.advance(minutes=10)`; needs `clock="virtual"`."""
        if not isinstance(self._clock, VirtualClock):
            raise RuntimeError('this broker runs on the system\'s clock: make it with clock="virtual" to move its time')
        return self._clock

    # -- looking inside ----------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group:
        """A group by its id, which need not exist yet."""
        return Group(self, group_id)

    def client_config(self, client: ClientName, role: Role = "common") -> Settings:
        """Settings with which a client finds this broker and is quick in tests."""
        return client_config.client_config(self.bootstrap, client, role)

    def topics(self) -> list[str]:
        """The names of all topics but the internal ones."""
        return self.call(lambda server: sorted(set(server.metadata.topics) - INTERNAL_TOPICS))

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return self.call(group_ids)

    def requests(
        self, api: str | None = None, client_id: str | None = None, topic: str | None = None, group: str | None = None
    ) -> list[Request]:
        """The requests that came in, oldest first; the last 2,000 are kept."""
        if api is not None and api not in self.api_names and api != ControlEvent.api:
            raise ValueError(f"the broker serves no API {api!r}; it has {', '.join(sorted(self.api_names))}")
        return self._log.find(api, client_id, topic, group)

    def reset(self, *, topics: Iterable[str] | None = None, groups: Iterable[str] | None = None) -> None:
        """Make it empty again: no topics, no groups, no faults, no requests seen. `topics` and `groups` narrow it."""

        def reset(server: Server) -> None:
            names = set(server.metadata.topics) - INTERNAL_TOPICS if topics is None else topics
            server.controller.delete_topics([found for name in names if (found := server.metadata.topics.get(name))])
            for group_id in group_ids(server) if groups is None else groups:
                remove_group(server, group_id)

        self.faults.clear()
        self.call(reset)
        self._log.clear()

    # -- reaching the loop -------------------------------------------------------------------------------------

    def call(self, work: Callable[[Server], T]) -> T:
        """Run `work` on the broker's own loop, from any thread, and return what it returns."""
        server = self.server
        if threading.get_ident() == self.thread:
            return work(server)
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(work(server))
            except BaseException as error:
                done.set_exception(error)

        assert self._loop is not None
        self._loop.call_soon_threadsafe(run)
        return done.result(_CALL_TIMEOUT_S)

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the broker's loop, from another thread."""
        if not self.is_running:
            work.close()
        _ = self.server
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # -- every request comes through here ----------------------------------------------------------------------

    def _watched(self, api: Api) -> Callable[[RequestContext, Any], Any]:
        """The handler with its request noted, and with faults, if there are any."""
        faults, log = self.faults, self._log

        def watched(ctx: RequestContext, request: Any) -> Any:
            seen = Request(api, ctx, request)

            def serve() -> Any:
                if faults.may_strike and request is not None:
                    return faults.serve(api, ctx, request, seen)
                return api.handler(ctx, request)

            return log.serve(seen, serve)

        return watched


class Broker(Embedded):
    """A broker on the running event loop: `async with ottla.Broker() as broker: …`."""

    on_new_server: Callable[[Server], None] | None = None
    """Told of the server of every start, before it serves."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        data: str | PathLike[str] | None = None,
        preset: str = "test",
        settings: Mapping[str, object] | None = None,
        partitions: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: ClockOption = None,
        as_version: str | None = None,
        control: int | None = None,
        seed: int | None = None,
        disk: Disk | None = None,
        chance: Randomness | None = None,
        registry: Registry | None = None,
        console: int | None = None,
    ) -> None:
        """In memory unless `data` names a folder; on a free port; with the preset `test` (others: "dev", "kafka").

        `settings` are Kafka's broker settings; `partitions` is how many a new topic gets. `clock="virtual"` gives
        `broker.clock.advance(…)`; `as_version="2.8"` advertises what that release did; `control=0` opens the HTTP
        endpoint that steers faults, on a free port of the loopback interface; `console=0` serves the web console in the
        same way; `seed` makes ids repeat.
        """
        super().__init__(
            Options(
                config, data, preset, settings, partitions, host, port, clock, as_version, control, seed, disk,
                chance, registry, console,
            )
        )  # fmt: skip

    def topic(self, name: str) -> AsyncTopic:
        """A topic by its name, which need not exist yet."""
        return AsyncTopic(self, name)

    async def run_scenario(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Run a scenario (a path, or its steps) and return what its steps did; see docs/faults.md."""
        return await scenario_module.run_scenario(self, scenario)

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start, or start again on the same port and data."""
        if self.is_running:
            raise RuntimeError("the broker is running already: stop() it first, or use restart()")
        server = self._new_server()
        if self.on_new_server is not None:
            self.on_new_server(server)
        await server.start()
        self._release_port()
        self._loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self._server = server
        self._pin_port(server)
        if isinstance(self._clock, VirtualClock):
            self._clock.drive(server.timer, self._on_loop)
            server.housekeeper.at_once = True  # `advance` returns when what fell due is done
        if self.options.control is not None and self._control is None:
            self._control = control_module.ControlServer(self, self.options.control)
            await self._control.start()
        if self.options.console is not None and self._console is None:
            self._console = console_server.own_console(self.inside(), self.options.console)
            await self._console.start()

    def inside(self) -> Inside:
        """What a console may look into."""
        steer = control_module.ControlServer(self, 0).route
        return inside_module.Inside(
            lambda: {self.server.node_id: self.server} if self.is_running else {}, lambda: [self._log], steer
        )

    def _new_server(self) -> Server:
        return Server(self._config, disk=self.disk, clock=self._clock, chance=self._chance, registry=self._registry)

    async def stop(self) -> None:
        """Stop as `ottla serve` does on SIGTERM; data and port are kept for a start(). Safe to call twice."""
        await self.down()
        self._release_port()
        if self._control is not None:
            control, self._control = self._control, None
            await control.stop()
        if self._console is not None:
            console, self._console = self._console, None
            await console.stop()

    async def restart(self) -> None:
        """Stop cleanly, and start again on the same port and data."""
        if self.is_running:
            await self.down()
        await self.start()

    async def down(self) -> None:
        """Stop cleanly, but keep the port: clients are refused until up()."""
        server = self._server
        if server is None or not server.is_running:
            return
        addresses = server.addresses
        self._forget_timer(server)
        await server.stop()
        self._hold_port(addresses)

    async def up(self) -> None:
        """Start again after down() or kill()."""
        await self.start()

    async def kill(self) -> None:
        """End like a killed process: nothing is flushed or said. up() recovers what was written."""
        server = self.server
        addresses = server.addresses
        self._forget_timer(server)
        server.kill()
        self._hold_port(addresses)
        await asyncio.sleep(0)  # what waited for an answer learns that it is cancelled

    def __enter__(self) -> NoReturn:
        raise TypeError("use `async with ottla.Broker()` on an event loop, or `with ottla.serve()` without one")

    def __exit__(self, *_: object) -> None:
        """Only for the error of `with`, which asks for this method first."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- how it works ------------------------------------------------------------------------------------------

    def _on_loop(self, work: Callable[[], None]) -> None:
        self.call(lambda server: work())

    def _forget_timer(self, server: Server) -> None:
        if isinstance(self._clock, VirtualClock):
            self._clock.let_go(server.timer)

    def _pin_port(self, server: Server) -> None:
        """From now on the port is the one that it got: clients find the broker there again after a restart."""
        bound = [
            str(listener._replace(port=port))
            for listener, (_, port) in zip(self._config.listeners, server.addresses, strict=True)
        ]
        self._config = self._config.with_static({"listeners": ",".join(bound)})

    def _hold_port(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Keep others off the port while the broker is down: bound but not listening, it refuses connections."""
        for host, port in addresses:
            holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            self._placeholders.append(holder)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):  # somebody was faster: the next start says so
                holder.bind((host, port))

    def _release_port(self) -> None:
        for holder in self._placeholders:
            holder.close()
        self._placeholders.clear()
