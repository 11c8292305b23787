"""A member of a share group (KIP-932): it acquires records and acknowledges each one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.fetcher import FETCH_BYTES, MAX_WAIT_MS
from ottla.client.group_member import HEARTBEAT_S, Assignment, by_name
from ottla.client.offsets import MemberIdentity, grouped
from ottla.client.routing import Client, TopicPartition
from ottla.enums import AcknowledgeType
from ottla.errors import (
    FencedMemberEpoch,
    InvalidShareSessionEpoch,
    ShareSessionNotFound,
    UnknownMemberId,
    error_for,
)
from ottla.records.legacy import any_batches
from ottla.wire.messages.share_groups import ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest

ACKNOWLEDGE_TYPES: Final = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
MAX_RECORDS: Final = 500
_CLOSE: Final = -1
_SESSION_LOST: Final = (ShareSessionNotFound.code, InvalidShareSessionEpoch.code)


class Acquired(NamedTuple):
    """Records of one partition that this member must acknowledge."""

    tp: TopicPartition
    batches: Sequence[Any]
    runs: Sequence[tuple[int, int, int]]
    """First offset, last offset, and delivery count of the records."""


class Acknowledgement(NamedTuple):
    tp: TopicPartition
    first_offset: int
    last_offset: int
    kind: int


class ShareMember:
    """The heartbeats of a member of a share group; implements `MemberProtocol`."""

    def __init__(self, client: Client, group: str, topics: Sequence[str]) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self._target: Assignment = frozenset()
        self.heartbeat_s = HEARTBEAT_S
        self.identity = MemberIdentity(str(uuid.uuid4()), 0)

    async def join(self) -> Assignment:
        if self.identity.generation == 0:
            await self._send(subscribed_topic_names=self._topics)
        return self._target

    async def beat(self) -> bool:
        before = self._target
        try:
            await self._send()
        except (FencedMemberEpoch, UnknownMemberId):
            self.identity = self.identity._replace(generation=0)
            self._target = frozenset()
            return True
        return self._target != before

    async def _send(self, **fields: Any) -> None:
        response = await self._ask(self.identity.generation, **fields)
        if response.error_code:
            raise error_for(response.error_code, response.error_message or None)
        self.identity = self.identity._replace(generation=response.member_epoch)
        self.heartbeat_s = min(response.heartbeat_interval_ms / 1000, HEARTBEAT_S)
        if response.assignment is not None:
            self._target = await by_name(self._client, response.assignment.topic_partitions, self._topics)

    async def _ask(self, epoch: int, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group, member_id=self.identity.member_id, member_epoch=epoch, **fields
        )
        return await self._client.ask_coordinator(self._group, request)

    async def leave(self) -> None:
        await self._ask(_CLOSE)


class ShareReader:
    """Share sessions with the leaders of partitions: acquires and acknowledges records."""

    def __init__(self, client: Client, group: str, member_id: str) -> None:
        self._client = client
        self._group = group
        self._member_id = member_id
        self._epochs: dict[int, int] = {}

    async def poll(self, assigned: Iterable[TopicPartition], max_records: int = MAX_RECORDS) -> list[Acquired]:
        """Acquire records from all leaders."""
        shares: dict[int, list[TopicPartition]] = {}
        for tp in assigned:
            shares.setdefault(self._client.leader_of(tp), []).append(tp)
        found = await asyncio.gather(*(self._fetch(node_id, share, max_records) for node_id, share in shares.items()))
        return [acquired for each in found for acquired in each]

    async def _fetch(self, node_id: int, share: Sequence[TopicPartition], max_records: int) -> list[Acquired]:
        topics = self._client.known.topics
        epoch = self._epochs.get(node_id, 0)
        partition = ShareFetchRequest.FetchPartition
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=epoch,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            max_records=max_records,
            batch_size=max_records,
            topics=[
                ShareFetchRequest.FetchTopic(
                    topic_id=topics[topic].topic_id, partitions=[partition(partition_index=index) for index in indexes]
                )
                for topic, indexes in (grouped(share).items() if epoch == 0 else ())
            ],
        )
        response = await self._client.ask(request, node_id)
        if response.error_code in _SESSION_LOST:
            self._epochs[node_id] = 0
            return []
        if response.error_code:
            raise error_for(response.error_code, response.error_message or None)
        self._epochs[node_id] = epoch + 1
        names = {topic.topic_id: topic.name for topic in topics.values()}
        return [
            Acquired(
                (names[topic.topic_id], data.partition_index),
                list(any_batches(data.records or b"")),
                [(run.first_offset, run.last_offset, run.delivery_count) for run in data.acquired_records],
            )
            for topic in response.responses
            for data in topic.partitions
            if data.acquired_records
        ]

    async def acknowledge(self, decisions: Iterable[Acknowledgement]) -> None:
        by_node: dict[int, list[Acknowledgement]] = {}
        for each in decisions:
            by_node.setdefault(self._client.leader_of(each.tp), []).append(each)
        for node_id, share in by_node.items():
            response = await self._client.ask(self._acknowledging(node_id, share), node_id)
            if response.error_code:
                self._epochs[node_id] = 0
                raise error_for(response.error_code, response.error_message or None)
            self._epochs[node_id] += 1

    def _acknowledging(self, node_id: int, share: Sequence[Acknowledgement]) -> ShareAcknowledgeRequest:
        batch = ShareAcknowledgeRequest.AcknowledgementBatch
        batches: dict[TopicPartition, list[ShareAcknowledgeRequest.AcknowledgementBatch]] = {}
        for each in share:
            entry = batch(first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[each.kind])
            batches.setdefault(each.tp, []).append(entry)
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epochs[node_id],
            topics=[
                ShareAcknowledgeRequest.AcknowledgeTopic(
                    topic_id=self._client.known.topics[topic].topic_id,
                    partitions=[
                        ShareAcknowledgeRequest.AcknowledgePartition(
                            partition_index=index, acknowledgement_batches=batches[topic, index]
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in grouped(batches).items()
            ],
        )

    async def close(self) -> None:
        """End the sessions; the leaders release unacknowledged records."""
        for node_id, epoch in self._epochs.items():
            if epoch:
                request = ShareFetchRequest(
                    group_id=self._group, member_id=self._member_id, share_session_epoch=_CLOSE, topics=[]
                )
                await self._client.ask(request, node_id)
        self._epochs = {}
