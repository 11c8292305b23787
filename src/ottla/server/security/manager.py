"""What a broker has of security, put together: listeners, tokens, ACLs, quotas and limits, and how they follow changes.

Everything heavy (OpenSSL, hashes) is imported where a listener or a setting asks for it: a plain broker starts as fast
as if there were no security at all.
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
    from ottla.server.broker import Broker
    from ottla.server.net.listener import BoundListener
    from ottla.server.security import authorizer, guards, jwks, jwt, mechanisms, quotas, tls_transport
    from ottla.server.security import sasl as sasl_module
    from ottla.server.security import tls as tls_module
    from ottla.server.security.jaas import LoginModule
    from ottla.server.security.jwks import KeySource
    from ottla.server.security.mechanisms import BearerToken, TokenCredential
    from ottla.server.security.sasl import SaslListener
    from ottla.server.security.tls import TlsListener
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
"""How soon a replaced certificate is noticed without anybody saying so."""

_TOKEN_ITERATIONS = 4096
_TOKEN_CREDENTIALS_MAX = 1000


class Security:
    """One for a broker; made before it binds, so that a wrong setting is found before anything is touched."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.limits = ConnectionLimits(broker)
        self.refusals = RateLimitedLog(logger, broker.clock)
        self._tls: dict[str, TlsListener] = {}
        self._sasl: dict[str, SaslListener] = {}
        self._keys: dict[str, KeySource] = {}
        self._token_credentials: dict[tuple[str, str], tuple[int, ScramCredential]] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._cipher_buffer: memoryview | None = None
        self._config = broker.config
        for listener in broker.config.listeners:
            self._configure(listener.name, listener.security_protocol, broker.config)

    def _configure(self, name: str, protocol: str, config: Config) -> None:
        if protocol in ("SSL", "SASL_SSL"):
            self._tls[name] = tls_module.TlsListener(config, name, sasl=protocol == "SASL_SSL")
        if protocol.startswith("SASL_"):
            self._sasl[name] = sasl_module.SaslListener(config, name, self)

    # -- life --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """The metadata is loaded: ACLs and quotas are in force from here on."""
        broker = self._broker
        if broker.config["authorizer.class.name"]:
            broker.access.authorizer = authorizer.authorizer_from(broker.config, broker.metadata, broker.clock)
            broker.registry = guards.guarded(broker.registry)
        self._follow_quotas()
        self.config_changed()

    async def start(self) -> None:
        """Read what has to be there before the first client is, and keep looking at what may change."""
        for source in self._keys.values():
            await source.load()
        broker = self._broker
        if self._tls:
            broker.timer.schedule(_FILES_CHECK_MS, self._check_files)
        if broker.config["delegation.token.secret.key"] and broker.is_controller:
            broker.timer.schedule(broker.config["delegation.token.expiry.check.interval.ms"], self._sweep_tokens)

    async def stop(self) -> None:
        """Leave no task behind."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def metadata_changed(self, records: Sequence[Message]) -> None:
        broker = self._broker
        if broker.access.authorizer is not None:
            broker.access.authorizer.metadata_changed(records)
        if any(isinstance(record, ClientQuotaRecord) for record in records):
            self._follow_quotas()

    def _follow_quotas(self) -> None:
        broker = self._broker
        if not broker.metadata.quotas:
            broker.access.quotas = None
            return
        broker.access.quotas = quotas.Quotas.followed(
            broker.access.quotas, broker.metadata, broker.config, broker.clock
        )

    def config_changed(self) -> None:
        """Dynamic settings changed: certificates and mechanisms of new connections follow them."""
        config = self._broker.config
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
        """Whether a configuration that somebody asks for would work; raises ConfigError if not."""
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
        self._broker.timer.schedule(_FILES_CHECK_MS, self._check_files)

    # -- connections -------------------------------------------------------------------------------------------------

    @property
    def cipher_buffer(self) -> memoryview:
        """What TLS connections receive into; one is enough, as its content is handed on at once."""
        if self._cipher_buffer is None:
            self._cipher_buffer = memoryview(bytearray(tls_transport.CIPHER_BYTES))
        return self._cipher_buffer

    def accept(self, bound: BoundListener, sock: socket.socket, address: tuple[str, int]) -> Connection | None:
        """A connection of the listener's kind, or None where there is one too many."""
        host, port = address
        if not self.limits.admit(bound, sock, host):
            return None
        listener = bound.config
        peer = f"{host}:{port}"
        tls, sasl = self._tls.get(listener.name), self._sasl.get(listener.name)
        if tls is None and sasl is None:
            return Connection(self._broker, listener, sock, peer, host)
        return self._secured(listener, sock, peer, host, tls, sasl)

    def _secured(
        self,
        listener: Any,
        sock: socket.socket,
        peer: str,
        host: str,
        tls: TlsListener | None,
        sasl: SaslListener | None,
    ) -> Connection:
        """A connection with TLS as its transport, SASL or a certificate as its authentication, or both."""
        transport = None
        if tls is not None:
            transport = tls_transport.TlsTransport(sock, tls.context, self.cipher_buffer)
        connection = Connection(self._broker, listener, sock, peer, host, transport)
        if sasl is not None:
            connection.authentication = sasl_module.SaslAuthentication(connection, sasl)
        elif tls is not None and transport is not None:
            transport.on_open = tls_module.ClientCertificate(connection, tls.mapping).opened
        return connection

    def closed(self, connection: Connection) -> None:
        self.limits.closed(connection.listener.name, connection.client_host[1:])

    # -- credentials -------------------------------------------------------------------------------------------------

    def new_nonce(self) -> str:
        return base64.urlsafe_b64encode(self._broker.chance.randbytes(24)).decode()

    def scram(
        self, mechanism: str
    ) -> tuple[str, Callable[[str], ScramCredential | None], Callable[[str], TokenCredential | None]]:
        """The hash of a SCRAM mechanism, and where its users and tokens are found."""
        number = next(number for number, name in scram.MECHANISMS.items() if name == mechanism)
        image, hash_name = self._broker.metadata, scram.HASHES[number]
        return (
            hash_name,
            lambda user: image.credentials.get((user, number)),
            lambda token_id: self._token_credential(token_id, mechanism, number, hash_name),
        )

    @property
    def token_rules(self) -> delegation_tokens.TokenRules:
        config = self._broker.config
        return delegation_tokens.TokenRules(
            config["delegation.token.secret.key"],
            config["delegation.token.max.lifetime.ms"],
            config["delegation.token.expiry.time.ms"],
        )

    def _token_credential(
        self, token_id: str, mechanism: str, number: int, hash_name: str
    ) -> mechanisms.TokenCredential | None:
        """A token as a SCRAM user: its HMAC is the password. The salt is drawn once for each token and mechanism."""
        token = self._broker.metadata.delegation_tokens.get(token_id)
        config = self._broker.config
        if token is None or not config["delegation.token.secret.key"]:
            return None
        if min(token.expiry_ms, token.max_ms) < self._broker.clock.now_ms():
            return None
        kind, _, owner = token.owner.partition(":")
        if kind != "User":
            # A session is always that of a user: it would take the name of somebody of another kind for a user's.
            return None
        known = self._token_credentials.get((token_id, mechanism))
        if known is None or known[0] != token.issue_ms:
            if len(self._token_credentials) >= _TOKEN_CREDENTIALS_MAX:
                self._token_credentials.clear()
            salt = self._broker.chance.randbytes(24)
            password = base64.b64encode(self.token_rules.hmac(token_id))
            salted = hashlib.pbkdf2_hmac(hash_name, password, salt, _TOKEN_ITERATIONS)
            known = (token.issue_ms, scram.credential(number, salt, salted, _TOKEN_ITERATIONS))
            self._token_credentials[token_id, mechanism] = known
        return mechanisms.TokenCredential(owner, token.expiry_ms, known[1])

    def _sweep_tokens(self) -> None:
        broker = self._broker
        broker.controller.commit(delegation_tokens.expired_tokens(broker.metadata, broker.clock.now_ms()))
        broker.timer.schedule(broker.config["delegation.token.expiry.check.interval.ms"], self._sweep_tokens)

    def new_token_id(self) -> str:
        return uuid_to_base64(self._broker.chance.uuid())

    # -- bearer tokens -----------------------------------------------------------------------------------------------

    def bearer_tokens(self, listener: str, module: LoginModule | None) -> Callable[[str], BearerToken]:
        """What OAUTHBEARER accepts on a listener: signed tokens, or unsecured ones where that is said."""
        config, clock = self._broker.config, self._broker.clock

        def setting(key: str) -> Any:
            return config.for_listener(listener, key, "oauthbearer")

        url = setting("sasl.oauthbearer.jwks.endpoint.url")
        handler = setting("sasl.server.callback.handler.class") or ""
        options = module.options if module is not None else {}
        if url:
            jwt.need_cryptography("sasl.oauthbearer.jwks.endpoint.url")
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
                self._keys[listener] = jwks.KeySource(settings, self._broker, self._spawn)
            return jwt.SignedTokens(expected, clock.now_ms, self._keys[listener]).validate
        if "Unsecured" not in handler and not any(name.startswith("unsecured") for name in options):
            raise ConfigError(
                f"OAUTHBEARER on listener {listener}: set sasl.oauthbearer.jwks.endpoint.url to the keys that sign "
                "tokens; to accept unsigned ones, which is for tests only, give the JAAS line an option such as "
                "unsecuredValidatorAllowableClockSkewMs"
            )
        logger.warning("listener %s accepts unsigned OAUTHBEARER tokens: anybody can be anybody", listener)
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
        task = self._broker.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
