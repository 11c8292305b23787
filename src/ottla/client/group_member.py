"""A member of a consumer group: joins, sends heartbeats, gets partitions, commits, leaves.

There are two protocols. In the classic one (JoinGroup, SyncGroup, Heartbeat) the group's leader assigns partitions; in
the consumer protocol (KIP-848) the coordinator does. `Membership` runs either with heartbeats in the background.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from ottla.client.connection import ClientError, ConnectionLost
from ottla.client.offsets import MemberIdentity, grouped
from ottla.client.routing import Client, TopicPartition
from ottla.errors import (
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    error_for,
)
from ottla.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from ottla.wire.schema import Message

SESSION_TIMEOUT_MS: Final = 10_000
REBALANCE_TIMEOUT_MS: Final = 30_000
HEARTBEAT_S: Final = 1.0
PROTOCOL_TYPE: Final = "consumer"
ASSIGNOR: Final = "range"
_LEAVE_EPOCH: Final = -1
_LEAVE_STATIC_EPOCH: Final = -2

Assignment = frozenset[TopicPartition]


class MemberProtocol(Protocol):
    """How a member talks to its coordinator."""

    @property
    def identity(self) -> MemberIdentity: ...

    @property
    def heartbeat_s(self) -> float: ...

    async def join(self) -> Assignment:
        """Join, or rejoin after `beat` returned True. Returns the partitions of this member."""

    async def beat(self) -> bool:
        """Send one heartbeat. True if the member must rejoin."""

    async def leave(self) -> None: ...


class ClassicMember:
    """The classic protocol with the range assignor; the group's leader assigns for all members."""

    heartbeat_s = HEARTBEAT_S

    def __init__(self, client: Client, group: str, topics: Sequence[str], instance_id: str | None = None) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self.identity = MemberIdentity("", -1, instance_id)

    async def join(self) -> Assignment:
        while True:
            joined = await self._joined()
            self.identity = self.identity._replace(member_id=joined.member_id, generation=joined.generation_id)
            shares = await self._shares(joined) if joined.leader == joined.member_id else {}
            synced = await self._client.ask_coordinator(self._group, self._sync_request(joined, shares))
            if synced.error_code == RebalanceInProgress.code:
                continue
            if synced.error_code in (UnknownMemberId.code, IllegalGeneration.code):
                self.identity = self.identity._replace(member_id="")
                continue
            if synced.error_code:
                raise error_for(synced.error_code)
            return _decoded(synced.assignment)

    async def _joined(self) -> Any:
        """The answer to JoinGroup. The broker first assigns an id to a new member (KIP-394)."""
        while True:
            response = await self._client.ask_coordinator(self._group, self._join_request())
            if response.error_code == MemberIdRequired.code:
                self.identity = self.identity._replace(member_id=response.member_id)
            elif response.error_code == UnknownMemberId.code and self.identity.member_id:
                self.identity = self.identity._replace(member_id="")
            elif response.error_code:
                raise error_for(response.error_code)
            else:
                return response

    def _join_request(self) -> JoinGroupRequest:
        entry = JoinGroupRequest.JoinGroupRequestProtocol
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.identity.member_id,
            group_instance_id=self.identity.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                entry(name=ASSIGNOR, metadata=_encoded(ConsumerProtocolSubscription(topics=self._topics), version=1))
            ],
        )

    async def _shares(self, joined: Any) -> dict[str, dict[str, list[int]]]:
        subscriptions = {member.member_id: _subscribed(member.metadata) for member in joined.members}
        topics = sorted({topic for named in subscriptions.values() for topic in named})
        known = (await self._client.metadata(topics)).topics
        counts = {topic: len(known[topic].partitions) if topic in known else 0 for topic in topics}
        return assign_ranges(subscriptions, counts)

    def _sync_request(self, joined: Any, shares: Mapping[str, Mapping[str, list[int]]]) -> SyncGroupRequest:
        share = SyncGroupRequest.SyncGroupRequestAssignment
        part = ConsumerProtocolAssignment.TopicPartition
        return SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.identity.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                share(
                    member_id=member_id,
                    assignment=_encoded(
                        ConsumerProtocolAssignment(
                            assigned_partitions=[part(topic=topic, partitions=of) for topic, of in topics.items()]
                        ),
                        version=1,
                    ),
                )
                for member_id, topics in shares.items()
            ],
        )

    async def beat(self) -> bool:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.identity.generation,
            member_id=self.identity.member_id,
            group_instance_id=self.identity.instance_id,
        )
        code = (await self._client.ask_coordinator(self._group, request)).error_code
        if code == UnknownMemberId.code:
            self.identity = self.identity._replace(member_id="")
        elif code and code not in (RebalanceInProgress.code, IllegalGeneration.code):
            raise error_for(code)
        return bool(code)

    async def leave(self) -> None:
        """Leave. A static member stays until its session ends, so that it can return without a rebalance."""
        if self.identity.instance_id is None and self.identity.member_id:
            member = LeaveGroupRequest.MemberIdentity(member_id=self.identity.member_id)
            request = LeaveGroupRequest(group_id=self._group, member_id=self.identity.member_id, members=[member])
            await self._client.ask_coordinator(self._group, request)


