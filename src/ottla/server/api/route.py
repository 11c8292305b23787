"""One version of an API, ready for the dispatch loop: its handler with compiled codecs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

# Imported together with the compiler: it is needed soon, and later there may be no file handle left to read it.
from ottla.wire import interpreting as interpreting
from ottla.wire.frames import request_header_version, response_header_version
from ottla.wire.primitives import Buffer
from ottla.wire.schema import WALKS, Decoder, Encoder, Message

if TYPE_CHECKING:
    from ottla.server.api.context import RequestContext
    from ottla.server.api.registry import Api

RUN_MAX = 64
"""Requests that a `Repeated` writes together: enough for a large write, and few enough for one iteration of the
loop.
"""


class Repeated(Protocol):
    """A connection's latest request, kept as a template: similar requests can be served without decoding them."""

    route: Route | None
    """Set when there is a template."""

    def serve(self, buffer: memoryview, start: int, end: int, out: deque[Any]) -> int:
        """Serve the frames from `start` that match the template, and add their answers to `out`.

        Returns the start of the first frame that does not match.
        """


Model = Callable[["RequestContext", "Route", memoryview, Any, Any, bytes, "Repeated | None"], "Repeated | None"]
"""Makes a template from a request that was just served: context, route and frame; request, response and the encoded
answer; the connection's template so far."""

_FEW_BYTES: Final = 512
"""Interpreting a message of this size takes less time than compiling its codec, which the client would wait for."""


_MANY_BYTES: Final = 64 << 10
"""A request of this size may have so many elements that interpreting it, or its answer, takes seconds."""


class Route:
    """A handler with the compiled codecs of one version, ready for the dispatch loop."""

    __slots__ = (
        "_answers",
        "_requests",
        "_version",
        "api",
        "carries_records",
        "decode",
        "encode",
        "flexible_request",
        "flexible_response",
        "handler",
        "model",
        "response_type",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.handler = api.handler
        self.model = api.model
        self.response_type = api.response
        # The first request of its kind, and a few small ones after it, do not wait until both are compiled, because
        # often no more follow.
        self.decode: Decoder = self._decode_early
        self.encode: Encoder = self._encode_early
        self._requests = 0
        self._answers = 0
        self._version = version
        self.carries_records = api.carries_records
        self.flexible_request = request_header_version(api.key, version) >= 2
        self.flexible_response = response_header_version(api.key, version) >= 1

    def compile(self) -> None:
        """Compile both codecs, for callers that keep them."""
        self.decode = self.api.request.decoder(self._version)
        self.encode = self.api.response.encoder(self._version)

    def _decode_early(self, frame: Buffer, position: int, *elements_max: int) -> tuple[Any, int]:
        self._requests += 1
        size = len(frame) - position
        if size > _MANY_BYTES:
            self.compile()
        elif self._requests == 1 or (self._requests <= WALKS and size <= _FEW_BYTES):
            return self.api.request.early_decoder(self._version)(frame, position, *elements_max)
        else:
            self.decode = self.api.request.decoder(self._version)
        return self.decode(frame, position, *elements_max)

    def _encode_early(self, response: Message, parts: list[Any]) -> None:
        self._answers += 1
        if self._answers > WALKS:
            self.encode = self.response_type.encoder(self._version)
            self.encode(response, parts)
            return
        self.response_type.early_encoder(self._version)(response, parts)
        if sum(map(len, parts)) > _FEW_BYTES:
            self._answers = WALKS
