"""Messages that repeat themselves: bytes that stay the same, and holes with numbers between them.

A client that is busy sends the same request again and again: only the correlation id changes, and an offset or two. Its
answers repeat in the same way. With a template of the latest message, the next one is served without decoding
it and without building a response:

1. *Find the holes.* The message is encoded once more with stand-ins in place of its numbers. Where a stand-in is found
   in the bytes, there is a hole (`stand_ins`, `find_numbers`).
2. *Compare.* A `RequestTemplate` takes a frame apart with one `Struct`. The fixed parts must be equal to those of the
   template, all of them; what is left are the numbers.
3. *Fill in.* An `AnswerTemplate` packs the correlation id and the new numbers between the fixed parts of the answer.

Whenever anything differs, in the request or in the broker's state, the user of a template does nothing and leaves the
frame to the ordinary way. So a template never decides what an answer is; it only repeats one.

Used by `server/apis/{produce,fetch,commit}_repeated.py` for requests and answers, and by
`coordinator/groups/offsets/repeated_commits.py` for the batch that a commit stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct

from ottla.wire.primitives import Buffer

KIND_BYTES = 4
"""API key and version, with which a request begins."""
ID_BYTES = 4
FRAME_HEAD_BYTES = 8
"""Size and correlation id, with which an answer begins."""
_SIZE = Struct(">i")
_INT64 = Struct(">q")
_STAND_IN = 0x7EFDFCFBFAF9F800
"""No text in UTF-8, which is what a client may choose, has such bytes."""


def stand_ins(count: int) -> range:
    """Numbers that nothing else in a message looks like."""
    return range(_STAND_IN, _STAND_IN + count)


def find_numbers(encoded: Buffer, numbers: Iterable[int], start: int = 0) -> list[int] | None:
    """Where these 64-bit numbers stand, one behind the other; None if one of them is not there."""
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
    """A frame: size and kind; the correlation id; then the holes, with parts of these sizes around them."""
    return Struct(f">{_SIZE.size + KIND_BYTES}si" + "q".join([f"{size}s" for size in around]))


@lru_cache(maxsize=256)
def _answer_layout(before: int, numbers: int, behind: int) -> Struct:
    """A frame: its size, the correlation id, and a row of numbers with what stands before and behind it."""
    return Struct(f">ii{before}s{numbers}q{behind}s")


class RequestTemplate:
    """A frame that stays the same except for its correlation id and some 64-bit numbers.

    `unpack(buffer, position)` takes `size` bytes apart: fixed parts at the even places, numbers at the odd ones. The
    frame is like the template if `values[::2] == fixed`; then `values[1]` is the correlation id, and `values[3::2]` are
    the numbers. It is left to the user to say so: a call for each frame would cost as much as the comparison.
    """

    __slots__ = ("fixed", "size", "unpack")

    def __init__(self, head: bytes, around: Sequence[bytes]) -> None:
        layout = _request_layout(tuple([len(part) for part in around]))
        self.fixed = (head, *around)
        self.size = layout.size
        self.unpack = layout.unpack_from

    @classmethod
    def of(cls, frame: memoryview, encoded: bytes, numbers: Sequence[int]) -> RequestTemplate | None:
        """The template of a frame that has arrived, without its size; `encoded` is its request with stand-ins, which
        are `numbers`. None if the client wrote it in another way than we do, or with bytes behind it.
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
    """An answer that stays the same except for its correlation id and one row of 64-bit numbers.

    `pack(size, correlation_id, before, *numbers, behind)` makes the frame; `size` is that of an answer like the one
    that the template was made of.
    """

    __slots__ = ("before", "behind", "pack", "size")

    def __init__(self, before: bytes, numbers: int, behind: bytes) -> None:
        self.before = before
        self.behind = behind
        self.size = ID_BYTES + len(before) + numbers * _INT64.size + len(behind)
        self.pack = _answer_layout(len(before), numbers, len(behind)).pack

    @classmethod
    def of(cls, body: bytes, numbers: Sequence[int]) -> AnswerTemplate | None:
        """The template of an answer, without its size and correlation id, that has these numbers in a row. None unless
        they stand there once: with a second time it would not be known which to fill in."""
        row = b"".join([_INT64.pack(number) for number in numbers])
        if body.count(row) != 1:
            return None
        before, _, behind = body.partition(row)
        return cls(before, len(numbers), behind)
