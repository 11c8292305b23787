"""Markers for partitions that other brokers lead: which requests carry them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.answers import Reply
from ottla.coordinator.transactions.shard import Marker
from ottla.errors import NotLeaderOrFollower
from ottla.server.peers import Unreachable
from ottla.server.transaction_markers import MarkerWriter
from ottla.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class SentRequests:
    """A channel that keeps the sent requests."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.answers: list[Reply[Any]] = []

    def send(self, broker_id: int, request: Any, *, at_once: bool = False) -> Reply[Any]:
        self.sent.append((broker_id, request))
        self.answers.append(Reply())
        return self.answers[-1]

    def carried(self) -> list[list[tuple[int, str, int]]]:
        """(producer id, topic, partition) of the markers in each request."""
        return [
            [
                (marker.producer_id, topic.name, index)
                for marker in request.markers
                for topic in marker.topics
                for index in topic.partition_indexes
            ]
            for _, request in self.sent
        ]


def writer(channel: SentRequests, is_with_one: bool, turns: list[Callable[[], None]]) -> MarkerWriter:
    services: Any = SimpleNamespace(
        node_id=1,
        directory=SimpleNamespace(leader_of=lambda partition: (2, 0)),
        loop=SimpleNamespace(call_soon=turns.append),
        pace=SimpleNamespace(is_with_one=is_with_one),
        channel=channel,
    )
    markers = MarkerWriter(services, lambda index: None)
    markers.start()
    return markers


@pytest.mark.parametrize("is_with_one", [True, False])
def test_markers_of_one_transaction_are_one_request_sent_before_the_answer(is_with_one: bool) -> None:
    channel, turns = SentRequests(), list[Callable[[], None]]()
    markers = writer(channel, is_with_one, turns)
    for producer_id in (7, 8):
        for index in range(2):
            markers.write(Marker(producer_id, 0, 0, True), ("t", index), lambda *_: None)
        markers.send()
    wanted = [[(producer_id, "t", index) for index in range(2)] for producer_id in (7, 8)]
    if is_with_one:
        assert channel.carried() == wanted and not turns
    else:
        assert channel.carried() == [] and len(turns) == 1
        turns.pop()()
        assert channel.carried() == [wanted[0] + wanted[1]]
    assert {broker_id for broker_id, _ in channel.sent} == {2}


def test_each_marker_gets_its_own_code_and_a_broker_that_is_gone_counts_as_no_leader() -> None:
    channel = SentRequests()
    markers = writer(channel, True, [])
    told: list[tuple[tuple[str, int], int]] = []
    for index in range(2):
        markers.write(
            Marker(7, 0, 0, True), ("t", index), lambda place, error: told.append((place, error.code if error else 0))
        )
    markers.send()
    result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
    topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
        name="t",
        partitions=[result(partition_index=0, error_code=0), result(partition_index=1, error_code=47)],
    )
    marker = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=7, topics=[topic])
    channel.answers.pop().resolve(WriteTxnMarkersResponse(markers=[marker]))
    assert told == [(("t", 0), 0), (("t", 1), 47)]
    markers.write(
        Marker(7, 0, 0, True), ("t", 0), lambda place, error: told.append((place, error.code if error else 0))
    )
    markers.send()
    channel.answers.pop().fail(Unreachable())
    assert told[-1] == (("t", 0), NotLeaderOrFollower.code)
