"""SASL: the order of requests, every mechanism, failures, sessions that expire, and that no secret leaks."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from ottla.clock import ManualClock
from ottla.config import ConfigError
from ottla.enums import ConfigResourceType
from ottla.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    IllegalSaslState,
    InvalidPrincipalType,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from ottla.server.security.jaas import parse_jaas
from ottla.server.security.loglimit import RateLimitedLog
from ottla.server.security.mechanisms import Plain, Refused, Scram
from ottla.wire.messages.configs import DescribeConfigsRequest
from ottla.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from ottla.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

SCRAM = "SCRAM-SHA-256"


async def alter_scram(client: Any, user: str, password: str, mechanism: int = 1) -> None:
    salt, iterations = b"0123456789", 4096
    salted = hashlib.pbkdf2_hmac({1: "sha256", 2: "sha512"}[mechanism], password.encode(), salt, iterations)
    response = await client.call(
        AlterUserScramCredentialsRequest(
            upsertions=[
                AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                    name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
                )
            ]
        ),
        0,
    )
    assert response.results[0].error_code == 0


async def scram(
    client: Any,
    user: str,
    password: str,
    mechanism: str = SCRAM,
    extensions: str = "",
    version: int = 2,
    binding: bytes = b"n,,",
) -> Any:
    """The client's side of RFC 5802. Returns the last answer."""
    name = "sha256" if mechanism.endswith("256") else "sha512"
    assert (await client.handshake(mechanism)).error_code == 0
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=clientnonce{extensions}"
    first = await client.token(f"n,,{bare}".encode(), version)
    if first.error_code:
        return first
    fields = dict(part.split("=", 1) for part in first.auth_bytes.decode().split(","))
    assert fields["r"].startswith("clientnonce") and len(fields["r"]) > 25
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    unproven = f"c={base64.b64encode(binding).decode()},r={fields['r']}"
    proven = f"{bare},{first.auth_bytes.decode()},{unproven}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), proven, name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    last = await client.token(f"{unproven},p={proof}".encode(), version)
    if last.error_code == 0:
        expected = hmac.digest(hmac.digest(salted, b"Server Key", name), proven, name)
        assert last.auth_bytes == b"v=" + base64.b64encode(expected)
    return last


async def works(client: Any) -> bool:
    return bool((await client.call(MetadataRequest(topics=[]), 9)).error_code == 0)


def principals(running: Any) -> set[str]:
    return {connection.principal for connection in running.broker.connections}


# -- the order of requests


def test_plain_works_after_api_versions(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings()) as running:
            client = await running.connect()
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            handshake = await client.handshake("PLAIN")
            assert (handshake.error_code, handshake.mechanisms) == (0, ["PLAIN"])
            response = await client.token(b"\0alice\0alice-secret")
            assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 0)
            assert await works(client)
            assert principals(running) == {"User:alice"}
            again = await client.handshake("PLAIN")
            assert again.error_code == IllegalSaslState.code
            assert (await client.token(b"x")).error_code == IllegalSaslState.code
            assert await works(client)

    run(main())


def test_any_other_first_request_closes_the_connection(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings()) as running:
            for request, version in ((MetadataRequest(topics=[]), 9), (SaslAuthenticateRequest(auth_bytes=b""), 1)):
                client = await running.connect()
                client.send(request, version)
                assert await client.is_closed()
            twice = await running.connect()
            assert (await twice.call(ApiVersionsRequest(), 0)).error_code == 0
            twice.send(ApiVersionsRequest(), 0)
            assert await twice.is_closed()
            future = await running.connect()
            future.writer.write(b"\0\0\0\x0b\0\x12\0\x63\0\0\0\1\xff\xff\0")  # a version from the future: answered
            await future.receive_frame()
            assert (await future.log_in("alice")).error_code == 0

    run(main())


