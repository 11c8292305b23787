"""The users of a registry and their rights, from a TOML file and from the environment.

[users]
alice = "secret"

[tokens]
ci = "a-long-token"

[rights]
alice = ["read:", "write:orders-"]
ci = ["admin"]

[tls]
certificate = "server.pem"
key = "server.key"
client_ca = "clients.pem"
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.config import ConfigError
from ottla.lazy_imports import lazy
from ottla.registry.options import RegistryOptions

if TYPE_CHECKING:
    import ssl
else:
    ssl = lazy("ssl")

USERS_VARIABLE: Final = "OTTLA_REGISTRY_USERS"
_TABLES: Final = {"users": str, "tokens": str, "rights": list, "tls": str}
_TLS: Final = ("certificate", "key", "client_ca")


def options_of(host: str, port: int, path: str | None) -> RegistryOptions:
    """The options of the registry, with the users of the file and the environment. ConfigError says what is wrong."""
    access = {} if path is None else _read(path)
    users = {**access.get("users", {}), **users_of(os.environ.get(USERS_VARIABLE, ""))}
    try:
        return RegistryOptions(
            port,
            host,
            users,
            access.get("tokens", {}),
            access.get("rights"),
            None if path is None or "tls" not in access else _context(Path(path).parent, access["tls"]),
        )
    except ValueError as error:
        where = "" if path is None else f"{path}: "
        hint = f"; name them in ${USERS_VARIABLE} or in a file" if "needs users" in str(error) else ""
        raise ConfigError(f"{where}{error}{hint}") from None


def users_of(text: str) -> dict[str, str]:
    """`alice:secret,bob:other` as names with passwords."""
    users = {}
    for pair in filter(None, text.split(",")):
        name, colon, password = pair.partition(":")
        if not (name and colon and password):
            raise ConfigError(f"${USERS_VARIABLE} must be name:password, separated by commas")
        users[name] = password
    return users


def _read(path: str) -> dict[str, dict[str, Any]]:
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    for table, values in found.items():
        if table not in _TABLES or not isinstance(values, dict):
            raise ConfigError(f"{path}: [{table}] is unknown; use [{'], ['.join(_TABLES)}]")
        for name, value in values.items():
            if not isinstance(value, _TABLES[table]):
                raise ConfigError(f"{path}: {table}.{name} must be a {'list' if table == 'rights' else 'string'}")
    return found


def _context(folder: Path, files: dict[str, str]) -> ssl.SSLContext:
    unknown = [name for name in files if name not in _TLS]
    if unknown or not {"certificate", "key"} <= files.keys():
        raise ConfigError(f"[tls] takes {', '.join(_TLS)}, and needs the first two")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(folder / files["certificate"], folder / files["key"])
        if "client_ca" in files:
            context.load_verify_locations(folder / files["client_ca"])
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise ConfigError(f"[tls] cannot be used: {error}") from None
    return context
