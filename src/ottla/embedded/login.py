"""The data that a client needs to log in: the protocol, the certificate authority, the users and their passwords."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Login:
    """The login data. The defaults are for a broker that is open to everyone."""

    protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    def credentials(self, user: str | None, mechanism: str) -> tuple[str, str] | None:
        """The name and the password of a user, by default the first one; None if clients do not log in."""
        if not self.users:
            if user is not None:
                raise ValueError(f"no user {user!r}: the broker has no users; make it with users={{{user!r}: '…'}}")
            return None
        if mechanism not in MECHANISMS:
            raise ValueError(f"mechanism={mechanism!r}: choose one of {', '.join(MECHANISMS)}")
        name = next(iter(self.users)) if user is None else user
        if name not in self.users:
            raise ValueError(f"no user {name!r}; the broker has {', '.join(self.users)}")
        return name, self.users[name]
