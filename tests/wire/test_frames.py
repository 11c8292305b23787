"""Headers, with their quirks."""

from __future__ import annotations

import io
from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32
from tests.support.frames import response_frame

from ottla.wire.frames import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.messages import (
    REQUESTS,
    RESPONSES,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from ottla.wire.primitives import MalformedMessage


def kio_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    header = KioHeaderV2 if REQUESTS[api_key].is_flexible(version) else KioHeaderV1
    out = io.BytesIO()
    entity_writer(header)(  # type: ignore[type-var]
        out,
        header(
            request_api_key=i16(api_key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        ),
    )
    return out.getvalue()


@pytest.mark.parametrize("client_id", ["app", "", None, "größe"])
def test_request_headers_of_every_api(client_id: str | None) -> None:
    for api_key, message in REQUESTS.items():
        for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
            encoded = encode_request_header(api_key, version, 77, client_id)
            assert encoded == kio_header(api_key, version, 77, client_id)
            header, position = decode_request_header(encoded + b"body")
            assert header == RequestHeader(api_key, version, 77, client_id)
            assert position == len(encoded)


def test_header_versions() -> None:
    assert request_header_version(18, 2) == 1
    assert request_header_version(18, 3) == 2
    assert response_header_version(18, 3) == 0, "an ApiVersions response has no tags in its header"
    assert response_header_version(18, 4) == 0
    assert response_header_version(1, 11) == 0
    assert response_header_version(1, 12) == 1
    assert request_header_version(17, 1) == 1
    assert request_header_version(7, 0) == 0, "ControlledShutdown v0 had no client id"


def test_an_unknown_version_of_a_known_api_has_a_readable_header() -> None:
    """A client of the future asks ApiVersions v99 with header v2, and gets an answer."""
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x05\x00\x03app\x00"
    header, position = decode_request_header(frame)
    assert header == RequestHeader(18, 99, 5, "app")
    assert position == len(frame)
    assert response_header_version(18, 99) == 0


def test_an_unknown_api_has_a_readable_header() -> None:
    header, _ = decode_request_header(b"\x7f\xff\x00\x00\x00\x00\x00\x05\x00\x03app")
    assert header == RequestHeader(0x7FFF, 0, 5, "app")


def test_controlled_shutdown_header() -> None:
    header, position = decode_request_header(b"\x00\x07\x00\x00\x00\x00\x00\x05")
    assert header == RequestHeader(7, 0, 5, None)
    assert position == 8
    assert decode_request_header(b"\x00\x07\x00\x00\x00\x00\x00\x05\x00\x00\x00\x01")[1] == 8


def test_tags_in_headers_are_skipped() -> None:
    plain = encode_request_header(18, 3, 5, "app")
    header, position = decode_request_header(plain[:-1] + b"\x01\x07\x02xy" + b"rest")
    assert header.client_id == "app"
    assert position == len(plain) + 4
    assert decode_response_header(b"\x00\x00\x00\x05\x01\x07\x02xyrest", 1) == (5, 9)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x12\x00\x03\x00\x00\x00",
        b"\x00\x12\x00\x03\x00\x00\x00\x05",  # no client id
        b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x05ab",  # a client id cut short
        b"\x00\x12\x00\x03\x00\x00\x00\x05\xff\xfe",  # a negative length that is not null
        b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x00",  # no tags
        b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x00\x01\x00\x09",  # a tag beyond the end
        b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x00\xff\xff\xff\xff\xff\xff",  # a varint without end
    ],
)
def test_malformed_headers(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_request_header(data)


def test_invalid_utf8_in_a_client_id_is_replaced() -> None:
    header, _ = decode_request_header(b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x02a\xff\x00")
    assert header.client_id == "a\ufffd"


def test_malformed_response_headers() -> None:
    for data, version in ((b"\x00\x00", 0), (b"\x00\x00\x00\x01", 1), (b"\x00\x00\x00\x01\x01\x01\x09", 1)):
        with pytest.raises(MalformedMessage):
            decode_response_header(data, version)


def test_a_whole_request() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    frame = encode_request(message, 4, correlation_id=9, client_id="c")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(frame[4:])
    assert header == RequestHeader(12, 4, 9, "c")
    assert HeartbeatRequest.decode(frame[4 + position :], 4) == message


def test_a_whole_response() -> None:
    frame = response_frame(HeartbeatResponse(error_code=27), 4, correlation_id=9)
    assert frame == b"\x00\x00\x00\x0c" + b"\x00\x00\x00\x09\x00" + b"\x00\x00\x00\x00\x00\x1b\x00"
    assert decode_response_header(frame[4:], 1) == (9, 5)


def test_records_stay_objects_in_a_response() -> None:
    class Region:
        def __len__(self) -> int:
            return 500

    region = Region()
    topic = FetchResponse.FetchableTopicResponse(partitions=[FetchResponse.PartitionData(records=region)])
    parts: list[Any] = []
    FetchResponse.encoder(17)(FetchResponse(responses=[topic]), parts)
    assert sum(part is region for part in parts) == 1


def test_an_api_versions_response_has_header_v0() -> None:
    frame = response_frame(ApiVersionsResponse(), 3, correlation_id=9)
    assert ApiVersionsResponse.decode(frame[8:], 3) == ApiVersionsResponse()
    assert ApiVersionsRequest.API_KEY == ApiVersionsResponse.API_KEY == 18


def test_requests_and_responses_belong_together() -> None:
    assert list(REQUESTS) == list(RESPONSES)
    for api_key in REQUESTS:
        request, response = REQUESTS[api_key], RESPONSES[api_key]
        assert request.API_KEY == response.API_KEY == api_key
        assert (request.MIN_VERSION, request.MAX_VERSION) == (response.MIN_VERSION, response.MAX_VERSION)
        assert request.STABLE_VERSION == response.STABLE_VERSION
        assert request.FLEXIBLE == response.FLEXIBLE