def test_short_frames_before_authentication_close(
    run: Any, run_broker: Any, sasl_settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Frames of every length that end within their header: each logs one line without a traceback and closes the
    connection."""
    begun = b"\x00\x12\x00\x00\x00\x00\x00\x01\x00"  # ApiVersions, its header cut short

    async def main() -> None:
        async with run_broker(settings=sasl_settings()) as running:
            for length in range(len(begun) + 1):
                client = await running.connect()
                client.send_bytes(length.to_bytes(4, "big") + begun[:length])
                assert await client.is_closed(), length

    run(main())
    assert caplog.records
    assert not [record for record in caplog.records if record.exc_info or record.name == "asyncio"]


def test_a_request_instead_of_a_token_is_answered_and_closes(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings()) as running:
            client = await running.connect()
            await client.handshake("PLAIN")
            response = await client.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9)
            assert response.topics[0].error_code == IllegalSaslState.code
            assert await client.is_closed()

    run(main())


def test_a_mechanism_that_is_not_enabled(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings("PLAIN,SCRAM-SHA-256")) as running:
            client = await running.connect()
            response = await client.handshake("GSSAPI")
            assert response.error_code == UnsupportedSaslMechanism.code
            assert sorted(response.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
            assert await client.is_closed()

    run(main())


def test_raw_tokens_after_the_first_version_of_the_handshake(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings()) as running:
            client = await running.connect()
            await client.handshake("PLAIN", 0)
            assert await client.bare_token(b"\0bob\0bob-secret") == b""
            assert await works(client)
            assert principals(running) == {"User:bob"}
            wrong = await running.connect()
            await wrong.handshake("PLAIN", 0)
            wrong.writer.write(b"\0\0\0\x05\0b\0xx")
            assert await wrong.is_closed()

    run(main())


def test_sasl_requests_without_sasl_are_refused(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            assert (await client.handshake("PLAIN")).error_code == IllegalSaslState.code
            assert (await client.token(b"")).error_code == IllegalSaslState.code
            assert await works(client)

    run(main())


def test_large_frames_are_refused_before_authentication(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings(sasl__server__max__receive__size=1000)) as running:
            client = await running.connect()
            client.writer.write((1001).to_bytes(4, "big"))
            assert await client.is_closed()
            user = await running.as_user("alice")
            assert await works(user)
            await user.create_topic("t")
            assert (await user.produce("t", b"x" * 5000)).error_code == 0

    run(main())


# -- failures


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0x", "Authentication failed: Invalid username or password"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (
            b"alice\0alice-secret",
            "Invalid SASL/PLAIN response: expected 3 tokens, got 2",
        ),
    ],
)
def test_invalid_plain_messages_are_refused(
    run: Any, run_broker: Any, sasl_settings: Any, token: bytes, message: str
) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings()) as running:
            client = await running.connect()
            await client.handshake("PLAIN")
            response = await client.token(token)
            assert (response.error_code, response.error_message) == (SaslAuthenticationFailed.code, message)
            assert await client.is_closed()

    run(main())


def test_a_failed_login_is_answered_after_the_delay(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        clock = ManualClock(1_700_000_000_000)
        settings = sasl_settings(connection__failed__authentication__delay__ms=100)
        async with run_broker(clock=clock, settings=settings) as running:
            client = await running.connect()
            await client.handshake("PLAIN")
            client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.receive_frame(), 0.05)
            clock.advance(100)
            assert (await client.receive()).error_code == SaslAuthenticationFailed.code
            assert await client.is_closed()

    run(main())


def test_secrets_are_neither_logged_nor_described(
    run: Any, run_broker: Any, sasl_settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings(delegation__token__secret__key="token-secret")) as running:
            wrong = await running.connect()
            await wrong.log_in("alice", "guessed-secret")
            client = await running.as_user("admin")
            resource = DescribeConfigsRequest.DescribeConfigsResource
            described = await client.call(
                DescribeConfigsRequest(
                    resources=[
                        resource(resource_type=ConfigResourceType.BROKER, resource_name="1", configuration_keys=None)
                    ],
                    include_synonyms=True,
                ),
                4,
            )
            assert described.results[0].error_code == 0
            assert "-secret" not in str(described)

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert "failed authentication from 127.0.0.1" in caplog.text
    assert "-secret" not in caplog.text


# -- SCRAM


@pytest.mark.parametrize(("mechanism", "number"), [("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 2)])
def test_scram(run: Any, run_broker: Any, sasl_settings: Any, mechanism: str, number: int) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings("PLAIN,SCRAM-SHA-256,SCRAM-SHA-512")) as running:
            admin = await running.as_user("admin")
            await alter_scram(admin, "carol,=x", "pässword", number)
            client = await running.connect()
            assert (await scram(client, "carol,=x", "pässword", mechanism)).error_code == 0
            assert await works(client)
            assert "User:carol,=x" in principals(running)
            hidden = (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + mechanism
            )
            for user, password in (("carol,=x", "wrong"), ("nobody", "x")):
                wrong = await running.connect()
                response = await scram(wrong, user, password, mechanism)
                assert (response.error_code, response.error_message) == (SaslAuthenticationFailed.code, hidden)
                assert await wrong.is_closed()

    run(main())


def test_scram_users_are_kept_across_restarts(run: Any, run_broker: Any, sasl_settings: Any, tmp_path: Any) -> None:
    from ottla.log.files import PosixDisk

    async def main() -> None:
        settings = sasl_settings("PLAIN,SCRAM-SHA-256")
        async with run_broker(disk=PosixDisk(str(tmp_path)), settings=settings) as running:
            await alter_scram(await running.as_user("admin"), "carol", "secret")
        async with run_broker(disk=PosixDisk(str(tmp_path)), settings=settings) as running:
            assert (await scram(await running.connect(), "carol", "secret")).error_code == 0

    run(main())


@pytest.mark.parametrize(
    "messages",
    [
        [b"y,,n=carol,r=abc"],
        [b"n,,n=carol"],
        [b"\xff"],
        [b"n,,n=carol,r=abc", b"c=biws,r=other,p=AAAA"],
        [b"n,,n=carol,r=abc", b"garbage"],
        [b"n,,n=carol,r=abc", b""],
    ],
)
def test_invalid_scram_messages_are_refused(
    run: Any, run_broker: Any, sasl_settings: Any, messages: list[bytes]
) -> None:
    async def main() -> None:
        async with run_broker(settings=sasl_settings("PLAIN,SCRAM-SHA-256")) as running:
            await alter_scram(await running.as_user("admin"), "carol", "secret")
            client = await running.connect()
            await client.handshake(SCRAM)
            for message in messages:
                response = await client.token(message)
            assert response.error_code == SaslAuthenticationFailed.code
            assert await client.is_closed()

    run(main())


# -- sessions


def test_sessions_end_unless_renewed(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        clock = ManualClock(1_700_000_000_000)
        settings = sasl_settings("PLAIN,SCRAM-SHA-256", connections__max__reauth__ms=10_000)
        async with run_broker(clock=clock, settings=settings) as running:
            client, other, lazy = [await running.connect() for _ in range(3)]
            for one in (client, other, lazy):
                assert (await one.log_in("alice")).session_lifetime_ms == 10_000
            clock.advance(9_000)
            assert (await client.log_in("alice")).session_lifetime_ms == 10_000
            assert (await client.handshake("PLAIN")).error_code == IllegalSaslState.code  # not again within a second
            assert await works(client)
            clock.advance(2_000)
            assert await works(client)
            lazy.send(MetadataRequest(topics=[]), 9)
            assert await lazy.is_closed()
            assert (await other.log_in("alice")).error_code == 0  # late, but still in time

    run(main())


def test_a_session_also_ends_for_repeated_requests(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    """Repeated requests use a shortcut, which must not bypass the end of a session."""

    async def main() -> None:
        clock = ManualClock(1_700_000_000_000)
        settings = sasl_settings("PLAIN", connections__max__reauth__ms=10_000)
        async with run_broker(clock=clock, settings=settings) as running:
            client = await running.as_user("alice")
            await client.create_topic("t")
            for _ in range(4):
                assert (await client.produce("t", b"v")).error_code == 0
            clock.advance(10_001)
            with pytest.raises(EOFError):
                await client.produce("t", b"v")

    run(main())


def test_a_renewed_session_keeps_user_and_mechanism(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        settings = sasl_settings("PLAIN,SCRAM-SHA-256", connections__max__reauth__ms=10_000)
        async with run_broker(settings=settings) as running:
            client = await running.as_user("alice")
            response = await client.log_in("bob")
            assert response.error_code == SaslAuthenticationFailed.code
            assert response.error_message == (
                "Cannot change principals during re-authentication from User.alice: User.bob"
            )
            assert await client.is_closed()
            client = await running.as_user("alice")
            assert (await client.handshake(SCRAM)).error_code == 0
            client.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2)
            assert await client.is_closed()

    run(main())


# -- OAUTHBEARER


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer:
    """Issues tokens, with an RSA and an EC key."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    def jwks(self) -> str:
        plain, point = self.rsa.public_key().public_numbers(), self.ec.public_key().public_numbers()
        keys = [
            {"kty": "RSA", "kid": "r", "n": number(plain.n), "e": number(plain.e)},
            {"kty": "EC", "kid": "e", "crv": "P-256", "x": number(point.x), "y": number(point.y)},
        ]
        return json.dumps({"keys": keys})

    def token(self, algorithm: str = "RS256", kid: str | None = None, **claims: object) -> str:
        header = {"alg": algorithm, "kid": kid or {"R": "r", "E": "e"}.get(algorithm[0], "r")}
        now = int(time.time())
        body = {"sub": "alice", "iat": now, "exp": now + 3600, "iss": "https://issuer", "aud": "kafka", **claims}
        body = {name: value for name, value in body.items() if value is not None}
        signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(body).encode())}"
        if algorithm == "RS256":
            signature = self.rsa.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        elif algorithm == "ES256":
            r, s = utils.decode_dss_signature(self.ec.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
            signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        elif algorithm == "HS256":
            # The classic attack: the public key as the secret of a symmetric algorithm.
            signature = hmac.digest(self.jwks().encode(), signed.encode(), "sha256")
        else:
            signature = b""
        return f"{signed}.{b64(signature)}"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def bearer(token: str, identity: str = "") -> bytes:
    return f"n,{'a=' + identity if identity else ''},\x01auth=Bearer {token}\x01\x01".encode()


@pytest.fixture
def oauth_settings(sasl_settings: Any, issuer: Issuer, tmp_path: Any) -> dict[str, object]:
    path = tmp_path / "jwks.json"
    path.write_text(issuer.jwks())
    return {
        **sasl_settings("OAUTHBEARER"),
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{path}",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "kafka,other",
    }


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_signed_tokens_are_accepted(
    run: Any, run_broker: Any, oauth_settings: Any, issuer: Issuer, algorithm: str
) -> None:
    async def main() -> None:
        async with run_broker(settings=oauth_settings) as running:
            client = await running.connect()
            await client.handshake("OAUTHBEARER")
            response = await client.token(bearer(issuer.token(algorithm)))
            assert response.error_code == 0
            assert 3_500_000 < response.session_lifetime_ms <= 3_600_000
            assert principals(running) == {"User:alice"}
            assert await works(client)

    run(main())


@pytest.mark.parametrize(
    "token",
    [
        {"exp": 1},
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"iss": "https://other"},
        {"aud": "nobody"},
        {"aud": None},
        {"aud": [["kafka"], 1]},
        {"sub": "\ud800"},
        {"nbf": 32503680000},
        {"kid": "unknown"},
        {"algorithm": "none"},
        {"algorithm": "HS256"},
        {"algorithm": "RS256", "kid": "e"},
    ],
    ids=str,
)
def test_invalid_tokens_are_refused(
    run: Any, run_broker: Any, oauth_settings: Any, issuer: Issuer, token: dict[str, Any]
) -> None:
    async def main() -> None:
        async with run_broker(settings=oauth_settings) as running:
            client = await running.connect()
            await client.handshake("OAUTHBEARER")
            response = await client.token(bearer(issuer.token(**token)))
            assert (response.error_code, response.auth_bytes) == (0, b'{"status":"invalid_token"}')
            response = await client.token(b"\x01")
            assert (response.error_code, response.error_message) == (
                SaslAuthenticationFailed.code,
                '{"status":"invalid_token"}',
            )
            assert await client.is_closed()
            assert not principals(running) & {"User:alice"}
            await running.settle()

    run(main())


