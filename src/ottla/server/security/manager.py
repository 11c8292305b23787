"""The security of a broker: listeners, tokens, ACLs, quotas and limits, and how they follow changes.

Expensive modules (OpenSSL, hashes) are imported only if a listener or a setting needs them, so a plain broker starts
fast.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ottla.config import Config, ConfigError
from ottla.lazy_imports import lazy
from ottla.metadata.image import ScramCredential
from ottla.server.net.connection import Connection
from ottla.server.security.limits import ConnectionLimits
from ottla.server.security.loglimit import RateLimitedLog
from ottla.wire.primitives import uuid_to_base64
from ottla.wire.schema import Message
from ottla.wire.stored.metadata import ClientQuotaRecord

if TYPE_CHECKING:
    import hashlib

    from ottla.metadata import delegation_tokens, scram
    from ottla.metadata.controller import Controller
    from ottla.server.api import Registry
    from ottla.server.net.connections import Connections
    from ottla.server.net.listener import BoundListener
    from ottla.server.security import authorizer, guards, jwks, jwt, mechanisms, quotas, tls_transport
    from ottla.server.security import sasl as sasl_module
    from ottla.server.security import tls as tls_module
    from ottla.server.security.jaas import LoginModule
    from ottla.server.security.jwks import KeySource
    from ottla.server.security.mechanisms import BearerToken, TokenCredential
    from ottla.server.security.sasl import SaslListener
    from ottla.server.security.tls import TlsListener
    from ottla.server.security.tls_transport import HandshakeTurns
    from ottla.server.services import SecurityServices, Services
else:
    hashlib = lazy("hashlib")
    delegation_tokens = lazy("ottla.metadata.delegation_tokens")
    scram = lazy("ottla.metadata.scram")
    authorizer = lazy("ottla.server.security.authorizer")
    guards = lazy("ottla.server.security.guards")
    jwks = lazy("ottla.server.security.jwks")
    jwt = lazy("ottla.server.security.jwt")
    mechanisms = lazy("ottla.server.security.mechanisms")
    quotas = lazy("ottla.server.security.quotas")
    sasl_module = lazy("ottla.server.security.sasl")
    tls_module = lazy("ottla.server.security.tls")
    tls_transport = lazy("ottla.server.security.tls_transport")

logger = logging.getLogger(__name__)

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

_FILES_CHECK_MS = 5_000
"""How often certificate files are checked for changes."""

_TOKEN_ITERATIONS = 4096
_TOKEN_CREDENTIALS_MAX = 1000


class Security:
    """One per broker; created before it binds, so that a wrong setting is found before anything changes."""

    def __init__(self, services: SecurityServices) -> None:
        self._services = services
        self.limits = ConnectionLimits(services)
        self.refusals = RateLimitedLog(logger, services.clock)
        self._tls: dict[str, TlsListener] = {}
        self._sasl: dict[str, SaslListener] = {}
        self._keys: dict[str, KeySource] = {}
        self._token_credentials: dict[tuple[str, str], tuple[int, ScramCredential]] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._cipher_buffer: memoryview | None = None
        self._handshakes: HandshakeTurns | None = None
        self._config = services.config
        for listener in services.config.listeners:
            self._configure(listener.name, listener.security_protocol, services.config)

    def _configure(self, name: str, protocol: str, config: Config) -> None:
        if protocol in ("SSL", "SASL_SSL"):
            self._tls[name] = tls_module.TlsListener(config, name, sasl=protocol == "SASL_SSL")
        if protocol.startswith("SASL_"):
            self._sasl[name] = sasl_module.SaslListener(config, name, self)

    # -- lifecycle ---------------------------------------------------------------------------------------------------

    def open(self, registry: Registry) -> Registry:
        """The metadata is loaded: ACLs and quotas apply from now on. Returns the APIs, guarded by the ACLs."""
        services = self._services
        if services.config["authorizer.class.name"]:
            services.access.authorizer = authorizer.authorizer_from(services.config, services.metadata, services.clock)
            registry = guards.guarded(registry)
        self._follow_quotas()
        self.config_changed()
        return registry

    async def start(self, controller: Controller | None) -> None:
        """Read what must be ready before the first client, and watch files that may change.

        The broker that writes the metadata gets `controller`: it removes expired tokens.
        """
        for source in self._keys.values():
            await source.load()
        if self._tls:
            self._services.timer.schedule(_FILES_CHECK_MS, self._check_files)
        if self._services.config["delegation.token.secret.key"] and controller is not None:
            self._sweep_tokens_later(controller)

    async def stop(self) -> None:
        """Stop all tasks."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def metadata_changed(self, records: Sequence[Message]) -> None:
        if self._services.access.authorizer is not None:
            self._services.access.authorizer.metadata_changed(records)
        if any(isinstance(record, ClientQuotaRecord) for record in records):
            self._follow_quotas()

    def metadata_replaced(self) -> None:
        """The image was rebuilt: some applied records no longer count."""
        services = self._services
        if services.access.authorizer is not None:
            services.access.authorizer = authorizer.authorizer_from(services.config, services.metadata, services.clock)
        self._follow_quotas()

    def _follow_quotas(self) -> None:
        services, access = self._services, self._services.access
        if not services.metadata.quotas:
            access.quotas = None
            return
        access.quotas = quotas.Quotas.followed(access.quotas, services.metadata, services.config, services.clock)

    def config_changed(self) -> None:
        """Dynamic settings changed: certificates and mechanisms of new connections follow them."""
        config = self._services.config
        if config is self._config:
            return
        self._config = config
        for name, tls in self._tls.items():
            try:
                if tls.configure(config):
                    logger.info("listener %s: TLS settings reloaded", name)
            except ConfigError as error:
                logger.error("listener %s keeps its TLS settings: %s", name, error)
        if self._sasl:
            for name in self._sasl:
                keys = self._keys.get(name)
                try:
                    self._sasl[name] = sasl_module.SaslListener(config, name, self)
                except ConfigError as error:
                    logger.error("listener %s keeps its SASL settings: %s", name, error)
                    continue
                if name in self._keys and self._keys[name] is not keys:
                    self._keys[name].replace(keys)

    def check(self, config: Config) -> None:
        """Check that a requested configuration would work; raises ConfigError if not."""
        for tls in self._tls.values():
            tls.check(config)
        if self._sasl:
            keys = dict(self._keys)
            try:
                for name in self._sasl:
                    sasl_module.SaslListener(config, name, self)
            finally:
                self._keys = keys

    def _check_files(self) -> None:
        for name, tls in self._tls.items():
            try:
                if tls.reload_changed_files():
                    logger.info("listener %s: certificates reloaded, their files changed", name)
            except ConfigError as error:
                self.refusals.warning(name, "listener %s keeps its certificates: %s", name, error)
        self._services.timer.schedule(_FILES_CHECK_MS, self._check_files)

    # -- connections -------------------------------------------------------------------------------------------------

    @property
    def cipher_buffer(self) -> memoryview:
        """The receive buffer of TLS connections; one is enough, because its content is processed immediately."""
        if self._cipher_buffer is None:
            self._cipher_buffer = memoryview(bytearray(tls_transport.CIPHER_BYTES))
        return self._cipher_buffer

    @property
    def handshakes(self) -> HandshakeTurns:
        if self._handshakes is None:
            self._handshakes = tls_transport.HandshakeTurns(self._services.loop)
        return self._handshakes

    def accept(
        self,
        bound: BoundListener,
        sock: socket.socket,
        address: tuple[str, int],
        services: Services,
        connections: Connections,
    ) -> Connection | None:
        """A connection of the listener's kind, or None if there are too many.

        TLS is its transport; SASL or a certificate is its authentication.
        """
        host, port = address
        if not self.limits.admit(bound, sock, host):
            return None
        listener = bound.config
        peer = f"{host}:{port}"
        tls, sasl = self._tls.get(listener.name), self._sasl.get(listener.name)
        if tls is None and sasl is None:
            return Connection(services, connections, listener, sock, peer, host)
        transport = None
        if tls is not None:
            transport = tls_transport.TlsTransport(sock, tls.context, self.cipher_buffer, self.handshakes)
        connection = Connection(services, connections, listener, sock, peer, host, transport)
        if sasl is not None:
            connection.authentication = sasl_module.SaslAuthentication(connection, sasl)
        elif tls is not None and transport is not None:
            transport.on_open = tls_module.ClientCertificate(connection, tls.mapping).opened
        return connection

    def closed(self, connection: Connection) -> None:
        self.limits.closed(connection.listener.name, connection.client_host[1:])

    # -- credentials -------------------------------------------------------------------------------------------------

    def new_nonce(self) -> str:
        return base64.urlsafe_b64encode(self._services.randomness.randbytes(24)).decode()

    def scram(
        self, mechanism: str
    ) -> tuple[str, Callable[[str], ScramCredential | None], Callable[[str], TokenCredential | None]]:
        """The hash of a SCRAM mechanism, and the look-ups of its users and tokens."""
        number = next(number for number, name in scram.MECHANISMS.items() if name == mechanism)
        image, hash_name = self._services.metadata, scram.HASHES[number]
        return (
            hash_name,
            lambda user: image.credentials.get((user, number)),
            lambda token_id: self._token_credential(token_id, mechanism, number, hash_name),
        )

    @property
    def token_rules(self) -> delegation_tokens.TokenRules:
        config = self._services.config
        return delegation_tokens.TokenRules(
            config["delegation.token.secret.key"],
            config["delegation.token.max.lifetime.ms"],
            config["delegation.token.expiry.time.ms"],
        )

    def _token_credential(
        self, token_id: str, mechanism: str, number: int, hash_name: str
    ) -> mechanisms.TokenCredential | None:
        """A token as a SCRAM user: its HMAC is the password. The salt is drawn once for each token and mechanism."""
        token = self._services.metadata.delegation_tokens.get(token_id)
        config = self._services.config
        if token is None or not config["delegation.token.secret.key"]:
            return None
        if min(token.expiry_ms, token.max_ms) < self._services.clock.now_ms():
            return None
        kind, _, owner = token.owner.partition(":")
        if kind != "User":
            # A session always belongs to a user: a principal of another type would be mistaken for a user.
            return None
        known = self._token_credentials.get((token_id, mechanism))
        if known is None or known[0] != token.issue_ms:
            if len(self._token_credentials) >= _TOKEN_CREDENTIALS_MAX:
                self._token_credentials.clear()
            salt = self._services.randomness.randbytes(24)
            password = base64.b64encode(self.token_rules.hmac(token_id))
            salted = hashlib.pbkdf2_hmac(hash_name, password, salt, _TOKEN_ITERATIONS)
            known = (token.issue_ms, scram.credential(number, salt, salted, _TOKEN_ITERATIONS))
            self._token_credentials[token_id, mechanism] = known
        return mechanisms.TokenCredential(owner, token.expiry_ms, known[1])

    def _sweep_tokens_later(self, controller: Controller) -> None:
        services = self._services

        def sweep() -> None:
            controller.commit(delegation_tokens.expired_tokens(services.metadata, services.clock.now_ms()))
            self._sweep_tokens_later(controller)

        services.timer.schedule(services.config["delegation.token.expiry.check.interval.ms"], sweep)

    def new_token_id(self) -> str:
        return uuid_to_base64(self._services.randomness.uuid())

    # -- bearer tokens -----------------------------------------------------------------------------------------------

    def bearer_tokens(self, listener: str, module: LoginModule | None) -> Callable[[str], BearerToken]:
        """The tokens that OAUTHBEARER accepts on a listener: signed ones, or unsecured ones if configured."""
        config, clock = self._services.config, self._services.clock

        def setting(key: str) -> Any:
            return config.for_listener(listener, key, "oauthbearer")

        url = setting("sasl.oauthbearer.jwks.endpoint.url")
        handler = setting("sasl.server.callback.handler.class") or ""
        options = module.options if module is not None else {}
        if url:
            for needed in ("cryptography", "jwt"):
                jwt.need_package("sasl.oauthbearer.jwks.endpoint.url", needed)
            expected = jwt.Expectations(
                issuer=setting("sasl.oauthbearer.expected.issuer"),
                audience=setting("sasl.oauthbearer.expected.audience") or (),
                scope_claim=setting("sasl.oauthbearer.scope.claim.name"),
                user_claim=setting("sasl.oauthbearer.sub.claim.name"),
                clock_skew_ms=setting("sasl.oauthbearer.clock.skew.seconds") * 1000,
            )
            settings = jwks.JwksSettings(
                url,
                setting("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
                setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
                setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
                tuple(sorted((name, value) for name, value in options.items() if name.startswith("ssl."))),
            )
            if listener not in self._keys or self._keys[listener].settings != settings:
                self._keys[listener] = jwks.KeySource(settings, self._services, self._spawn)
            return jwt.SignedTokens(expected, clock.now_ms, self._keys[listener]).validate
        if "Unsecured" not in handler and not any(name.startswith("unsecured") for name in options):
            raise ConfigError(
                f"OAUTHBEARER on listener {listener}: set sasl.oauthbearer.jwks.endpoint.url to the keys that sign "
                "tokens; to accept unsigned tokens (for tests only), add an option to the JAAS line, such as "
                "unsecuredValidatorAllowableClockSkewMs"
            )
        logger.warning("listener %s accepts unsigned OAUTHBEARER tokens: anyone can log in as anyone", listener)
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0").strip() or "0"
        if not skew.isdecimal():
            raise ConfigError("unsecuredValidatorAllowableClockSkewMs is a number of milliseconds")
        unsecured = jwt.Expectations(
            scope_claim=options.get("unsecuredValidatorScopeClaimName", "scope"),
            user_claim=options.get("unsecuredValidatorPrincipalClaimName", "sub"),
            clock_skew_ms=int(skew),
            required_scope=options.get("unsecuredValidatorRequiredScope", "").split(),
            needs_issue_time=False,
        )
        return jwt.UnsecuredTokens(unsecured, clock.now_ms).validate

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._services.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
