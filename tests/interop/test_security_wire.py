"""SASL and quotas frame by frame: the order of requests, the answers, and which clients have to wait. On both
brokers."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import (
    DelegationTokenRequestNotAllowed,
    IllegalSaslState,
    SaslAuthenticationFailed,
    ThrottlingQuotaExceeded,
    UnsupportedSaslMechanism,
)
from ottla.records.batch import Record, build_batch
from ottla.wire import messages as m
from support.interop.secured import Secured
from support.wire import Wire


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.jvm)])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder: Path = tmp_path_factory.mktemp("wire") / request.param
    more = {
        "allow.everyone.if.no.acl.found": "true",
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "6000",
    }
    broker = Secured(request.param, folder, **more)
    yield broker
    broker.stop()


@pytest.fixture
def sasl(secured: Secured) -> Iterator[Wire]:
    with Wire(("127.0.0.1", secured.addresses["SASL_PLAINTEXT"])) as wire:
        yield wire


@pytest.fixture
def plain(secured: Secured) -> Iterator[Wire]:
    with secured.wire() as wire:
        yield wire


def handshake(wire: Wire, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return wire.call(m.SaslHandshakeRequest(mechanism=mechanism), version)


def token(wire: Wire, content: bytes, version: int = 2) -> Any:
    return wire.call(m.SaslAuthenticateRequest(auth_bytes=content), version)


def versions() -> Any:
    return m.ApiVersionsRequest(client_software_name="wire", client_software_version="1")


def metadata() -> Any:
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")])


def test_another_request_before_authentication_closes(sasl: Wire) -> None:
    sasl.send(metadata(), 9)
    assert sasl.is_closed()


def test_a_token_without_a_handshake_closes(sasl: Wire) -> None:
    sasl.send(m.SaslAuthenticateRequest(auth_bytes=b""), 2)
    assert sasl.is_closed()


def test_a_second_api_versions_closes(sasl: Wire) -> None:
    assert sasl.call(versions(), 3).error_code == 0
    sasl.send(versions(), 3)
    assert sasl.is_closed()


def test_api_versions_from_the_future_is_answered(sasl: Wire) -> None:
    sasl.send_bytes(b"\0\0\0\x0b\0\x12\0\x63\0\0\0\1\xff\xff\0")
    assert len(sasl.receive_frame()) > 4
    assert sasl.call(versions(), 3).error_code == 0
    assert handshake(sasl).error_code == 0


def test_a_request_instead_of_a_token_is_refused(sasl: Wire) -> None:
    handshake(sasl)
    assert sasl.call(metadata(), 9).topics[0].error_code == IllegalSaslState.code
    assert sasl.is_closed()


def test_a_mechanism_that_is_not_enabled(sasl: Wire) -> None:
    response = handshake(sasl, "GSSAPI")
    assert response.error_code == UnsupportedSaslMechanism.code
    assert sorted(response.mechanisms) == ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert sasl.is_closed()


def test_raw_tokens(sasl: Wire) -> None:
    handshake(sasl, version=0)
    content = b"\0alice\0alice-secret"
    sasl.send_bytes(len(content).to_bytes(4, "big") + content)
    assert sasl.receive_frame() == b""
    assert sasl.call(metadata(), 9).error_code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_refused_passwords(sasl: Wire, content: bytes, message: str) -> None:
    handshake(sasl)
    started = time.monotonic()
    response = token(sasl, content)
    assert (response.error_code, response.error_message) == (SaslAuthenticationFailed.code, message)
    assert time.monotonic() - started > 0.09  # connection.failed.authentication.delay.ms
    assert sasl.is_closed()


@pytest.mark.parametrize("content", [b"n,,n=nobody,r=abc", b"y,,n=alice,r=abc", b"garbage", b"\xff\xfe"])
def test_refused_scram(sasl: Wire, content: bytes) -> None:
    handshake(sasl, "SCRAM-SHA-256")
    response = token(sasl, content)
    assert (response.error_code, response.error_message) == (
        SaslAuthenticationFailed.code,
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
    )


def test_refused_bearer_token(sasl: Wire) -> None:
    handshake(sasl, "OAUTHBEARER")
    response = token(sasl, b"n,,\x01auth=Bearer abc.def.\x01\x01")
    assert (response.error_code, response.auth_bytes) == (0, b'{"status":"invalid_token"}')
    response = token(sasl, b"\x01")
    assert (response.error_code, response.error_message) == (
        SaslAuthenticationFailed.code,
        '{"status":"invalid_token"}',
    )


def test_sasl_requests_on_a_plain_listener(plain: Wire) -> None:
    assert handshake(plain).error_code == IllegalSaslState.code
    response = token(plain, b"")
    assert response.error_code == IllegalSaslState.code
    assert response.error_message == "SaslAuthenticate request received after successful authentication"
    made = plain.call(m.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
    assert (made.error_code, made.issue_timestamp_ms, made.expiry_timestamp_ms) == (
        DelegationTokenRequestNotAllowed.code,
        -1,
        -1,
    )


def test_sessions_end_and_are_renewed(sasl: Wire, secured: Secured) -> None:
    handshake(sasl)
    assert token(sasl, b"\0alice\0alice-secret").session_lifetime_ms == 6000
    with secured.wire("alice") as lazy:
        time.sleep(3)
        assert handshake(sasl).error_code == 0
        assert token(sasl, b"\0alice\0alice-secret").session_lifetime_ms == 6000
        assert handshake(sasl).error_code == IllegalSaslState.code  # not again within a second
        time.sleep(4)
        assert sasl.call(metadata(), 9).error_code == 0
        lazy.send(metadata(), 9)
        assert lazy.is_closed()


def test_a_renewed_session_keeps_its_user(secured: Secured) -> None:
    with secured.wire("alice") as wire:
        assert handshake(wire).error_code == 0
        response = token(wire, b"\0bob\0bob-secret")
        assert (response.error_code, response.error_message) == (
            SaslAuthenticationFailed.code,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        )
        assert wire.is_closed()
    with secured.wire("alice") as wire:
        assert handshake(wire, "SCRAM-SHA-256").error_code == 0
        wire.send(m.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2)
        assert wire.is_closed()


def set_quota(wire: Wire, key: str, value: float | None, **entity: str) -> None:
    part = m.AlterClientQuotasRequest.EntityData
    entry = m.AlterClientQuotasRequest.EntryData(
        entity=[part(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[m.AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    assert wire.call(m.AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code == 0
    time.sleep(0.5)  # Apache Kafka's brokers learn about it in the background


def test_throttled_produce_and_fetch(plain: Wire, secured: Secured) -> None:
    topic = plain.create_topic("quota-topic")
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * 12_000)])
    set_quota(plain, "producer_byte_rate", 1000, client_id="slow")
    set_quota(plain, "consumer_byte_rate", 1000, client_id="slow")
    with secured.wire(client_id="slow") as slow:
        data = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
        response = slow.call(
            m.ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
            ),
            9,
        )
        assert response.responses[0].partition_responses[0].error_code == 0
        # 12 KB in the first second count as 1.2 KB/s over ten seconds; an excess of a fifth is two seconds.
        assert 1900 < response.throttle_time_ms < 2400
        started = time.monotonic()
        fetched = slow.call(slow.fetch_request([(topic, 0, 0)]), 12)
        assert time.monotonic() - started > 1.7
        assert fetched.responses == []
        assert 1900 < fetched.throttle_time_ms < 2400


def test_too_many_topic_changes_are_throttled(plain: Wire, secured: Secured) -> None:
    set_quota(plain, "controller_mutation_rate", 1, client_id="busy")
    new = [
        m.CreateTopicsRequest.CreatableTopic(name=f"many-{n}", num_partitions=count, replication_factor=1)
        for n, count in enumerate((5, 9, 1))
    ]
    with secured.wire(client_id="busy") as busy:
        response = busy.call(m.CreateTopicsRequest(topics=new), 7)
        assert {t.name: t.error_code for t in response.topics} == {
            "many-0": 0,
            "many-1": 0,
            "many-2": ThrottlingQuotaExceeded.code,
        }
        assert 2500 < response.throttle_time_ms <= 3000
        started = time.monotonic()
        busy.call(versions(), 3)
        assert time.monotonic() - started > 2.3
