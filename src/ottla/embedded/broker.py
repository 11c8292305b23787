"""A broker for tests on the running event loop: its options, starting and stopping it, and inspecting it.

It owns the data, the clock, the faults and the port. Every start creates a new server, like a new process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from ottla.config import Config
from ottla.embedded.clock import VirtualClock
from ottla.embedded.faults import Faults
from ottla.embedded.groups import Group, group_ids, remove_group
from ottla.embedded.http_endpoints import EndpointAddresses, HttpEndpoints
from ottla.embedded.login import Login
from ottla.embedded.options import ClockOption, Data, Options
from ottla.embedded.request_waits import RequestWaits
from ottla.embedded.rules import GroupName, TopicName, named
from ottla.embedded.stopped import BrokerStopped
from ottla.embedded.topics import AsyncTopic
from ottla.lazy_imports import lazy
from ottla.log.files import Disk
from ottla.metadata.controller import Randomness
from ottla.metadata.topics import INTERNAL_TOPICS
from ottla.registry.options import RegistryOptions
from ottla.server.api import Api, Registry, RequestContext
from ottla.server.broker import Broker as Server
from ottla.server.request_log import ControlEvent, Request, RequestLog

if TYPE_CHECKING:
    from ottla.console import inside as inside_module
    from ottla.console import server as console_server
    from ottla.console.inside import Inside
    from ottla.embedded import client_config, own_registry, registry_handle, snapshots
    from ottla.embedded import control as control_module
    from ottla.embedded import recording as recording_module
    from ottla.embedded import scenario as scenario_module
    from ottla.embedded.client_config import ClientName, Role, Settings
    from ottla.embedded.recording import Recording
    from ottla.embedded.registry_handle import Access, AsyncRegistry
    from ottla.embedded.scenario import Scenario
    from ottla.embedded.snapshots import Snapshot
else:
    console_server = lazy("ottla.console.server")
    inside_module = lazy("ottla.console.inside")
    client_config = lazy("ottla.embedded.client_config")
    control_module = lazy("ottla.embedded.control")
    own_registry = lazy("ottla.embedded.own_registry")
    registry_handle = lazy("ottla.embedded.registry_handle")
    recording_module = lazy("ottla.embedded.recording")
    scenario_module = lazy("ottla.embedded.scenario")
    snapshots = lazy("ottla.embedded.snapshots")

T = TypeVar("T")
_CALL_TIMEOUT_S = 30.0


class Embedded(EndpointAddresses, RequestWaits[Request]):
    """The methods of a broker in this process that work in any thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.securing = options.make_securing()
        """The security options; None if the broker is open to everyone."""
        self._config = options.make_config(self.securing)
        self._clock = options.make_clock()
        self.disk, self.disk_faults = options.make_disk(self._clock)
        self._chance = options.make_chance()
        self._log = RequestLog()
        self._recordings: list[Recording] = []
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._placeholders: list[socket.socket] = []
        self._endpoints = HttpEndpoints("broker")
        self._registry_options = options.make_registry()
        self.thread: int | None = None
        self.faults = self._new_faults()
        self.served_apis: tuple[Api, ...] = tuple(options.make_apis().apis.values())
        self._apis = Registry([api.replace(handler=self._watched(api)) for api in self.served_apis])

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
        """Whether the broker serves clients."""
        return self._server is not None and self._server.is_running

    @property
    def server(self) -> Server:
        """The current server. A restart replaces it with a new one."""
        if self._server is None or not self._server.is_running:
            raise BrokerStopped("the broker is not running: start it (again) with start(), or use it inside its `with`")
        return self._server

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers` setting."""
        if not self.is_running:
            raise BrokerStopped("the broker is not running, so it has no bootstrap address: start() it first")
        return self.server.bootstrap

    def bootstrap_for(self, listener: str | None = None) -> str:
        """The bootstrap address of a listener, by its name. It is known after the first start, even while the broker is
        down.
        """
        found = next((each for each in self._config.listeners if listener in (None, each.name)), None)
        if found is None:
            names = ", ".join(each.name for each in self._config.listeners)
            raise ValueError(f"there is no listener {listener!r}; the listeners are {names}")
        host = "127.0.0.1" if found.host in ("", "0.0.0.0", "::") else found.host
        return f"[{host}]:{found.port}" if ":" in host else f"{host}:{found.port}"

    @property
    def listener_addresses(self) -> dict[str, str]:
        """The bootstrap addresses of all listeners, by name."""
        return {listener.name: self.bootstrap_for(listener.name) for listener in self._config.listeners}

    @property
    def login(self) -> Login:
        """The login that clients need."""
        return Login() if self.securing is None else self.securing.login()

    @property
    def address(self) -> tuple[str, int]:
        """The bootstrap address, as host and port."""
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    def known_subjects(self) -> set[str]:
        """The subjects that clients registered; none before the registry is used."""
        schemas = self._endpoints.schemas
        return set() if schemas is None else self.call(lambda _: schemas.server.known_subjects())

    @property
    def registry_access(self) -> Access:
        """Access to the registry for its handles."""
        return self.own_registry().access(self)

    @property
    def request_log(self) -> RequestLog:
        """The log of received requests, for code that reads it continuously."""
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

    def client_config(
        self, client: ClientName, role: Role = "common", *, user: str | None = None, mechanism: str = "PLAIN"
    ) -> Settings:
        """Client settings: the address, the login (of the first user, or of `user`), and short delays."""
        return client_config.client_config(
            self.bootstrap, client, role, login=self.login, user=user, mechanism=mechanism
        )

    def topics(self) -> list[str]:
        """The names of all topics except the internal ones."""
        return self.call(lambda server: sorted(set(server.metadata.topics) - self._hidden_topics))

    @property
    def _hidden_topics(self) -> frozenset[str]:
        """Internal topics, and the topic of the registry if this broker has one."""
        return INTERNAL_TOPICS if self._endpoints.schemas is None else INTERNAL_TOPICS | {own_registry.TOPIC}

    def groups(self) -> list[str]:
        """The ids of all groups."""
        return self.call(group_ids)

    def requests(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
    ) -> list[Request]:
        """The requests that arrived, oldest first; the last 2,000 are kept."""
        if api is not None and api not in self.api_names and api != ControlEvent.api:
            raise ValueError(f"the broker serves no API {api!r}; it has {', '.join(sorted(self.api_names))}")
        return self._log.find(api, client_id, named(topic), named(group))

    def reset(
        self,
        *,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        subjects: Iterable[str] | None = None,
    ) -> None:
        """Remove all topics, groups and subjects, or only the given ones; clear the faults and the requests."""

        def reset(server: Server) -> None:
            names = set(server.metadata.topics) - self._hidden_topics if topics is None else set(topics)
            if self._endpoints.schemas is not None:
                self._endpoints.schemas.reset(subjects)
                names |= {own_registry.TOPIC} if subjects is None else set()
            server.controller.delete_topics([found for name in names if (found := server.metadata.topics.get(name))])
            for group_id in group_ids(server) if groups is None else groups:
                remove_group(server, group_id)

        self.faults.clear()
        self.call(reset)
        self._log.clear()

    def snapshot(self) -> Snapshot:
        """The state, for `restore`: topics, records, groups, transactions, users, settings. Bytes are shared."""
        return self.call(snapshots.take_snapshot)

    def record(self, path: str | PathLike[str]) -> Recording:
        """Write every request and its answer to a file, until `stop()` or the end of the `with` block.

        `ottla replay-requests` and `ottla.testing.replay_requests` send its requests again.
        """

        def stopped(recording: Recording) -> None:
            self._log.detach(recording)
            self._recordings.remove(recording)

        recording = recording_module.Recording(path, stopped)
        self._recordings.append(recording)
        self._log.attach(recording)
        return recording

    # -- reaching the loop -------------------------------------------------------------------------------------

    def call(self, work: Callable[[Server], T]) -> T:
        """Run `work` on the broker's own loop, from any thread, and return its result."""
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

    # -- every request passes through here ---------------------------------------------------------------------

    def _watched(self, api: Api) -> Callable[[RequestContext, Any], Any]:
        """The handler, with requests recorded and faults applied."""
        faults, log, recordings = self.faults, self._log, self._recordings

        def watched(ctx: RequestContext, request: Any) -> Any:
            seen = Request(api, ctx, request)
            for recording in recordings:
                recording.began(seen, api, request)

            def serve() -> Any:
                if faults.may_strike and request is not None:
                    return faults.serve(api, ctx, request, seen)
                return api.handler(ctx, request)

            return log.serve(seen, serve)

        return watched


class Broker(Embedded):
    """A broker on the running event loop: `async with ottla.Broker() as broker: …`."""

    _folder_to_remove: str | None = None
    on_new_server: Callable[[Server], None] | None = None
    """Called with the server of every start, before it serves clients."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        data: Data = None,
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
        apis: Registry | None = None,
        console: int | None = None,
        registry: int | RegistryOptions | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        acls: Sequence[str] | None = None,
    ) -> None:
        """In memory unless `data` is a folder or a list of folders; on a free port; the preset is `test` (or "dev",
        "kafka").

        `settings` are Kafka's broker settings; `partitions` is the number of partitions of a new topic.
        `clock="virtual"` enables `broker.clock.advance(…)`; `as_version="2.8"` advertises the API versions of that
        release; `control=0` opens the HTTP endpoint that controls faults, on a free port of the loopback interface;
        `console=0` serves the web console in the same way, and `registry=0` a schema registry; `seed` makes ids
        reproducible.

        `tls=True` creates certificates, `users` (name and password) requires clients to log in, and `acls` (`"alice
        read topic:orders"`) sets their permissions; `client_config` returns the matching client settings.
        """
        super().__init__(
            Options(
                config, data, preset, settings, partitions, host, port, clock, as_version, control, seed, disk,
                chance, apis, console, registry, tls, users, acls,
            )
        )  # fmt: skip

    @property
    def registry(self) -> AsyncRegistry:
        """The schema registry; needs `registry=0` or a port."""
        return registry_handle.AsyncRegistry(self.registry_access)

    def topic(self, name: str) -> AsyncTopic:
        """A topic by its name, which need not exist yet."""
        return AsyncTopic(self, name)

    async def restore(self, state: Snapshot) -> None:
        """Return to a snapshot. As after a restart, clients reconnect; faults and the list of requests are cleared."""
        await self._down(keep_data=False)
        try:
            snapshots.restore_disk(self, state)
        finally:
            await self.up()
        self.faults.clear()
        self._log.clear()
        if self._endpoints.schemas is not None:
            self._endpoints.schemas.reset(None)

    def branch(self, data: str | PathLike[str] | None = None) -> Broker:
        """A second broker, not yet started, with the state of this broker: `async with broker.branch() as other`.

        It has the same options, but its own port. With a data folder, it gets its own folder next to the first. That
        folder is removed when it stops; pass a folder as `data` to keep the data.
        """
        options, folder = snapshots.options_of_branch(self.options, self._config, self._clock, data)
        branch = Broker.from_options(options)
        branch.securing = self.securing
        branch._folder_to_remove = folder
        state = self.snapshot()
        snapshots.restore_disk(branch, state)
        state.close()
        return branch

    @classmethod
    def from_options(cls, options: Options) -> Self:
        """A broker from complete options."""
        broker = cls.__new__(cls)
        Embedded.__init__(broker, options)
        return broker

    async def run_scenario(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Run a scenario (a path, or its steps) and return the results of its steps; see docs/faults.md."""
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
        if self.securing is not None:
            self.securing.apply(server)
        if isinstance(self._clock, VirtualClock):
            self._clock.drive(server.timer, self._on_loop)
            server.housekeeper.at_once = True  # `advance` returns after all due work is done
        endpoints = self._endpoints
        if self.options.control is not None and endpoints.control is None:
            await endpoints.start_control(control_module.ControlServer(self, self.options.control))
        if self.options.console is not None and endpoints.console is None:
            await endpoints.start_console(console_server.own_console(self.inside(), self.options.console))
        if self._registry_options is not None and endpoints.schemas is None:
            await self._start_registry()

    def _servers(self) -> dict[int, Server]:
        return {self.server.node_id: self.server} if self.is_running else {}

    async def start_registry(self, registry: int | RegistryOptions = 0) -> None:
        """Serve a schema registry from now on, if the broker does not have one already."""
        if self._endpoints.schemas is None:
            self._registry_options = replace(self.options, registry=registry).make_registry()
            await self._start_registry()

    async def _start_registry(self) -> None:
        assert self._registry_options is not None
        await self._endpoints.start_registry(own_registry.OwnRegistry(self._servers, self._registry_options))

    def inside(self) -> Inside:
        """The internals that a console may show."""
        steer = control_module.ControlServer(self, 0).route
        inside = inside_module.Inside(self._servers, lambda: [self._log], steer)
        inside.registry = self._endpoints.ask_registry
        return inside

    def _new_server(self) -> Server:
        return Server(self._config, disk=self.disk, clock=self._clock, chance=self._chance, registry=self._apis)

    async def stop(self) -> None:
        """Stop as `ottla serve` does on SIGTERM; data and port are kept for a start(). Safe to call twice."""
        await self._endpoints.stop_registry()
        await self.down()
        self._release_port()
        await self._endpoints.stop()
        for recording in tuple(self._recordings):
            recording.stop()
        if self._folder_to_remove is not None:
            snapshots.remove_folder(self._folder_to_remove)

    async def restart(self) -> None:
        """Stop cleanly, and start again on the same port and data."""
        if self.is_running:
            await self.down()
        await self.start()

    async def down(self) -> None:
        """Stop cleanly, but keep the port: clients are refused until up()."""
        await self._down()

    async def _down(self, *, keep_data: bool = True) -> None:
        server = self._server
        if server is None or not server.is_running:
            return
        addresses = server.addresses
        self._forget_timer(server)
        await server.stop(keep_data=keep_data)
        self._hold_port(addresses)

    async def up(self) -> None:
        """Start again after down() or kill()."""
        await self.start()

    async def kill(self) -> None:
        """End like a killed process: nothing is flushed, and clients get no answer. up() recovers what was written."""
        server = self.server
        addresses = server.addresses
        self._forget_timer(server)
        server.kill()
        self._hold_port(addresses)
        await asyncio.sleep(0)  # waiting requests are cancelled

    def __enter__(self) -> NoReturn:
        raise TypeError("use `async with ottla.Broker()` on an event loop, or `with ottla.serve()` without one")

    def __exit__(self, *_: object) -> None:
        """Only for a helpful error: `with` looks up this method first."""

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
        """Keep the assigned port, so that clients find the broker again after a restart."""
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
            with suppress(OSError):  # another program took the port: the next start reports it
                holder.bind((host, port))

    def _release_port(self) -> None:
        for holder in self._placeholders:
            holder.close()
        self._placeholders.clear()
