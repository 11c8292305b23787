"""Frames: versions, headers, order, and everything malformed."""

import socket
import struct

import pytest

from ottla.enums import OffsetTimestamp
from ottla.errors import InvalidRequest, UnsupportedVersion
from ottla.wire.frames import encode_request
from ottla.wire.messages import ApiVersionsRequest, ApiVersionsResponse, FetchRequest, MetadataRequest
from support.batches import batch, now_ms
from support.wire import Wire

API_VERSIONS = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0")


@pytest.mark.parametrize("version", range(5))
def test_api_versions(version: int, wire: Wire) -> None:
    answer = wire.call(API_VERSIONS, version)
    assert answer.error_code == 0
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert ranges[18] == (0, 4)
    assert ranges[0] == (0, 13)
    assert ranges[3] == (0, 13)
    assert ranges[1][1] == 18
    assert ranges[2][1] == 11
    assert [api.api_key for api in answer.api_keys] == sorted(ranges)
    if version >= 3:
        finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        assert finalized["metadata.version"] == 30
        supported = {feature.name for feature in answer.supported_features}
        # v3 leaves out the features whose minimum is 0, because its readers do not support them.
        assert ("group.version" in supported) == (version >= 4)


@pytest.mark.parametrize("version", [5, 90, 32767])
def test_an_unknown_version_of_api_versions(version: int, wire: Wire) -> None:
    wire.send_bytes(frame(struct.pack(">hhih", 18, version, 77, -1) + b"\0\0\0\0"))
    answer = wire.receive_frame()
    assert struct.unpack(">i", answer[:4]) == (77,)
    body = ApiVersionsResponse.decode(memoryview(answer)[4:], 0)
    assert body.error_code == UnsupportedVersion.code
    assert [(api.api_key, api.min_version, api.max_version) for api in body.api_keys] == [(18, 0, 4)]
    # A client tries again on the same connection.
    assert wire.call(API_VERSIONS, 4).error_code == 0


@pytest.mark.parametrize("name", ["", "white space", "-dash", "ends-"])
def test_a_bad_software_name(name: str, wire: Wire) -> None:
    answer = wire.call(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert answer.error_code == InvalidRequest.code


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(struct.pack(">hhih", 999, 0, 1, -1)), id="unknown-key"),
        pytest.param(frame(struct.pack(">hhih", -1, 0, 1, -1)), id="negative-key"),
        pytest.param(frame(struct.pack(">hhih", 3, 99, 1, -1)), id="unknown-version"),
        pytest.param(frame(struct.pack(">hhih", 3, -1, 1, -1)), id="negative-version"),
        pytest.param(frame(struct.pack(">hh", 3, 1)), id="short-header"),
        pytest.param(frame(struct.pack(">hhih", 3, 1, 1, 500)), id="client-id-beyond-the-end"),
        pytest.param(frame(struct.pack(">hhihi", 3, 1, 1, -1, 2_000_000_000)), id="array-beyond-the-end"),
        pytest.param(frame(struct.pack(">hhih", 3, 1, 1, -1)), id="no-body"),
        pytest.param(struct.pack(">i", -1), id="negative-size"),
        pytest.param(struct.pack(">i", 104_857_601), id="oversized"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, id="tls"),
    ],
)
def test_malformed_frames_close_their_connection_only(data: bytes, wire: Wire, connect) -> None:
    bad = connect()
    bad.send_bytes(data)
    assert bad.is_closed()
    assert wire.call(API_VERSIONS, 4).error_code == 0


def test_a_frame_may_arrive_byte_by_byte(wire: Wire) -> None:
    for byte in frame(struct.pack(">hhih", 18, 0, 5, -1)):
        wire.send_bytes(bytes([byte]))
    assert wire.receive_frame()[:4] == struct.pack(">i", 5)


@pytest.mark.parametrize(
    ("request_", "version"), [(MetadataRequest(topics=[]), 1), (MetadataRequest(topics=[]), 13), (API_VERSIONS, 3)]
)
def test_bytes_behind_a_request_are_ignored(request_, version: int, wire: Wire) -> None:
    """librdkafka sends three extra bytes after a Metadata request for all topics."""
    body = encode_request(request_, version, 9, "wire")[4:]
    wire.send_bytes(frame(body + b"\1\0\0"))
    assert wire.receive_frame()[:4] == struct.pack(">i", 9)


def test_a_client_may_disconnect_in_the_middle_of_a_frame(wire: Wire, connect) -> None:
    leaver = connect()
    leaver.send_bytes(struct.pack(">i", 5000) + b"\0\3")
    leaver.close()
    assert wire.call(API_VERSIONS, 4).error_code == 0


@pytest.mark.parametrize("client_id", [None, "", "a" * 200, "\u00fcber"])
def test_client_ids(client_id: str | None, connect) -> None:
    one = connect(client_id=client_id)
    assert one.call(API_VERSIONS, 3).error_code == 0
    assert one.call(MetadataRequest(topics=[]), 12).brokers
    assert one.call(MetadataRequest(topics=[]), 1).brokers


def test_answers_come_in_the_order_of_the_requests(topic: str, wire: Wire, connect) -> None:
    """A waiting fetch delays later answers, and another connection wakes it."""
    waiting = wire.fetch_request([(topic, 0, 0)], max_wait_ms=240_000)
    wire.send(waiting, 12)
    wire.send(API_VERSIONS, 3)
    wire.send(MetadataRequest(topics=[]), 12)
    wire.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        wire.socket.recv(1, socket.MSG_PEEK)
    wire.socket.settimeout(30)
    connect().produce(topic, batch(b"x"))
    assert wire.receive().responses[0].partitions[0].records
    assert wire.receive().api_keys
    assert wire.receive().brokers


def test_many_requests_at_once_are_all_answered(topic: str, wire: Wire) -> None:
    for _ in range(200):
        wire.send(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 11)
        wire.send(API_VERSIONS, 0)
    for _ in range(200):
        assert wire.receive().error_code == 0
        assert wire.receive().error_code == 0
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 0
    assert now_ms()