def test_a_changed_token_is_refused(run: Any, run_broker: Any, oauth_settings: Any, issuer: Issuer) -> None:
    async def main() -> None:
        async with run_broker(settings=oauth_settings) as running:
            head, _, signature = issuer.token().split(".")
            now = int(time.time())
            claims = {"sub": "admin", "iat": now, "exp": now + 60, "iss": "https://issuer", "aud": "kafka"}
            for token in (f"{head}.{b64(json.dumps(claims).encode())}.{signature}", "a.b", "a.b.c", "....."):
                client = await running.connect()
                await client.handshake("OAUTHBEARER")
                assert b"invalid_token" in (await client.token(bearer(token))).auth_bytes

    run(main())


def test_new_keys_are_read_when_a_token_names_one(
    run: Any, run_broker: Any, oauth_settings: Any, issuer: Issuer, tmp_path: Any
) -> None:
    async def main() -> None:
        path = tmp_path / "jwks.json"
        path.write_text('{"keys": []}')
        async with run_broker(settings=oauth_settings) as running:
            client = await running.connect()
            await client.handshake("OAUTHBEARER")
            path.write_text(issuer.jwks())
            assert b"invalid_token" in (await client.token(bearer(issuer.token()))).auth_bytes
            await asyncio.gather(*running.broker.security._tasks)
            assert (await client.token(bearer(issuer.token()))).error_code == 0

    run(main())


