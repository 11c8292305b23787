"""The options of a registry server: its address and its users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import ssl

    from ottla.http import guard
    from ottla.registry import rights
else:
    guard = lazy("ottla.http.guard")
    rights = lazy("ottla.registry.rights")
    ssl = lazy("ssl")


@dataclass(frozen=True)
class RegistryOptions:
    """With `users` (name and password), clients need basic authentication; with `tokens` (name and token), a bearer
    token; with both, either one. Without them, only clients on this machine may be served."""

    port: int = 0
    host: str = "127.0.0.1"
    users: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    rights: Mapping[str, Sequence[str]] | None = None
    """The rights of each user; None means everything. See `rights`."""
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"registry={self.port} is not a port; 0 chooses a free one")
        if not self.users and not self.tokens and self.host != "127.0.0.1" and self.host not in guard.LOCAL_NAMES:
            raise ValueError(f"a registry on {self.host} can be reached from other machines: it needs users")
        if self.rights is not None and not self.users and not self.tokens:
            raise ValueError("rights need users or tokens that they belong to")
        if self.rights is not None:
            rights.Rights(self.rights)

    @classmethod
    def of(cls, given: int | RegistryOptions) -> RegistryOptions:
        """Options from a port alone: a registry on this machine that everyone may use."""
        return cls(given) if isinstance(given, int) else given
