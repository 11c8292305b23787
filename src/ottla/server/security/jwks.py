"""The keys that sign bearer tokens, from a file or the web.

They are read at the start, then periodically, and when a token names an unknown key.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

from ottla.clock import TimerHandle
from ottla.config import ConfigError
from ottla.server.security.jwt import KeySet
from ottla.server.security.stores import key_store, key_store_context, trust_store

if TYPE_CHECKING:
    from ottla.server.services import SecurityServices

logger = logging.getLogger(__name__)

DOCUMENT_BYTES_MAX = 1 << 20
"""A JWKS larger than this cannot be a list of keys."""

_READ_TIMEOUT_S = 10
_KEY_ID_LENGTH_MAX = 1000
_MISSING_MAX = 16
_MISSING_MS = 60_000.0
"""A key that was not found is not looked up again for this time. These three values are Kafka's."""

_EXPEDITED_GAP_MS = 1_000.0
"""Tokens with ever new key ids must not cause too many requests to the provider."""


class JwksSettings(NamedTuple):
    """Where keys are, how they are fetched, and how often."""

    url: str
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int
    options: tuple[tuple[str, str], ...] = ()
    """`ssl.` options of the JAAS line: the trusted servers of an https address, and our own certificate."""


class KeySource:
    """The keys of one listener. If they cannot be read again, the known ones stay."""

    def __init__(
        self, settings: JwksSettings, services: SecurityServices, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        if not settings.url.startswith(("file:", "http://", "https://")):
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url begins with file:, http:// or https://")
        if settings.refresh_ms <= 0:
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.refresh.ms must be positive")
        self.settings = settings
        self.keys: KeySet | None = None
        self._services = services
        self._spawn = spawn
        self._context = _tls_context(dict(settings.options)) if settings.url.startswith("https:") else None
        self._timer: TimerHandle | None = None
        self._is_busy = False
        self._missing_until_ms: dict[str, float] = {}
        self._expedited_ms: float | None = None

    async def load(self) -> None:
        """The first load. Without keys nobody could log in, so the start fails, as in Kafka."""
        try:
            await self._read()
        except (OSError, ValueError) as error:
            url = self.settings.url
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: cannot read the keys at {url}: {error}") from None
        self._timer = self._services.timer.schedule(self.settings.refresh_ms, self._on_time)

    def replace(self, old: KeySource | None) -> None:
        """Start while the broker runs; the keys of the old source are used until new keys have been read."""
        if old is not None:
            self.keys = old.keys
            if old._timer is not None:
                old._timer.cancel()
        self._on_time()

    def expedite(self, key_id: str | None) -> None:
        """A token names an unknown key: it may be a new one."""
        now_ms = self._services.clock.monotonic_ms()
        name = key_id or ""
        if self._is_busy or len(name) > _KEY_ID_LENGTH_MAX or self._missing_until_ms.get(name, 0.0) > now_ms:
            return
        if self._expedited_ms is not None and now_ms - self._expedited_ms < _EXPEDITED_GAP_MS:
            return
        self._expedited_ms = now_ms
        self._missing_until_ms.pop(name, None)
        while len(self._missing_until_ms) >= _MISSING_MAX:
            del self._missing_until_ms[next(iter(self._missing_until_ms))]
        self._missing_until_ms[name] = now_ms + _MISSING_MS
        self._spawn(self._refresh())

    def _on_time(self) -> None:
        self._timer = self._services.timer.schedule(self.settings.refresh_ms, self._on_time)
        if not self._is_busy:
            self._spawn(self._refresh())

    async def _refresh(self) -> None:
        """Read the keys again; retry, with pauses that double, until `…retry.backoff.max.ms` has passed."""
        settings, clock = self.settings, self._services.clock
        self._is_busy = True
        try:
            pause_ms = float(settings.backoff_ms)
            end_ms = clock.monotonic_ms() + settings.backoff_max_ms
            while True:
                try:
                    await self._read()
                    return
                except (OSError, ValueError) as error:
                    left_ms = end_ms - clock.monotonic_ms()
                    if left_ms <= 0:
                        logger.error("cannot read the JWKS at %s, the known keys are kept: %s", settings.url, error)
                        return
                await self._pause(min(max(pause_ms, 1.0), left_ms))
                pause_ms *= 2
        finally:
            self._is_busy = False

    async def _pause(self, pause_ms: float) -> None:
        over = asyncio.Event()
        handle = self._services.timer.schedule(pause_ms, over.set)
        try:
            await over.wait()
        finally:
            handle.cancel()

    async def _read(self) -> None:
        url, context = self.settings.url, self._context
        self.keys = keys = KeySet(await _in_thread(self._services.loop, lambda: read_document(url, context)))
        for name in [name for name in self._missing_until_ms if keys.knows(name or None)]:
            del self._missing_until_ms[name]


def _tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    trusted = trust_store(options.get)
    try:
        context = ssl.create_default_context(cadata=trusted)
    except (ssl.SSLError, ValueError):
        raise ConfigError("sasl.jaas.config: there is no readable certificate in ssl.truststore.*") from None
    if options.get("ssl.keystore.location") or options.get("ssl.keystore.key"):
        key_store_context(context, key_store(options.get))
    return context


async def _in_thread(loop: asyncio.AbstractEventLoop, work: Callable[[], bytes]) -> bytes:
    """Run in a separate thread that nothing waits for, so that a provider that hangs does not delay a stop."""
    result: asyncio.Future[bytes] = loop.create_future()

    def settle(value: bytes | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            assert value is not None
            result.set_result(value)

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except Exception as problem:
            error = problem if isinstance(problem, (OSError, ValueError)) else ValueError(repr(problem))
        with suppress(RuntimeError):  # the loop may already be closed
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="ottla-jwks", daemon=True).start()
    return await result


class _SameServer(HTTPRedirectHandler):
    """Follows a redirect to another path of the same server only: keys come only from the configured server, and the
    broker does not contact addresses that others choose."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            fp.close()
            raise ValueError(f"it was forwarded to another server, {new.scheme}://{new.netloc}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def read_document(url: str, context: ssl.SSLContext | None = None) -> bytes:
    """A JWKS from a file or the web; blocking."""
    deadline = time.monotonic() + _READ_TIMEOUT_S
    document = b""
    opener = build_opener(HTTPSHandler(context=context), _SameServer())
    try:
        answer = opener.open(url, timeout=_READ_TIMEOUT_S)
    except HTTPError as error:
        error.close()  # the error is also the response, and holds a socket
        raise ValueError(str(error)) from None
    with answer as response:
        while chunk := response.read1(1 << 16):
            document += chunk
            if len(document) > DOCUMENT_BYTES_MAX:
                raise ValueError("the document is too large for a JWKS")
            if time.monotonic() > deadline:
                raise ValueError(f"it did not arrive within {_READ_TIMEOUT_S} s")
    return document
