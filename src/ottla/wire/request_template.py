"""Messages that repeat: bytes that stay the same, with holes for numbers.

A busy client sends the same request again and again: only the correlation id changes, and an offset or two. The
responses repeat in the same way. With a template of the latest message, the next one is served without decoding it and
without building a response:

1. *Find the holes.* The message is encoded again with stand-ins for its numbers. Each stand-in in the bytes marks a
   hole (`stand_ins`, `find_numbers`).
2. *Compare.* A `RequestTemplate` splits a frame with one `Struct`. All fixed parts must equal those of the template;
   the rest are the numbers.
3. *Fill in.* An `AnswerTemplate` packs the correlation id and the new numbers between the fixed parts of the answer.

If anything differs, in the request or in the broker's state, the template is not used, and the frame takes the normal
path. So a template never decides on a response; it only repeats one.

Used by `server/apis/{produce,fetch,commit}_repeated.py` for requests and answers, and by
`coordinator/groups/offsets/repeated_commits.py` for the batch that a commit stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct

from ottla.wire.primitives import Buffer

KIND_BYTES = 4
"""API key and version, at the start of a request."""
ID_BYTES = 4
FRAME_HEAD_BYTES = 8
"""Size and correlation id, at the start of a response."""
_SIZE = Struct(">i")
_INT64 = Struct(">q")
_STAND_IN = 0x7EFDFCFBFAF9F800
"""Contains bytes that cannot occur in UTF-8, so no text of a client can match it."""


def stand_ins(count: int) -> range:
    """Numbers that match nothing else in a message."""
    return range(_STAND_IN, _STAND_IN + count)


def find_numbers(encoded: Buffer, numbers: Iterable[int], start: int = 0) -> list[int] | None:
    """The positions of these 64-bit numbers, in order. None if one of them is missing."""
    content, places = bytes(encoded), []
    for number in numbers:
        place = content.find(_INT64.pack(number), start)
        if place < 0:
            return None
        places.append(place)
        start = place + _INT64.size
    return places


@lru_cache(maxsize=256)
def _request_layout(around: tuple[int, ...]) -> Struct:
    """A frame: size and kind; the correlation id; then the holes, separated by parts of these sizes."""
    return Struct(f">{_SIZE.size + KIND_BYTES}si" + "q".join([f"{size}s" for size in around]))


@lru_cache(maxsize=256)
def _answer_layout(before: int, numbers: int, behind: int) -> Struct:
    """A frame: its size, the correlation id, and a row of numbers with the bytes before and after it."""
    return Struct(f">ii{before}s{numbers}q{behind}s")


class RequestTemplate:
    """A frame that stays the same except for its correlation id and some 64-bit numbers.

    `unpack(buffer, position)` splits `size` bytes: fixed parts at even indexes, numbers at odd ones. The frame matches
    the template if `values[::2] == fixed`; then `values[1]` is the correlation id, and `values[3::2]` are the numbers.
    The caller does this comparison, because a call for each frame would cost as much as the comparison.
    """

    __slots__ = ("fixed", "size", "unpack")

    def __init__(self, head: bytes, around: Sequence[bytes]) -> None:
        layout = _request_layout(tuple([len(part) for part in around]))
        self.fixed = (head, *around)
        self.size = layout.size
        self.unpack = layout.unpack_from

    @classmethod
    def of(cls, frame: memoryview, encoded: bytes, numbers: Sequence[int]) -> RequestTemplate | None:
        """The template of a received frame, without its size. `encoded` is its request with the stand-ins `numbers`.
        None if the client encodes it differently from us, or adds bytes at the end.
        """
        places = find_numbers(encoded, numbers)
        header_end = len(frame) - len(encoded)
        if places is None or header_end < KIND_BYTES + ID_BYTES:
            return None
        around, start = [], 0
        for place in places:
            around.append(encoded[start:place])
            start = place + _INT64.size
        around.append(encoded[start:])
        around[0] = bytes(frame[KIND_BYTES + ID_BYTES : header_end]) + around[0]
        size = _SIZE.pack(len(frame))
        template = cls(size + bytes(frame[:KIND_BYTES]), around)
        return template if template.unpack(size + bytes(frame), 0)[::2] == template.fixed else None


class AnswerTemplate:
    """A response that stays the same except for its correlation id and one row of 64-bit numbers.

    `pack(size, correlation_id, before, *numbers, behind)` builds the frame; `size` is that of the response that the
    template was made from.
    """

    __slots__ = ("before", "behind", "pack", "size")

    def __init__(self, before: bytes, numbers: int, behind: bytes) -> None:
        self.before = before
        self.behind = behind
        self.size = ID_BYTES + len(before) + numbers * _INT64.size + len(behind)
        self.pack = _answer_layout(len(before), numbers, len(behind)).pack

    @classmethod
    def of(cls, body: bytes, numbers: Sequence[int]) -> AnswerTemplate | None:
        """The template of a response, without its size and correlation id, that has these numbers in a row. None unless
        they occur exactly once, because otherwise the place to fill in would be ambiguous."""
        row = b"".join([_INT64.pack(number) for number in numbers])
        if body.count(row) != 1:
            return None
        before, _, behind = body.partition(row)
        return cls(before, len(numbers), behind)
