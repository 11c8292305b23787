"""OffsetCommit requests that differ from the one before in nothing but their offsets.

A consumer commits the partitions that it reads, over and over. The bytes of such requests are the same but for an
offset for each partition, and all answers without an error are one. A connection that has sent the like twice has the
next ones served from memory, as with produced records (see `produce_repeated`): no request is decoded, no response is
built, what arrived together is written together. What the coordinator has to ask and to store is the business of a
`CommitPlan`. Anything that is not quite the same, or not simply committed, takes the ordinary way.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.coordinator.groups.offsets.repeated_commits import CommitPlan
from ottla.server.api import RUN_MAX
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from ottla.coordinator.runtime.interfaces import Client
    from ottla.server.api import Route
    from ottla.server.services import Services

_KIND_BYTES = 4
_LENGTH = Struct(">i")
_LENGTH_AND_ID = Struct(">ii")
_OFFSET = Struct(">q")
_STAND_IN = 0x7EFDFCFBFAF9F800
"""Numbers from here on show where the offsets stand in a request. No text in UTF-8 has such bytes."""


@lru_cache(maxsize=256)
def _layout(around: tuple[int, ...]) -> Struct:
    """A frame: its size, kind and correlation id; then the offsets, with what stands before, between and behind them.

    `around` are the sizes of those."""
    return Struct(f">i{_KIND_BYTES}si" + "q".join([f"{size}s" for size in around]))


class RepeatedCommit:
    """The latest OffsetCommit request of a connection, as a model for the next."""

    __slots__ = (
        "_answer",
        "_around",
        "_broker",
        "_frame_bytes",
        "_is_odd",
        "_kind",
        "_layout",
        "_plan",
        "_subject",
        "_version",
        "route",
    )

    def __init__(self, version: int, frame: memoryview, request: OffsetCommitRequest) -> None:
        """Remember who committed. That it is worth a closer look, only its repetition tells."""
        self._version = version
        self._frame_bytes = len(frame)
        self._subject = _subject(request)
        self._is_odd = False
        self.route: Route | None = None
        """Set when there is a model: requests that take this route may be like it."""

    def is_like(self, version: int, frame: memoryview, request: OffsetCommitRequest) -> bool:
        return self._frame_bytes == len(frame) and self._version == version and self._subject == _subject(request)

    def learn(
        self,
        broker: Services,
        route: Route,
        frame: memoryview,
        request: OffsetCommitRequest,
        client: Client,
        response: OffsetCommitResponse,
        answer: bytes,
    ) -> None:
        """Make a model of the request and of its answer, if they have the usual shape."""
        self.route = None
        if self._is_odd or any(partition.error_code for topic in response.topics for partition in topic.partitions):
            return
        plan = CommitPlan.of(broker.groups, request, client)
        if plan is None:
            return
        if not self._learn_request(frame, request):
            self._is_odd = True
            return
        self._plan = plan
        self._broker = broker
        self._answer = answer[_LENGTH_AND_ID.size :]
        self.route = route

    def _learn_request(self, frame: memoryview, request: OffsetCommitRequest) -> bool:
        partitions = [partition for topic in request.topics for partition in topic.partitions]
        offsets = [partition.committed_offset for partition in partitions]
        for number, partition in enumerate(partitions, _STAND_IN):
            partition.committed_offset = number
        rest = request.encode(self._version)
        for offset, partition in zip(offsets, partitions, strict=True):
            partition.committed_offset = offset
        start = _KIND_BYTES + _LENGTH.size
        around = [bytes(frame[start : len(frame) - len(rest)])]
        for number in range(_STAND_IN, _STAND_IN + len(partitions)):
            before, _, rest = rest.partition(_OFFSET.pack(number))
            around[-1] += before
            around.append(b"")
        around[-1] += rest
        self._kind = bytes(frame[:_KIND_BYTES])
        self._around = tuple(around)
        self._layout = _layout(tuple([len(part) for part in around]))
        values = self._layout.unpack(_LENGTH.pack(len(frame)) + frame)
        # Unless it was written in a way that is not ours, or has bytes behind it.
        return values[3::2] == self._around

    def serve(self, buffer: memoryview, start: int, end: int, out: deque[Any]) -> int:
        """Commit what all frames from `start` on say that are like the model, and put their answers into `out`.

        Returns where the first frame begins that is not like it, or not whole: nothing was done about that.
        """
        broker = self._broker
        if broker.registry.route(OffsetCommitRequest.API_KEY, self._version) is not self.route:
            return start
        frame_bytes, kind, around = self._frame_bytes, self._kind, self._around
        unpack, size = self._layout.unpack_from, self._layout.size
        ids: list[int] = []
        commits: list[tuple[int, ...]] = []
        stop = start
        while end - stop >= size and len(ids) < RUN_MAX:
            values = unpack(buffer, stop)
            if values[3::2] != around or values[0] != frame_bytes or values[1] != kind:
                break
            ids.append(values[2])
            commits.append(values[4::2])
            stop += size
        if not ids:
            return start
        committed = self._plan.commit(commits)
        pack, answer = _LENGTH_AND_ID.pack, self._answer
        answer_bytes = _LENGTH.size + len(answer)
        for correlation_id in ids[:committed]:
            out.append(pack(answer_bytes, correlation_id) + answer)
        return start + committed * size


def _subject(request: OffsetCommitRequest) -> list[Any]:
    """Whose offsets of what are committed."""
    subject: list[Any] = [request.group_id, request.member_id, request.generation_id_or_member_epoch]
    for topic in request.topics:
        subject += topic.name, topic.topic_id
        subject += [partition.partition_index for partition in topic.partitions]
    return subject
