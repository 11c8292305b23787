"""Encodes requests to frames and decodes answers, without a socket. `Wire` and `AsyncWire` use it."""

import struct
from collections import deque
from collections.abc import Iterable
from typing import Any

from ottla.wire.frames import decode_response_header, encode_request, response_header_version
from ottla.wire.messages import RESPONSES
from ottla.wire.schema import Message


def sized(body: bytes) -> bytes:
    """The body with its size in front, as frames are sent."""
    return struct.pack(">i", len(body)) + body


def response_frame(response: Message, version: int, correlation_id: int) -> bytes:
    """An answer as a broker sends it."""
    tags = b"\0" if response_header_version(response.API_KEY, version) else b""
    return sized(struct.pack(">i", correlation_id) + tags + response.encode(version))


class Frames:
    """Numbers the requests of one connection, and decodes the answers in the order of the requests."""

    def __init__(self) -> None:
        self.correlation_id = 0
        """The correlation id of the newest request."""
        self._expected: deque[tuple[int, int, int]] = deque()

    def encode(
        self,
        request: Message,
        version: int,
        client_id: str | None,
        *,
        answered: bool = True,
        changes: Iterable[tuple[bytes, bytes]] = (),
    ) -> bytes:
        """`changes` alter the encoded bytes, for requests that no encoder would write. The size stays the same."""
        self.correlation_id += 1
        if answered:
            self._expected.append((request.API_KEY, version, self.correlation_id))
        frame = encode_request(request, version, self.correlation_id, client_id)
        for old, new in changes:
            assert old in frame
            assert len(old) == len(new)
            frame = frame.replace(old, new)
        return frame

    def decode(self, frame: bytes) -> Any:
        """The answer to the oldest unanswered request. `frame` does not include its size."""
        api_key, version, expected = self._expected.popleft()
        correlation_id, position = decode_response_header(frame, response_header_version(api_key, version))
        assert correlation_id == expected, f"got answer {correlation_id} instead of {expected}"
        return RESPONSES[api_key].decode(memoryview(frame)[position:], version)
