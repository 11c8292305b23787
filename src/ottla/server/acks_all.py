"""Produce with acks=all to a partition with followers: the answer waits until they have the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.answers import Answer, Reply
from ottla.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut
from ottla.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from ottla.clock import TimerHandle
    from ottla.replication.partition import Partition
    from ottla.server.api import RequestContext

PartitionResponse = ProduceResponse.PartitionProduceResponse


def name_nodes(ctx: RequestContext, response: ProduceResponse) -> None:
    """Add the addresses of the leaders that an answer names (KIP-951)."""
    leaders = {
        partition.current_leader.leader_id
        for topic in response.responses
        for partition in topic.partition_responses
        if partition.current_leader is not None
    }
    if leaders:
        response.node_endpoints = [
            ProduceResponse.NodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
            for node, host, port in ctx.services.directory.nodes(ctx.connection)
            if node.broker_id in leaders
        ]


class Acknowledgements:
    """The partitions of one request that are not committed yet."""

    __slots__ = ("_ctx", "_moved", "_reply", "_response", "_timeout_ms", "_timer", "_waiting")

    def __init__(self, ctx: RequestContext, timeout_ms: int) -> None:
        self._ctx = ctx
        self._timeout_ms = timeout_ms
        self._waiting: dict[int, PartitionResponse] = {}
        self._response: ProduceResponse | None = None
        self._reply: Reply[ProduceResponse | None] | None = None
        self._timer: TimerHandle | None = None
        self._moved = False
        """Whether a leader resigned in the meantime."""

    def add(self, partition: Partition, outcome: PartitionResponse) -> None:
        """Wait for an append. A duplicate is acknowledged when the original is."""
        self._waiting[id(outcome)] = outcome
        # Wait for the end of the log: later appends end after this one, and an older duplicate may already be
        # committed.
        offset = partition.log.log_end_offset - 1
        partition.when_acknowledged(offset, lambda error: self._settled(partition, outcome, error))

    def _settled(self, partition: Partition, outcome: PartitionResponse, error: KafkaError | None) -> None:
        if self._waiting.pop(id(outcome), None) is None:
            return  # it timed out
        if error is not None:
            outcome.error_code = error.code
            if isinstance(error, NotLeaderOrFollower) and self._ctx.version >= 10:
                state = partition.state
                outcome.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=state.leader, leader_epoch=state.leader_epoch
                )
                self._moved = True
        if not self._waiting:
            self._finish()

    def answer(self, response: ProduceResponse) -> Answer[ProduceResponse | None]:
        """The response, now or when all partitions are committed."""
        if not self._waiting:
            return response
        self._response = response
        broker = self._ctx.services
        self._timer = broker.timer.schedule(max(self._timeout_ms, 1), self._time_is_up)
        self._reply = Reply(self._timer.cancel)
        return self._reply

    def _time_is_up(self) -> None:
        for outcome in self._waiting.values():
            outcome.error_code = RequestTimedOut.code
        self._waiting.clear()
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reply is not None and not self._reply.done:
            assert self._response is not None
            if self._moved:
                name_nodes(self._ctx, self._response)
            self._reply.resolve(self._response)
