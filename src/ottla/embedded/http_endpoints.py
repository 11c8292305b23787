"""The HTTP endpoints of a broker or a cluster in this process: control, console and schema registry, if requested."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ottla.console.console_source import AskRegistry
    from ottla.console.server import ConsoleServer
    from ottla.embedded.control import ControlServer
    from ottla.embedded.own_registry import OwnRegistry

T = TypeVar("T")


class HttpEndpoints:
    """The running endpoints. Each is stored before it starts, so that `stop` also cleans up after a failed start."""

    def __init__(self, owner: str) -> None:
        """`owner` is "broker" or "cluster", for error messages."""
        self._owner = owner
        self.control: ControlServer | None = None
        self.console: ConsoleServer | None = None
        self.schemas: OwnRegistry | None = None

    async def start_control(self, control: ControlServer) -> None:
        self.control = control
        await control.start()

    async def start_console(self, console: ConsoleServer) -> None:
        self.console = console
        await console.start()

    async def start_registry(self, schemas: OwnRegistry) -> None:
        self.schemas = schemas
        await schemas.server.start()

    async def stop_registry(self) -> None:
        """Call this before the brokers stop, because the registry uses them."""
        schemas, self.schemas = self.schemas, None
        if schemas is not None:
            await schemas.server.stop()

    async def stop(self) -> None:
        """Stop the control endpoint and the console."""
        control, self.control = self.control, None
        if control is not None:
            await control.stop()
        console, self.console = self.console, None
        if console is not None:
            await console.stop()

    def ask_registry(self) -> AskRegistry | None:
        """The function with which a console calls the registry, if there is one."""
        return None if self.schemas is None else self.schemas.server.ask

    def required(self, part: T | None, name: str, option: str) -> T:
        """An endpoint that only runs if it was requested."""
        if part is None:
            raise RuntimeError(f"{name} is off: make the {self._owner} with {option}=0 (a free port) or a port")
        return part


class EndpointAddresses:
    """The addresses of the endpoints, as properties of a broker or a cluster."""

    _endpoints: HttpEndpoints

    @property
    def control_url(self) -> str:
        """The URL at which tests in other languages control the broker or the cluster."""
        return self._endpoints.required(self._endpoints.control, "the control endpoint", "control").url

    @property
    def console_url(self) -> str:
        """The address of the web console."""
        return self._endpoints.required(self._endpoints.console, "the console", "console").url

    @property
    def registry_url(self) -> str:
        """The value for a client's `schema.registry.url` setting."""
        return self.own_registry().server.url

    def own_registry(self) -> OwnRegistry:
        """The registry, for code that controls it."""
        return self._endpoints.required(self._endpoints.schemas, "the schema registry", "registry")
