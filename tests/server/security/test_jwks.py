"""The keys of bearer tokens from a web server: read at the start, refreshed, retried and rotated, without blocking
logins."""

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from ottla.clock import ManualClock
from ottla.config import ConfigError
from ottla.server.security.jwks import read_document

REFRESH_MS = 600_000
JAAS = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    def __init__(self, kid: str) -> None:
        self.kid = kid
        self._key = ec.generate_private_key(ec.SECP256R1())

    def public(self) -> dict[str, str]:
        point = self._key.public_key().public_numbers()
        x, y = (b64(part.to_bytes(32, "big")) for part in (point.x, point.y))
        return {"kty": "EC", "kid": self.kid, "use": "sig", "alg": "ES256", "crv": "P-256", "x": x, "y": y}

    def bearer(self, lifetime_s: int = 86_400) -> bytes:
        now = int(time.time())
        head = {"alg": "ES256", "kid": self.kid}
        claims = {"sub": "alice", "iat": now, "exp": now + lifetime_s}
        signed = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"
        r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        token = f"{signed}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
        return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


class Provider(ThreadingHTTPServer):
    """Serves `keys`; a test can replace `answer`."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys: list[Key] = [Key("first")]
        self.asked = 0
        self.answer: Callable[[], tuple[int, dict[str, str], bytes]] = self.jwks
        self.scheme = "https" if context is not None else "http"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def jwks(self) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps({"keys": [key.public() for key in self.keys]}).encode()

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.server_address[1]}/keys"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the server is expected here."""


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self.server.asked += 1
        status, headers, body = self.server.answer()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Provider]:
    with Provider(context) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        yield server


@pytest.fixture
def oauth(sasl_settings: Any) -> Callable[..., dict[str, object]]:
    def settings(url: str, options: str = "") -> dict[str, object]:
        return {
            **sasl_settings("OAUTHBEARER"),
            JAAS: f"{MODULE} {options};",
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": REFRESH_MS,
        }

    return settings


async def accepted(running: Any, key: Key) -> bool:
    client = await running.connect()
    assert (await client.handshake("OAUTHBEARER")).error_code == 0
    response = await client.token(key.bearer())
    assert response.error_code == 0
    return response.auth_bytes == b""


async def refreshes(running: Any) -> None:
    """Wait for the work in the background."""
    while tasks := tuple(running.broker.security._tasks):
        await asyncio.gather(*tasks)


def clock() -> ManualClock:
    return ManualClock(int(time.time() * 1000))


def test_a_rotated_key_is_fetched_when_a_token_names_it(
    run: Any, run_broker: Any, oauth: Any, provider: Provider
) -> None:
    async def main() -> None:
        time_ = clock()
        async with run_broker(settings=oauth(provider.url), clock=time_) as running:
            old, new, foreign = *provider.keys, Key("second"), Key("nobody's")
            assert await accepted(running, old)
            assert provider.asked == 1
            provider.keys = [old, new]
            assert not await accepted(running, new)  # the login does not wait for the provider; the next one succeeds
            await refreshes(running)
            assert await accepted(running, new)
            assert await accepted(running, old)
            assert provider.asked == 2
            # An unknown key is looked up once a minute, and several unknown keys do not cause a lookup each.
            time_.advance(2_000)
            for _ in range(3):
                assert not await accepted(running, foreign)
                assert not await accepted(running, Key("another"))
                await refreshes(running)
            assert provider.asked == 3
            time_.advance(60_000)
            assert not await accepted(running, foreign)
            await refreshes(running)
            assert provider.asked == 4

    run(main())


def test_a_withdrawn_key_is_refused_after_the_next_refresh(
    run: Any, run_broker: Any, oauth: Any, provider: Provider
) -> None:
    async def main() -> None:
        time_ = clock()
        async with run_broker(settings=oauth(provider.url), clock=time_) as running:
            old, new = *provider.keys, Key("second")
            provider.keys = [new]
            for asked in (2, 3):
                time_.advance(REFRESH_MS)
                await refreshes(running)
                assert provider.asked == asked
            assert not await accepted(running, old)
            assert await accepted(running, new)
            await refreshes(running)

    run(main())


