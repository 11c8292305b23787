"""OffsetCommit requests that differ from the previous one only in their offsets.

A consumer commits the same partitions again and again. The bytes of such requests differ in one offset per partition,
and all answers without an error are equal. After two such requests, the next ones of the connection use a template, as
with produced records (see `produce_repeated`): no request is decoded, no response is built, and requests that arrive
together are written together. A `CommitPlan` decides what the coordinator checks and stores. Any other request takes
the normal path.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.coordinator.groups.offsets.repeated_commits import CommitPlan
from ottla.server.api import RUN_MAX
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.request_template import FRAME_HEAD_BYTES, AnswerTemplate, RequestTemplate, stand_ins

if TYPE_CHECKING:
    from ottla.coordinator.runtime.interfaces import Client
    from ottla.server.api import Route
    from ottla.server.services import Services


class RepeatedCommit:
    """The latest OffsetCommit request of a connection, as a template for the next."""

    __slots__ = (
        "_answer",
        "_broker",
        "_frame_bytes",
        "_is_odd",
        "_plan",
        "_request",
        "_subject",
        "_version",
        "route",
    )

    def __init__(self, version: int, frame: memoryview, request: OffsetCommitRequest) -> None:
        """Remember who committed. A template is made only if the request is repeated."""
        self._version = version
        self._frame_bytes = len(frame)
        self._subject = _subject(request)
        self._is_odd = False
        self.route: Route | None = None
        """Set when there is a template: requests on this route may match it."""

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
        """Make a template from the request and its answer, if they have the usual shape."""
        self.route = None
        if self._is_odd or any(partition.error_code for topic in response.topics for partition in topic.partitions):
            return
        plan = CommitPlan.of(broker.groups, request, client)
        if plan is None:
            return
        template = self._template(frame, request)
        if template is None:
            self._is_odd = True
            return
        self._request = template
        self._plan = plan
        self._broker = broker
        self._answer = AnswerTemplate(answer[FRAME_HEAD_BYTES:], 0, b"")
        self.route = route

    def _template(self, frame: memoryview, request: OffsetCommitRequest) -> RequestTemplate | None:
        partitions = [partition for topic in request.topics for partition in topic.partitions]
        offsets = [partition.committed_offset for partition in partitions]
        numbers = stand_ins(len(partitions))
        for number, partition in zip(numbers, partitions, strict=True):
            partition.committed_offset = number
        encoded = request.encode(self._version)
        for offset, partition in zip(offsets, partitions, strict=True):
            partition.committed_offset = offset
        return RequestTemplate.of(frame, encoded, numbers)

    def serve(self, buffer: memoryview, start: int, end: int, out: deque[Any]) -> int:
        """Commit all frames from `start` that match the template, and put their answers into `out`.

        Returns the start of the first frame that does not match or is incomplete; that frame is not served.
        """
        broker = self._broker
        if broker.registry.route(OffsetCommitRequest.API_KEY, self._version) is not self.route:
            return start
        request, answer = self._request, self._answer
        fixed, unpack, size = request.fixed, request.unpack, request.size
        ids: list[int] = []
        commits: list[tuple[int, ...]] = []
        stop = start
        while end - stop >= size and len(ids) < RUN_MAX:
            values = unpack(buffer, stop)
            if values[::2] != fixed:
                break
            ids.append(values[1])
            commits.append(values[3::2])
            stop += size
        if not ids:
            return start
        committed = self._plan.commit(commits)
        pack, answer_bytes, body = answer.pack, answer.size, answer.before
        for correlation_id in ids[:committed]:
            out.append(pack(answer_bytes, correlation_id, body, b""))
        return start + committed * size


def _subject(request: OffsetCommitRequest) -> list[Any]:
    """The group, member and partitions of a commit."""
    subject: list[Any] = [request.group_id, request.member_id, request.generation_id_or_member_epoch]
    for topic in request.topics:
        subject += topic.name, topic.topic_id
        subject += [partition.partition_index for partition in topic.partitions]
    return subject
