"""A schema registry that Ottla does not run."""

from __future__ import annotations

from contextlib import closing
from typing import Any, NoReturn

from ottla.embedded.registry_faults import RegistryRequest
from ottla.registry.errors import RegistryError
from ottla.registry.http_client import HttpRegistry
from ottla.testing.plain_kafka import NeedsOttla


class ExternalRegistry:
    """Reaches the registry over HTTP, with one connection per request, so callers do not have to close anything."""

    def __init__(self, url: str) -> None:
        self._address = url
        self.url = HttpRegistry(url).url
        """Without the login that the address may contain, because people see this URL."""

    @property
    def faults(self) -> NoReturn:
        """Only Ottla has faults."""
        self._needs_ottla("faults of the registry")

    def ask(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        with closing(HttpRegistry(self._address)) as registry:
            return registry.answer(method, path, body)

    def down(self) -> None:
        self._needs_ottla("a registry that goes down")

    def up(self) -> None:
        self._needs_ottla("a registry that goes down")

    def requests(self) -> list[RegistryRequest]:
        self._needs_ottla("a look at the registry's requests")

    def _needs_ottla(self, what: str) -> NoReturn:
        raise NeedsOttla(f"{what}: only Ottla has that, and this run is on {self.url}")


__all__ = ["ExternalRegistry", "RegistryError"]