def test_known_keys_stay_while_the_provider_fails(
    run: Any, run_broker: Any, oauth: Any, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        time_ = clock()
        # Long enough for a slow machine.
        settings = {**oauth(provider.url), "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": REFRESH_MS // 2}
        async with run_broker(settings=settings, clock=time_) as running:
            provider.answer = lambda: (503, {}, b"later")
            time_.advance(REFRESH_MS)
            while provider.asked < 4:  # the first request and three that fail
                await asyncio.sleep(0.001)
                time_.advance(10)
            provider.answer = provider.jwks
            provider.keys.append(Key("second"))
            while running.broker.security._tasks:
                await asyncio.sleep(0.001)
                time_.advance(10)
            assert "cannot read the JWKS" not in caplog.text
            assert await accepted(running, provider.keys[1])
            # In the end it gives up until the next refresh, and continues with the known keys.
            provider.answer = lambda: (200, {}, b"<html>")
            time_.advance(REFRESH_MS)
            while running.broker.security._tasks:
                await asyncio.sleep(0.001)
                time_.advance(REFRESH_MS // 20)
            assert "cannot read the JWKS" in caplog.text
            assert await accepted(running, provider.keys[0])

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}, b""),
        (200, {}, b"no JSON"),
        (200, {}, b'{"keys": 1}'),
        (200, {}, b"[" * 100_000),
        (200, {}, b" " * (2 << 20)),
        (302, {"Location": "file:///etc/passwd"}, b""),
    ],
    ids=["missing", "no JSON", "no list", "deep", "huge", "forwarded"],
)
def test_a_start_without_keys_fails_and_says_why(
    run: Any, run_broker: Any, oauth: Any, provider: Provider, answer: tuple[int, dict[str, str], bytes]
) -> None:
    provider.answer = lambda: answer

    async def main() -> None:
        with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url: cannot read the keys"):
            async with run_broker(settings=oauth(provider.url)):
                pass

    run(main())


@pytest.mark.parametrize("url", ["ftp://localhost/keys", "/etc/keys"])
def test_an_invalid_jwks_url_is_refused(run: Any, run_broker: Any, oauth: Any, url: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=r"begins with file:, http:// or https://"):
            async with run_broker(settings=oauth(url)):
                pass

    run(main())


def test_https_uses_the_trust_store_of_the_jaas_line(
    run: Any, run_broker: Any, oauth: Any, certificates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    options = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.trust}"'

    async def main(url: str, keys: list[Key]) -> None:
        with pytest.raises(ConfigError, match="certificate verify failed"):
            async with run_broker(settings=oauth(url)):
                pass
        async with run_broker(settings=oauth(url, options)) as running:
            assert await accepted(running, keys[0])

    with serving(context) as server:
        run(main(server.url, server.keys))


def test_a_provider_that_hangs_does_not_hold_up_a_stop(
    run: Any, run_broker: Any, oauth: Any, provider: Provider
) -> None:
    over = threading.Event()

    def hang() -> tuple[int, dict[str, str], bytes]:
        over.wait(60)
        return provider.jwks()

    async def main() -> None:
        async with run_broker(settings=oauth(provider.url)) as running:
            provider.answer = hang
            assert not await accepted(running, Key("second"))
            assert running.broker.security._tasks
        assert not over.is_set()

    try:
        run(main())
    finally:
        over.set()


def test_keys_come_from_the_server_that_the_settings_name(provider: Provider) -> None:
    """A redirect to another server is not followed. One to another path of the same server is."""
    with serving() as other:
        provider.answer = lambda: (302, {"Location": other.url}, b"")
        with pytest.raises(ValueError, match="forwarded to another server"):
            read_document(provider.url)
        assert other.asked == 0
    answers = iter([(302, {"Location": "/elsewhere"}, b""), provider.jwks()])
    provider.answer = lambda: next(answers)
    assert b"keys" in read_document(provider.url)
