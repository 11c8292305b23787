"""Parsing frames from a stream of bytes, without a socket: whole, in pieces, several at once, and with impossible
sizes."""

from struct import pack

import pytest

from ottla.server.net.buffers import ReceiveBuffers
from ottla.server.net.framing import FrameError, FrameReader

FRAME_MIN, FRAME_MAX = 2, 5_000
FRAMES = [b"ab", b"x" * 300, b"y" * 2_000, b"z" * FRAME_MAX]


def framed(*frames: bytes) -> bytes:
    return b"".join(pack(">i", len(frame)) + frame for frame in frames)


def new_reader() -> FrameReader:
    return FrameReader(ReceiveBuffers(), FRAME_MIN, FRAME_MAX)


def fed(reader: FrameReader, stream: bytes, piece: int) -> list[bytes]:
    """The frames that are parsed when the stream arrives in pieces of at most that size."""
    found = []
    while stream:
        count = min(piece, len(stream), len(reader.room))
        reader.room[:count] = stream[:count]
        stream = stream[count:]
        reader.received(count)
        while (frame := reader.next()) is not None:
            found.append(bytes(frame))
    return found


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 7, 300, 2_003, 100_000])
def test_frames_are_the_same_for_any_pieces_of_the_stream(piece: int) -> None:
    reader = new_reader()
    assert fed(reader, framed(*FRAMES, *FRAMES), piece) == [*FRAMES, *FRAMES]
    assert reader.partial is None
    assert len(reader.room) == len(new_reader().room), "the next bytes go to the shared buffer again"


def test_a_whole_frame_is_not_copied() -> None:
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, FRAME_MIN, FRAME_MAX)
    stream = framed(b"first", b"second")
    reader.room[: len(stream)] = stream
    reader.received(len(stream))
    first, second = reader.next(), reader.next()
    assert first is not None and second is not None
    buffers.shared[4] = ord("F")
    assert (bytes(first), bytes(second)) == (b"First", b"second")


def test_trailing_bytes_wait_for_the_rest_of_their_frame() -> None:
    reader = new_reader()
    assert fed(reader, framed(b"whole") + framed(b"partial")[:-3], 1_000) == [b"whole"]
    assert reader.next() is None
    assert len(reader.room) == 3, "there is room for exactly what is missing"
    assert fed(reader, b"ial" + framed(b"next")[:2], 1_000) == [b"partial"]
    assert len(reader.room) == 2, "if the size itself is incomplete, its rest is missing"
    assert fed(reader, framed(b"next")[2:], 1_000) == [b"next"]


@pytest.mark.parametrize("piece", [1, 4, 1_000])
@pytest.mark.parametrize("size", [FRAME_MAX + 1, 2**31 - 1, FRAME_MIN - 1, 0, -1, -(2**31)])
def test_an_invalid_frame_size_is_refused(size: int, piece: int) -> None:
    reader = new_reader()
    with pytest.raises(FrameError, match=f"frame of {size} bytes, allowed are {FRAME_MIN} to {FRAME_MAX} "):
        fed(reader, framed(b"good") + pack(">i", size) + b"rest", piece)


def test_other_limits_hold_from_the_next_frame_on() -> None:
    reader = new_reader()
    reader.frame_min, reader.frame_max = 0, 4
    assert fed(reader, framed(b"", b"four"), 1_000) == [b"", b"four"]
    reader.frame_min, reader.frame_max = FRAME_MIN, FRAME_MAX
    assert fed(reader, framed(b"larger"), 1_000) == [b"larger"]
    with pytest.raises(FrameError):
        fed(reader, framed(b""), 1_000)


@pytest.mark.parametrize("piece", [9, 1_000])
def test_kept_bytes_outlive_the_shared_buffer(piece: int) -> None:
    """A request has to wait. The bytes that arrived after it are still available when it is answered."""
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, FRAME_MIN, FRAME_MAX)
    stream = framed(b"pending", b"behind it", b"partial")[:-2]
    served: list[bytes] = []
    while stream:
        count = min(piece, len(stream), len(reader.room))
        reader.room[:count] = stream[:count]
        stream = stream[count:]
        reader.received(count)
        if (frame := reader.next()) is not None:
            served.append(bytes(frame))
            reader.keep()
            buffers.shared[:1_000] = b"?" * 1_000
            while (frame := reader.next()) is not None:
                served.append(bytes(frame))
    assert served == [b"pending", b"behind it"]
    assert fed(reader, b"al", 1_000) == [b"partial"]


def test_the_buffer_of_a_frame_in_pieces_goes_back_to_the_pool() -> None:
    buffers = ReceiveBuffers()
    taken: list[memoryview] = []
    given: list[memoryview] = []
    take, give_back = buffers.take, buffers.give_back

    class Watched(ReceiveBuffers):
        def take(self, size: int) -> memoryview:
            taken.append(take(size))
            return taken[-1]

        def give_back(self, buffer: memoryview) -> None:
            given.append(buffer)
            give_back(buffer)

    reader = FrameReader(Watched(), FRAME_MIN, FRAME_MAX)
    assert fed(reader, framed(*FRAMES), 1) == FRAMES
    assert fed(reader, framed(b"partial")[:-1], 3) == []
    reader.close()
    assert len(taken) == len(given) > 0
    assert all(one is other for one, other in zip(taken, given, strict=True))


def test_the_missing_bytes_of_a_large_frame_are_counted() -> None:
    reader = new_reader()
    reader.room[:4] = pack(">i", 3_000)
    assert reader.wanted() == 3_004
    reader.room[:4] = pack(">i", 2**31 - 1)
    assert reader.wanted() == len(reader.room)
    assert fed(reader, framed(b"x" * 100)[:50], 1_000) == []
    assert reader.wanted() == len(reader.room) == 54


def test_large_frames_in_pieces_are_received_where_they_stay() -> None:
    """The size of the next frame is received alone, so that the frame's own buffer receives the whole frame."""
    reader, stream, piece, found = new_reader(), framed(*FRAMES, *FRAMES[::-1]), 1_000, []
    rooms = []
    while stream:
        reader.expect_pieces(piece)
        rooms.append(len(reader.room))
        count = min(piece, len(stream), len(reader.room))
        reader.room[:count] = stream[:count]
        stream = stream[count:]
        reader.received(count)
        while (frame := reader.next()) is not None:
            found.append(bytes(frame))
    assert found == [*FRAMES, *FRAMES[::-1]]
    assert rooms.index(4) == rooms.index(FRAME_MAX) - 1, "nothing of the frame was received before its buffer"
