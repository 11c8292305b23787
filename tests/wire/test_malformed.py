"""Bytes that are not a message: cut short, too long, changed. Decoding raises MalformedMessage, and costs little."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire import messages, stored
from ottla.wire.decoding import compile_decoder
from ottla.wire.frames import decode_request_header
from ottla.wire.interpreting import interpreting_decoder
from ottla.wire.messages import (
    EMBEDDED,
    REQUESTS,
    RESPONSES,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    MetadataRequest,
    ProduceRequest,
)
from ottla.wire.primitives import ELEMENTS_MAX, STRING_BYTES_MAX, MalformedMessage
from ottla.wire.schema import Message

ALL: dict[str, type[Message]] = {
    cls.__name__: cls
    for cls in [
        *REQUESTS.values(),
        *RESPONSES.values(),
        *(getattr(messages, name) for name in EMBEDDED),
        *stored._messages(*stored.MODULES),
    ]
}
WHOLE_CUTS = 200
FUZZED_CHANGES = 40
# The limits for decoding a frame of a few hundred bytes with a count in the billions.
PEAK_BYTES = 200_000


def telling_versions(cls: type[Message]) -> list[int]:
    """The oldest, the newest, and those on both sides of the step to compact lengths."""
    step = cls.FLEXIBLE[0]
    return sorted(
        {cls.MIN_VERSION, cls.MAX_VERSION, *range(max(cls.MIN_VERSION, step - 1), min(step, cls.MAX_VERSION) + 1)}
    )


@pytest.mark.parametrize("name", sorted(ALL))
def test_cut_short_and_too_long(name: str, samples: Any) -> None:
    cls = ALL[name]
    for version in telling_versions(cls):
        chance = samples.random(cls, version)
        encoded = samples.make(cls, version, chance).encode(version)
        cls.decode(encoded, version)
        cuts = range(len(encoded))
        if len(cuts) > WHOLE_CUTS:
            cuts = chance.sample(cuts, WHOLE_CUTS)
        for cut in cuts:
            with pytest.raises(MalformedMessage):
                cls.decode(encoded[:cut], version)
        with pytest.raises(MalformedMessage):
            cls.decode(encoded + b"\x00", version)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("length", "is_taken"), [(STRING_BYTES_MAX, True), (STRING_BYTES_MAX + 1, False)])
def test_strings_in_requests_end_where_kafka_ends_them(length: int, is_taken: bool, compiled: bool) -> None:
    """In versions with varints a length could be larger. Kafka refuses such a request."""
    requests: list[tuple[Message, int]] = [
        (FindCoordinatorRequest(coordinator_keys=["k" * length]), 4),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="k" * length)]), 12),
        (HeartbeatRequest(group_id="k" * length, member_id="", group_instance_id=None), 4),
    ]
    for request, version in requests:
        cls = type(request)
        encoded = request.encode(version)
        decode = (compile_decoder if compiled else interpreting_decoder)(cls, version)
        if is_taken:
            assert decode(encoded, 0)[0] == request
            continue
        with pytest.raises(MalformedMessage, match="is longer than 32767 bytes"):
            decode(encoded, 0)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_request_has_a_bound_on_its_elements(compiled: bool) -> None:
    """The bound covers all arrays together, including nested ones: the bytes on the wire say little about the memory of
    elements."""
    name = FindCoordinatorRequest(coordinator_keys=[""] * 100)
    partition = ProduceRequest.PartitionProduceData(index=0, records=b"")
    nested = ProduceRequest(
        topic_data=[ProduceRequest.TopicProduceData(name="", partition_data=[partition] * 9) for _ in range(10)]
    )
    for request, version in ((name, 4), (nested, 9)):
        decode = (compile_decoder if compiled else interpreting_decoder)(type(request), version)
        encoded = request.encode(version)
        assert decode(encoded, 0, 100)[1] == len(encoded)
        with pytest.raises(MalformedMessage, match="too many elements"):
            decode(encoded, 0, 99)
    many = FindCoordinatorRequest(coordinator_keys=[""] * (ELEMENTS_MAX + 1)).encode(4)
    with pytest.raises(MalformedMessage, match="too many elements"):
        (compile_decoder if compiled else interpreting_decoder)(FindCoordinatorRequest, 4)(many, 0)


def change(encoded: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(encoded) + 1)
    patch = chance.choice(
        (
            bytes((chance.randrange(256),)),
            b"\x7f\xff\xff\xff",
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\xff\x0f",
            b"\xff\xff\xff\xff\x07",
            b"\x80\x80\x80\x80\x80\x80",
            b"\x80",
            b"\xc3\x28",
            chance.randbytes(8),
        )
    )
    removed = chance.choice((0, 1, len(patch)))
    return encoded[:place] + patch + encoded[place + removed :]


@pytest.mark.parametrize("name", sorted(ALL))
def test_changed_bytes(name: str, samples: Any) -> None:
    """Anything that can be decoded can be encoded again, with the same values."""
    cls = ALL[name]
    for version in telling_versions(cls):
        chance = samples.random(cls, version, salt=7)
        encoded = samples.make(cls, version, chance).encode(version)
        for _ in range(FUZZED_CHANGES):
            try:
                message = cls.decode(change(encoded, chance), version)
            except MalformedMessage:
                continue
            again = message.encode(version)
            assert cls.decode(again, version).encode(version) == again


@pytest.mark.parametrize(
    ("cls", "versions"), [(FetchRequest, range(19)), (ProduceRequest, range(14)), (MetadataRequest, range(1, 14))]
)
def test_a_huge_count_costs_nothing(cls: type[Message], versions: range, samples: Any) -> None:
    frames = []
    for version in versions:
        cls.decoder(version)
        encoded = samples.make(cls, version, samples.random(cls, version)).encode(version)[:400]
        for patch in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x00\xff\xff\xff", b"\xff\xff\x03"):
            frames += [(version, encoded[:at] + patch + encoded[at + len(patch) :]) for at in range(0, len(encoded), 3)]
    tracemalloc.start()
    try:
        for version, frame in frames:
            with contextlib.suppress(MalformedMessage):
                cls.decode(frame, version)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < PEAK_BYTES


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_break_the_header(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        _, position = decode_request_header(data)
        assert position <= len(data)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.data())
def test_no_bytes_break_a_decoder(name: str, data: st.DataObject) -> None:
    cls = ALL[name]
    version = data.draw(st.integers(cls.MIN_VERSION, cls.MAX_VERSION))
    with contextlib.suppress(MalformedMessage):
        cls.decode(data.draw(st.binary(max_size=200)), version)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(ALL)), data=st.data())
def test_round_trip(name: str, data: st.DataObject, samples: Any) -> None:
    cls = ALL[name]
    version = data.draw(st.integers(cls.MIN_VERSION, cls.MAX_VERSION))
    message = samples.make(cls, version, random.Random(data.draw(st.integers(0, 2**32))))
    encoded = message.encode(version)
    decoded = cls.decode(encoded, version)
    assert decoded.encode(version) == encoded
