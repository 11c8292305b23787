"""Templates of repeated messages: which frames match, and what is filled in."""

from struct import pack
from typing import Any

import pytest

from ottla.wire.messages.offsets import OffsetCommitRequest
from ottla.wire.request_template import AnswerTemplate, RequestTemplate, find_numbers, stand_ins

VERSION = 9
HEADER = pack(">hhih", OffsetCommitRequest.API_KEY, VERSION, 7, 2) + b"me" + b"\0"


def commit(*offsets: int, group: str = "g") -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in enumerate(offsets)
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=partitions)
    return OffsetCommitRequest(group_id=group, member_id="", topics=[topic])


def frame(*offsets: int, correlation_id: int = 7, **options: Any) -> memoryview:
    header = HEADER[:4] + pack(">i", correlation_id) + HEADER[8:]
    return memoryview(header + commit(*offsets, **options).encode(VERSION))


def template_of(*offsets: int) -> RequestTemplate:
    numbers = stand_ins(len(offsets))
    found = RequestTemplate.of(frame(*offsets), commit(*numbers).encode(VERSION), numbers)
    assert found is not None
    return found


def test_a_frame_that_differs_in_its_holes_only_is_like_the_template() -> None:
    template = template_of(5, 6)
    other = frame(100, -1, correlation_id=-3)
    values = template.unpack(pack(">i", len(other)) + other, 0)
    assert values[::2] == template.fixed
    assert (values[1], values[3::2]) == (-3, (100, -1))
    assert template.size == 4 + len(other)


@pytest.mark.parametrize("position", [0, 3, 4, 7, 13, 15, 20, -1])
def test_any_other_difference_is_noticed(position: int) -> None:
    template = template_of(5, 6)
    other = bytearray(pack(">i", len(frame(5, 6))) + frame(5, 6))
    other[position] ^= 0x01
    assert template.unpack(other, 0)[::2] != template.fixed


def test_another_group_of_the_same_length_is_noticed() -> None:
    other = frame(5, 6, group="h")
    template = template_of(5, 6)
    assert template.unpack(pack(">i", len(other)) + other, 0)[::2] != template.fixed


def test_no_template_for_a_request_with_a_different_encoding() -> None:
    numbers = stand_ins(1)
    encoded = commit(*numbers).encode(VERSION)
    assert RequestTemplate.of(memoryview(bytes(frame(5)) + b"\0"), encoded, numbers) is None, "bytes after it"
    assert RequestTemplate.of(frame(5, group="other"), encoded, numbers) is None
    assert RequestTemplate.of(frame(5)[-len(encoded) :], encoded, numbers) is None, "no header"
    assert RequestTemplate.of(frame(5), commit(5).encode(VERSION), numbers) is None, "no stand-in"


def test_an_answer_is_filled_in() -> None:
    body = b"head" + pack(">qq", 11, 12) + b"tail"
    template = AnswerTemplate.of(body, (11, 12))
    assert template is not None
    made = template.pack(template.size, 9, template.before, 21, 22, template.behind)
    assert made == pack(">ii", 4 + len(body), 9) + b"head" + pack(">qq", 21, 22) + b"tail"


def test_no_answer_whose_numbers_are_not_found_exactly_once() -> None:
    row = pack(">qq", 11, 12)
    assert AnswerTemplate.of(b"head" + row + b"tail", (11, 13)) is None
    assert AnswerTemplate.of(row + b"between" + row, (11, 12)) is None


def test_numbers_are_found_in_order() -> None:
    first, second = stand_ins(2)
    content = b"ab" + pack(">q", first) + b"c" + pack(">q", second) + pack(">q", first)
    assert find_numbers(content, (first, second, first)) == [2, 11, 19]
    assert find_numbers(content, (second, second)) is None
    assert find_numbers(content, (first,), start=3) == [19]