def test_an_internal_error_refuses_the_login(
    run: Any,
    run_broker: Any,
    sasl_settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(self: Any, token: bytes) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(Plain, "evaluate", fails)

    async def main() -> None:
        async with run_broker(settings=sasl_settings()) as running:
            client = await running.connect()
            assert (await client.log_in("alice")).error_code == SaslAuthenticationFailed.code
            assert await client.is_closed()

    run(main())
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("binding", [b"y,,", b"p=tls-unique,,abc", b"n,a=bob,"])
def test_scram_refuses_a_channel_binding_that_was_not_agreed_on(
    run: Any, run_broker: Any, sasl_settings: Any, binding: bytes
) -> None:
    """The last message repeats how the first one began; if it does not, one of them was changed on the way."""

    async def main() -> None:
        async with run_broker(settings=sasl_settings("PLAIN,SCRAM-SHA-256")) as running:
            await alter_scram(await running.as_user("admin"), "carol", "secret")
            assert (await scram(await running.connect(), "carol", "secret")).error_code == 0
            refused = await scram(await running.connect(), "carol", "secret", binding=binding)
            assert refused.error_code == SaslAuthenticationFailed.code

    run(main())


def test_very_long_scram_messages_are_refused_unparsed() -> None:
    def never(_: str) -> Any:
        raise AssertionError

    conversation = Scram("sha256", never, never, lambda: "nonce")
    with pytest.raises(Refused, match="too long"):
        conversation.evaluate(b"n,,n=" + b"a" * 500_000 + b",r=b")


def test_many_peers_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    refusals = RateLimitedLog(logging.getLogger("ottla.test"), clock)
    for peer in range(1000):
        for _ in range(10):
            refusals.warning(str(peer), "refused %d", peer)
    assert len(caplog.messages) == 100
    clock.advance(10_000)
    refusals.warning("another", "refused")
    assert caplog.messages[-1] == "refused (and 4900 more like it before)"


def test_unsigned_tokens_are_accepted_only_if_configured(
    run: Any, run_broker: Any, sasl_settings: Any, issuer: Issuer
) -> None:
    key = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"

    async def main(line: str) -> None:
        async with run_broker(settings={**sasl_settings("OAUTHBEARER"), key: line}) as running:
            client = await running.connect()
            await client.handshake("OAUTHBEARER")
            token = issuer.token("none", scope=["a", "b"])
            assert (await client.token(bearer(token, "alice"))).error_code == 0
            other = await running.connect()
            await other.handshake("OAUTHBEARER")
            refused = await other.token(bearer(issuer.token("none")))
            assert refused.auth_bytes == b'{"status":"insufficient_scope", "scope":"a"}'

    run(main(f'{module} unsecuredValidatorRequiredScope="a";'))
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        run(main(f"{module};"))


# -- delegation tokens


@pytest.fixture
def token_settings(sasl_settings: Any) -> dict[str, object]:
    return dict(
        sasl_settings(
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            delegation__token__secret__key="key",
            delegation__token__max__lifetime__ms=100_000,
            delegation__token__expiry__time__ms=10_000,
        )
    )


def test_a_delegation_token_is_created_renewed_and_expired(run: Any, run_broker: Any, token_settings: Any) -> None:
    async def main() -> None:
        clock = ManualClock(1_700_000_000_000)
        async with run_broker(clock=clock, settings=token_settings) as running:
            alice, bob = await running.as_user("alice"), await running.as_user("bob")
            renewer = CreateDelegationTokenRequest.CreatableRenewers(principal_type="User", principal_name="bob")
            made = await alice.call(CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1), 3)
            now = clock.now_ms()
            assert (made.error_code, made.principal_name, len(made.hmac)) == (0, "alice", 64)
            times = (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms)
            assert times == (now, now + 10_000, now + 100_000)
            password = base64.b64encode(made.hmac).decode()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                user = await running.connect()
                response = await scram(user, made.token_id, password, mechanism, ",tokenauth=true")
                assert (response.error_code, response.session_lifetime_ms) == (0, 10_000)
                assert await works(user)
                # A token cannot create tokens.
                denied = await user.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
                assert denied.error_code == DelegationTokenRequestNotAllowed.code
            assert principals(running) == {"User:alice", "User:bob"}
            clock.advance(5_000)
            renewed = await bob.call(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1), 2)
            assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, now + 15_000)
            described = await bob.call(DescribeDelegationTokenRequest(owners=None), 3)
            assert [token.token_id for token in described.tokens] == [made.token_id]
            assert (await bob.call(DescribeDelegationTokenRequest(owners=[]), 3)).tokens == []
            clock.advance(10_001)
            expired = await alice.call(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1), 2)
            assert expired.error_code == DelegationTokenExpired.code
            late = await running.connect()
            response = await scram(late, made.token_id, password, SCRAM, ",tokenauth=true")
            assert response.error_code == SaslAuthenticationFailed.code
            ended = await alice.call(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
            assert ended.error_code == 0
            gone = await alice.call(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
            assert gone.error_code == DelegationTokenNotFound.code

    run(main())


def test_a_token_of_a_principal_that_is_not_a_user_cannot_log_in(
    run: Any, run_broker: Any, token_settings: Any
) -> None:
    """Sessions belong to users: a token of Robot:admin must not open a session for User:admin."""

    async def main() -> None:
        async with run_broker(settings=token_settings) as running:
            alice = await running.as_user("alice")
            request = CreateDelegationTokenRequest(
                owner_principal_type="Robot", owner_principal_name="admin", renewers=[], max_lifetime_ms=-1
            )
            made = await alice.call(request, 3)
            assert (made.error_code, made.principal_type) == (0, "Robot")
            login = await running.connect()
            password = base64.b64encode(made.hmac).decode()
            refused = await scram(login, made.token_id, password, SCRAM, ",tokenauth=true")
            assert refused.error_code == SaslAuthenticationFailed.code
            assert principals(running) == {"User:alice"}

    run(main())


def test_tokens_of_other_users_and_disabled_tokens_are_refused(
    run: Any, run_broker: Any, token_settings: Any, sasl_settings: Any
) -> None:
    async def main() -> None:
        async with run_broker(settings=token_settings) as running:
            alice, bob = await running.as_user("alice"), await running.as_user("bob")
            made = await alice.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=1000), 3)
            assert made.max_timestamp_ms - made.issue_timestamp_ms == 1000
            response = await bob.call(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1), 2)
            assert (response.error_code, response.expiry_timestamp_ms) == (DelegationTokenOwnerMismatch.code, -1)
            response = await bob.call(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
            assert response.error_code == DelegationTokenOwnerMismatch.code
            strange = CreateDelegationTokenRequest.CreatableRenewers(principal_type="Group", principal_name="g")
            response = await bob.call(CreateDelegationTokenRequest(renewers=[strange], max_lifetime_ms=-1), 3)
            assert response.error_code == InvalidPrincipalType.code
        async with run_broker(settings=sasl_settings()) as running:
            alice = await running.as_user("alice")
            assert (
                await alice.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            ).error_code == DelegationTokenAuthDisabled.code
        async with run_broker() as running:
            client = await running.connect()
            assert (
                await client.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            ).error_code == DelegationTokenRequestNotAllowed.code

    run(main())


# -- settings


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI is not served here"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": ""}, "plain.sasl.jaas.config must define the users"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": 'X required p="hunter2"'}, "semicolon"),
        ({"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "a.B"}, "is a JVM class"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(
    run: Any, run_broker: Any, sasl_settings: Any, more: dict[str, object], words: str
) -> None:
    async def main() -> None:
        async with run_broker(settings={**sasl_settings(), **more}):
            pytest.fail("it started")

    with pytest.raises(ConfigError, match=words) as caught:
        run(main())
    assert "hunter2" not in str(caught.value)


def test_jaas_lines_are_parsed() -> None:
    module = parse_jaas(
        ' org.x.PlainLoginModule   Required\n username="adm\\"in" password=\'p;=w\'\n user_a=b serviceName="kafka" ; ',
        "k",
    )
    assert module.short_name == "PlainLoginModule"
    assert module.options == {"username": 'adm"in', "password": "p;=w", "user_a": "b", "serviceName": "kafka"}
    for wrong in ("", "X;", "X required", "X required a;", "X required a=;", "X maybe a=b;", 'X required "a=b;'):
        with pytest.raises(ConfigError):
            parse_jaas(wrong, "k")


def test_each_listener_has_its_own_users(run: Any, run_broker: Any) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"

    async def main() -> None:
        settings = {
            "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0,OPEN://127.0.0.1:0",
            "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT,OPEN:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "connection.failed.authentication.delay.ms": 0,
            "listener.name.in.plain.sasl.jaas.config": f'{module} user_alice="alice-secret";',
            "listener.name.out.plain.sasl.jaas.config": f'{module} user_bob="bob-secret";',
        }
        async with run_broker(settings=settings) as running:
            await running.as_user("alice", 0)
            await running.as_user("bob", 1)
            stranger = await running.connect(1)
            assert (await stranger.log_in("alice")).error_code == SaslAuthenticationFailed.code
            assert await works(await running.connect(2))

    run(main())


def test_sasl_inside_tls(run: Any, run_broker: Any, certificates: Any, sasl_settings: Any) -> None:
    async def main() -> None:
        settings = {
            **certificates.settings(ssl__client__auth="required"),
            "listeners": "SASL_SSL://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": sasl_settings()[
                "listener.name.sasl_plaintext.plain.sasl.jaas.config"
            ],
        }
        async with run_broker(settings=settings) as running:
            # A client certificate is requested only if the listener's own settings say so (KIP-684).
            client = await running.connect(context=certificates.context())
            assert (await client.log_in("alice")).error_code == 0
            await client.create_topic("t")
            assert (await client.produce("t", b"x" * 500_000)).error_code == 0
            response = await client.fetch("t")
            assert len(response.responses[0].partitions[0].records) > 500_000
            wrong = await running.connect(context=certificates.context())
            assert (await wrong.log_in("alice", "x")).error_code == SaslAuthenticationFailed.code
            assert await wrong.is_closed()
        async with run_broker(settings={**settings, "listener.name.sasl_ssl.ssl.client.auth": "required"}) as running:
            nameless = await running.connect(context=certificates.context())
            assert await nameless.is_closed()
            known = await running.connect(context=certificates.context(certificates.client("cert")))
            assert (await known.log_in("alice")).error_code == 0
            assert "User:alice" in principals(running)

    run(main())


def test_the_handshake_request_comes_from_the_registry(run: Any, run_broker: Any, sasl_settings: Any) -> None:
    """A handshake of a version from the future closes, like any request with an unknown version."""

    async def main() -> None:
        async with run_broker(settings=sasl_settings()) as running:
            client = await running.connect()
            frame = bytearray(client.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
            frame[6:8] = b"\0\x63"
            client.writer.write(bytes(frame))
            assert await client.is_closed()

    run(main())
