"""The setup of `ottla serve` before it is ready: certificates, users, ACLs, topics and first records."""

from __future__ import annotations

import argparse
import logging
import os
import re
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla import __version__
from ottla.config import ConfigError
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import pathlib
    import shutil
    import tempfile

    from ottla.cli import first_records
    from ottla.client import access, access_rules, admin, routing
    from ottla.client import security as client_security
    from ottla.client.admin import NewTopic
    from ottla.client.routing import Client
    from ottla.config import Config
    from ottla.console import own_broker
    from ottla.console.inside import Inside
    from ottla.embedded import certificates, client_config
    from ottla.embedded import securing as securing_module
    from ottla.embedded.securing import Securing
    from ottla.server import api
else:
    access = lazy("ottla.client.access")
    access_rules = lazy("ottla.client.access_rules")
    admin = lazy("ottla.client.admin")
    api = lazy("ottla.server.api")
    certificates = lazy("ottla.embedded.certificates")
    client_config = lazy("ottla.embedded.client_config")
    client_security = lazy("ottla.client.security")
    first_records = lazy("ottla.cli.first_records")
    pathlib = lazy("pathlib")
    own_broker = lazy("ottla.console.own_broker")
    routing = lazy("ottla.client.routing")
    securing_module = lazy("ottla.embedded.securing")
    shutil = lazy("shutil")
    tempfile = lazy("tempfile")

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "ottla-serve"
CLIENT_FILE: Final = "client.properties"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the setup of the broker."""
    option = parser.add_argument
    option(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS[:KEY=VALUE,…]]",
        dest="topics",
        help="create this topic if it does not exist; repeatable",
    )
    option(
        "--seed-file",
        action="append",
        default=[],
        metavar="FILE",
        dest="seed_files",
        help="records for empty topics, one JSON object per line, as `ottla consume --format json` prints them; "
        "repeatable",
    )
    option("--tls", action="store_true", help="create certificates and use TLS (needs ottla[security])")
    option(
        "--user",
        action="append",
        default=[],
        metavar="NAME:PASSWORD",
        dest="users",
        help="a user who can log in, with PLAIN or SCRAM; repeatable",
    )
    option(
        "--acl",
        action="append",
        default=[],
        metavar="RULE",
        dest="acls",
        help="allow only what these rules say, such as 'alice read topic:orders'; repeatable (see `ottla acls`)",
    )


def parse_topic(text: str) -> NewTopic:
    """Parse `orders:3:cleanup.policy=compact,retention.ms=1000`; values may contain commas."""
    name, _, rest = text.partition(":")
    count, _, settings = rest.partition(":")
    if not name or (count and not count.isdecimal()):
        raise ConfigError(f"--topic takes NAME[:PARTITIONS[:KEY=VALUE,…]], not {text!r}")
    configs: dict[str, str | None] = {}
    for pair in filter(None, re.split(r",(?=[a-z][a-z.]*=)", settings)):
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--topic {text}: {pair!r} is not KEY=VALUE")
        configs[key] = value
    return admin.NewTopic(name, int(count) if count else -1, configs=configs)


class Setup:
    """The setup that the command line asks for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._topics = [parse_topic(text) for text in arguments.topics]
        self._seed_files: Sequence[str] = arguments.seed_files
        for path in self._seed_files:
            if not os.path.isfile(path):
                raise ConfigError(f"--seed-file {path}: there is no such file")
        self.securing = _securing(arguments)
        self._folder: pathlib.Path | None = None
        if arguments.acls and arguments.workers > 1:
            raise ConfigError("--acl cannot be combined with --workers")

    def secure(self, config: Config, arguments: argparse.Namespace) -> Config:
        """The configuration with the listener for --tls and --user."""
        securing = self.securing
        if securing is None:
            return config
        if len(config.listeners) > 1 or config.listeners[0].security_protocol != "PLAINTEXT":
            raise ConfigError("--tls and --user define the listener: remove `listeners` from the properties")
        listener = config.listeners[0]
        self._folder = securing.folder = _folder(config, arguments)
        try:
            settings = {key: str(value) for key, value in securing.settings(listener.host).items()}
        except RuntimeError as error:
            raise ConfigError(str(error)) from None
        if securing.acls is not None:
            # These are the names of this process, which creates the topics, and of its registry. Nobody can log in with
            # these names unless --user creates them.
            own = [f"User:{name}" for name in (CLIENT_ID, own_broker.REGISTRY_CLIENT_ID)]
            settings["super.users"] = ";".join(filter(None, (config.static.get("super.users"), *own)))
        settings["listeners"] = f"{securing.protocol}://{listener.host}:{listener.port}"
        text = client_config.client_properties(securing.login())
        certificates.write_private(self._folder / CLIENT_FILE, text.encode())
        return config.with_static(settings)

    async def prepare_inside(self, inside: Inside) -> None:
        """Prepare the broker or the cluster of this process."""
        if self._is_needed:
            caller = own_broker.Caller(CLIENT_ID, lambda server: api.registered_apis())
            async with routing.Client("", open_broker=own_broker.connections_to(inside.servers, caller)) as client:
                await self._prepare(client)

    async def prepare_at(self, bootstrap: str) -> None:
        """Prepare a broker over the network."""
        if self._is_needed:
            security = client_security.Security()
            if self._folder is not None:
                lines = (self._folder / CLIENT_FILE).read_text().splitlines()
                properties = dict(line.split("=", 1) for line in lines)
                security = client_security.Security.from_properties(properties)
            async with routing.Client(bootstrap, security=security) as client:
                await self._prepare(client)

    @property
    def _is_needed(self) -> bool:
        return bool(self._topics or self._seed_files or self.securing)

    async def _prepare(self, client: Client) -> None:
        if self.securing is not None:
            known = await access.list_scram_users(client) if self.securing.users else {}
            for user, password in self.securing.users.items():
                for mechanism in access.MECHANISMS.values():
                    if mechanism not in known.get(user, {}):
                        await access.set_scram_password(client, user, mechanism, password)
            for text in self.securing.acls or ():
                for rule in access_rules.parse_rules(text):
                    await access.create_acl(client, rule)
        there = (await client.metadata()).topics
        new = [topic for topic in self._topics if topic.name not in there]
        if new:
            _raise_first(await admin.create_topics(client, new), "--topic")
        for path in self._seed_files:
            count = await first_records.write_first_records(client, path)
            logger.info("records written from %s: %d", path, count)

    def announced(self) -> dict[str, Any]:
        """The fields for the JSON line."""
        if self.securing is None or self._folder is None:
            return {}
        ca_file = str(self._folder / certificates.CA_FILE) if self.securing.tls else None
        return {
            "security": {
                "protocol": self.securing.protocol,
                "ca_file": ca_file,
                "client_config": str(self._folder / CLIENT_FILE),
            }
        }

    def print_security(self) -> None:
        """Print the line about security, for people."""
        if self.securing is not None and self._folder is not None:
            where = self._folder / CLIENT_FILE
            print(f"ottla {__version__}: clients need {self.securing.protocol}; settings in {where}", flush=True)


def _securing(arguments: argparse.Namespace) -> Securing | None:
    if not (arguments.tls or arguments.users or arguments.acls):
        return None
    users: dict[str, str] = {}
    for text in arguments.users:
        name, colon, password = text.partition(":")
        if not (name and colon and password):
            raise ConfigError("--user takes NAME:PASSWORD")  # the text may be a password
        users[name] = password
    try:
        return securing_module.Securing(arguments.tls, users, arguments.acls or None)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _folder(config: Config, arguments: argparse.Namespace) -> pathlib.Path:
    """Certificates stay next to the data, so that clients still trust the broker after a restart."""
    if not arguments.ephemeral:
        folder = pathlib.Path(f"{config.log_dirs[0].rstrip('/')}-security").absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ottla-security-"))
    weakref.finalize(arguments, shutil.rmtree, folder, ignore_errors=True)
    return folder


def _raise_first(results: Mapping[str, Any], option: str) -> None:
    for name, result in results.items():
        if isinstance(result, Exception):
            raise ConfigError(f"{option} {name}: {getattr(result, 'message', result)}")
