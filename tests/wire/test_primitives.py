"""Varints and UUID text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.primitives import (
    ZERO_UUID,
    MalformedMessage,
    RunOf,
    decode_uvarint,
    encode_uvarint,
    uuid_from_base64,
    uuid_to_base64,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**21 - 1, "ffff7f"),
        (2**21, "80808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varints(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_uvarint(value) == data
    assert decode_uvarint(b"--" + data + b"--", 2) == (value, 2 + len(data))


def test_varints_without_end() -> None:
    with pytest.raises(MalformedMessage):
        decode_uvarint(b"\x80" * 6, 0)
    with pytest.raises(IndexError):
        decode_uvarint(b"\x80", 0)


@given(st.binary(min_size=16, max_size=16))
def test_uuid_text(value: bytes) -> None:
    text = uuid_to_base64(value)
    assert len(text) == 22
    assert uuid_from_base64(text) == value


def test_uuid_text_of_kafka() -> None:
    assert uuid_to_base64(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_base64(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_base64("-_-_-_-_-_-_-_-_-_-_-w") == bytes.fromhex("fbffbf") * 5 + b"\xfb"


@pytest.mark.parametrize("text", ["", "short", "A" * 25, "A" * 23])
def test_bad_uuid_text(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_base64(text)


def test_only_short_runs_are_kept() -> None:
    unpack = RunOf("unpack_from", "i")
    assert unpack[3](bytes(12)) == (0, 0, 0)
    assert len(unpack[10_000](bytes(40_000))) == 10_000
    assert list(unpack) == [3]
    assert RunOf("unpack_from", "16s")[2](bytes(32)) == (bytes(16), bytes(16))
    assert RunOf("pack", "h", "B")[2](2, 1, -1) == b"\x02\x00\x01\xff\xff"
