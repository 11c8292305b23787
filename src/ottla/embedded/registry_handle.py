"""The schema registry of a broker, as tests use it: register, look up, assert, inject faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from ottla.registry.client import References, RegistryClient
from ottla.registry.entities import AVRO
from ottla.registry.errors import RegistryError

if TYPE_CHECKING:
    from ottla.embedded.registry_faults import RegistryFaults, RegistryRequest
    from ottla.registry.server import RegistryServer

P = ParamSpec("P")
R = TypeVar("R")
_TIMEOUT_S: Final = 30.0


class Access(Protocol):
    """Access to a registry for tests: in this process, or over the control endpoint of another process."""

    @property
    def faults(self) -> Any: ...

    @property
    def url(self) -> str: ...

    def ask(self, method: str, path: str, body: Any) -> tuple[int, Any]: ...

    def down(self) -> None: ...

    def up(self) -> None: ...

    def requests(self) -> list[RegistryRequest]: ...


class Host(Protocol):
    """A broker or a cluster in this process."""

    def submit(self, work: Coroutine[Any, Any, R]) -> Future[R]: ...


class LocalAccess:
    """Access to a registry in this process whose loop does not run in the caller's thread."""

    def __init__(self, host: Host, server: RegistryServer, faults: RegistryFaults) -> None:
        self._host = host
        self._server = server
        self.faults = faults

    @property
    def url(self) -> str:
        return self._server.url

    def ask(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        return self._host.submit(self._server.ask(method, path, body)).result(_TIMEOUT_S)

    def down(self) -> None:
        self._host.submit(self._server.down()).result(_TIMEOUT_S)

    def up(self) -> None:
        self._host.submit(self._server.up()).result(_TIMEOUT_S)

    def requests(self) -> list[RegistryRequest]:
        return self.faults.requests()


class RegistryHandle(RegistryClient):
    """The result of `broker.registry`. Its calls are not requests: they bypass faults, logins and down()."""

    def __init__(self, access: Access) -> None:
        super().__init__(self._answer)
        self._access = access

    def _answer(self, method: str, path: str, body: Any) -> Any:
        status, answer = self._access.ask(method, path, body)
        if status >= 400:
            raise RegistryError(status, answer["error_code"], answer["message"])
        return answer

    @property
    def url(self) -> str:
        """The value for a client's `schema.registry.url` setting."""
        return self._access.url

    @property
    def faults(self) -> RegistryFaults:
        """Faults on the registry's requests; see docs/registry.md."""
        found: RegistryFaults = self._access.faults
        return found

    def down(self) -> None:
        """Refuse clients until up(). Schemas and port are kept."""
        self._access.down()

    def up(self) -> None:
        """Serve again after down()."""
        self._access.up()

    def requests(self) -> list[RegistryRequest]:
        """The requests of clients, oldest first; the last 2,000 are kept."""
        return self._access.requests()

    # -- assertions --------------------------------------------------------------------------------------------

    def expect_compatible(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | list[Any],
        schema_type: str = AVRO,
        *,
        references: References = (),
    ) -> None:
        """Assert that a schema could be registered as the next version."""
        __tracebackhide__ = True
        problems = self.check(subject, schema, schema_type, references=references)
        if problems:
            lines = "\n".join(f"  {each}" for each in problems)
            raise AssertionError(f"the schema is not compatible with subject {subject}:\n{lines}")

    def expect_incompatible(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | list[Any],
        schema_type: str = AVRO,
        *,
        error: str | None = None,
        references: References = (),
    ) -> None:
        """Assert that the registry refuses a schema, for a reason such as READER_FIELD_MISSING_DEFAULT_VALUE."""
        __tracebackhide__ = True
        problems = self.check(subject, schema, schema_type, references=references)
        if not problems:
            raise AssertionError(f"the schema is compatible with subject {subject}")
        if error is not None and not any(error in each for each in problems):
            lines = "\n".join(f"  {each}" for each in problems)
            raise AssertionError(f"subject {subject} refuses the schema, but not for {error}:\n{lines}")

    def expect_versions(
        self, subject: str, schemas: Sequence[str | Mapping[str, Any] | list[Any]], schema_type: str = AVRO
    ) -> None:
        """Assert that a subject has exactly these schemas as its versions, oldest first."""
        __tracebackhide__ = True
        found = self.versions(subject) if subject in self.subjects(subject) else []
        expected: list[int | None] = []
        for schema in schemas:
            try:
                expected.append(self.look_up(subject, schema, schema_type).version)
            except RegistryError as error:
                if error.status != 404:
                    raise
                expected.append(None)
        if expected != found:
            lines = "\n".join(f"  {number}: {self.get(subject, number).schema}" for number in found) or "  nothing"
            missing = [str(schema) for schema, number in zip(schemas, expected, strict=True) if number is None]
            why = f"; it does not have {missing[0]}" if missing else "; the order or the number of versions differs"
            raise AssertionError(f"subject {subject} has different versions than expected{why}. It has:\n{lines}")

    def __repr__(self) -> str:
        return f"<registry at {self.url}>"


def _awaited(
    method: Callable[Concatenate[RegistryHandle, P], R],
) -> Callable[Concatenate[AsyncRegistry, P], Coroutine[Any, Any, R]]:
    @wraps(method)
    async def call(self: AsyncRegistry, /, *arguments: P.args, **options: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.blocking, *arguments, **options)

    return call


class AsyncRegistry:
    """Like `RegistryHandle`, for a broker on the running loop: every call is awaited."""

    def __init__(self, access: Access) -> None:
        self.blocking = RegistryHandle(access)
        """The handle for threads other than the loop's."""

    @property
    def url(self) -> str:
        """The value for a client's `schema.registry.url` setting."""
        return self.blocking.url

    @property
    def faults(self) -> RegistryFaults:
        """Faults on the registry's requests; see docs/registry.md."""
        return self.blocking.faults

    def requests(self) -> list[RegistryRequest]:
        """The requests of clients, oldest first; the last 2,000 are kept."""
        return self.blocking.requests()

    subjects = _awaited(RegistryHandle.subjects)
    versions = _awaited(RegistryHandle.versions)
    get = _awaited(RegistryHandle.get)
    by_id = _awaited(RegistryHandle.by_id)
    by_guid = _awaited(RegistryHandle.by_guid)
    all = _awaited(RegistryHandle.all)
    register = _awaited(RegistryHandle.register)
    look_up = _awaited(RegistryHandle.look_up)
    check = _awaited(RegistryHandle.check)
    delete = _awaited(RegistryHandle.delete)
    compatibility = _awaited(RegistryHandle.compatibility)
    set_compatibility = _awaited(RegistryHandle.set_compatibility)
    config = _awaited(RegistryHandle.config)
    set_config = _awaited(RegistryHandle.set_config)
    mode = _awaited(RegistryHandle.mode)
    set_mode = _awaited(RegistryHandle.set_mode)
    decode = _awaited(RegistryHandle.decode)
    encode = _awaited(RegistryHandle.encode)
    down = _awaited(RegistryHandle.down)
    up = _awaited(RegistryHandle.up)
    expect_compatible = _awaited(RegistryHandle.expect_compatible)
    expect_incompatible = _awaited(RegistryHandle.expect_incompatible)
    expect_versions = _awaited(RegistryHandle.expect_versions)

    def __repr__(self) -> str:
        return repr(self.blocking)