class ConsumerMember:
    """The consumer protocol (KIP-848): heartbeats do everything, and the coordinator assigns."""

    def __init__(self, client: Client, group: str, topics: Sequence[str], instance_id: str | None = None) -> None:
        self._client = client
        self._group = group
        self._topics = sorted(topics)
        self._target: Assignment = frozenset()
        self.heartbeat_s = HEARTBEAT_S
        self.identity = MemberIdentity(str(uuid.uuid4()), 0, instance_id)

    async def join(self) -> Assignment:
        if self.identity.generation == 0:
            await self._send(
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=self._topics,
                instance_id=self.identity.instance_id,
                topic_partitions=[],
            )
        else:  # confirm to the coordinator that we now own exactly these partitions
            await self._send(topic_partitions=self._owned())
        return self._target

    def _owned(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        topics = self._client.known.topics
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topics[topic].topic_id, partitions=indexes)
            for topic, indexes in grouped(self._target).items()
        ]

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
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.identity.member_id,
            member_epoch=self.identity.generation,
            **fields,
        )
        response = await self._client.ask_coordinator(self._group, request)
        if response.error_code:
            raise error_for(response.error_code, response.error_message or None)
        self.identity = self.identity._replace(
            member_id=response.member_id or self.identity.member_id, generation=response.member_epoch
        )
        self.heartbeat_s = min(response.heartbeat_interval_ms / 1000, HEARTBEAT_S)
        if response.assignment is not None:
            self._target = await by_name(self._client, response.assignment.topic_partitions, self._topics)

    async def leave(self) -> None:
        epoch = _LEAVE_EPOCH if self.identity.instance_id is None else _LEAVE_STATIC_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.identity.member_id,
            member_epoch=epoch,
            instance_id=self.identity.instance_id,
        )
        await self._client.ask_coordinator(self._group, request)


class Membership:
    """A member with its heartbeats. It may read `assigned`; `must_join` is set when that may have changed."""

    def __init__(self, protocol: MemberProtocol) -> None:
        self._protocol = protocol
        self._beats: asyncio.Task[None] | None = None
        self.must_join = asyncio.Event()
        self.assigned: Assignment = frozenset()

    @property
    def identity(self) -> MemberIdentity:
        return self._protocol.identity

    async def join(self) -> Assignment:
        """Give up the old partitions and get new ones. Commit before calling this."""
        await self._stop_beats()
        self.assigned = await self._protocol.join()
        self.must_join.clear()
        self._beats = asyncio.create_task(self._beat())
        return self.assigned

    async def _beat(self) -> None:
        while not self.must_join.is_set():
            await asyncio.sleep(self._protocol.heartbeat_s)
            if await self._protocol.beat():
                self.must_join.set()

    def check(self) -> None:
        """Raise the error that ended the heartbeats, if one did."""
        if self._beats is not None and self._beats.done() and not self._beats.cancelled():
            self._beats.result()

    async def leave(self) -> None:
        await self._stop_beats()
        with suppress(KafkaError, ConnectionLost):  # a member that cannot leave times out
            await self._protocol.leave()

    async def _stop_beats(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.wait([self._beats])
            self._beats = None


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Kafka's range assignor: splits each topic into ranges of partitions; the first members get one more."""
    shares: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
    for topic, count in counts.items():
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        each, extra = divmod(count, len(members))
        start = 0
        for number, member in enumerate(members):
            end = start + each + (number < extra)
            if end > start:
                shares[member][topic] = list(range(start, end))
            start = end
    return shares


async def by_name(client: Client, topics: Iterable[Any], subscribed: Sequence[str]) -> Assignment:
    """An assignment with topic ids, converted to the names that the member subscribed to."""
    assigned = list(topics)
    if not assigned:
        return frozenset()
    known = (await client.metadata(subscribed)).topics
    names = {topic.topic_id: topic.name for topic in known.values()}
    return frozenset(
        (names[topic.topic_id], index) for topic in assigned if topic.topic_id in names for index in topic.partitions
    )


def _encoded(message: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + message.encode(version)


def _subscribed(data: bytes) -> list[str]:
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolSubscription.MAX_VERSION)
    subscription, _ = ConsumerProtocolSubscription.decoder(version)(data, 2)
    topics: list[str] = subscription.topics
    return topics


def _decoded(data: bytes) -> Assignment:
    if len(data) < 2:
        return frozenset()
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    assignment, _ = ConsumerProtocolAssignment.decoder(version)(data, 2)
    return frozenset((topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions)


PROTOCOLS: Final[dict[str, type[ClassicMember] | type[ConsumerMember]]] = {
    "classic": ClassicMember,
    "consumer": ConsumerMember,
}


def member_of(
    client: Client, group: str, topics: Sequence[str], *, protocol: str = "classic", instance_id: str | None = None
) -> Membership:
    if protocol not in PROTOCOLS:
        raise ClientError(f"unknown protocol '{protocol}': use {' or '.join(PROTOCOLS)}")
    return Membership(PROTOCOLS[protocol](client, group, topics, instance_id))
