"""Group members that join over raw sockets, many in one thread; measures the time until each has an assignment."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.bench.client import SIZE, Client, connect, decode_response, frame, raise_for, receive_frame, retried
from ottla.bench.load import Result, Spec
from ottla.bench.loads.requests import OFFSET_COMMIT_VERSION as COMMIT_VERSION
from ottla.bench.loads.requests import pipelined
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
)
from ottla.metadata.topics import GROUP_METADATA_TOPIC, internal_partition
from ottla.wire.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

JOIN_VERSION = 7
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
# Members with an assignment check often for a rebalance, so that the figure shows the broker and not the clients'
# default interval of 3 s.
HEARTBEAT_SECONDS = 0.002
LONG_SESSION_MS = 1_800_000
JOIN_SECONDS = 60.0
# Kafka's errors while a coordinator takes over the partition of a new group.
NOT_YET = {CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code}
PROTOCOL = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\5bench\xff\xff\xff\xff")


def join_request(group: str, member_id: str, session_timeout_ms: int = 30_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[PROTOCOL],
    )


def sync_request(group: str, joined: JoinGroupResponse) -> SyncGroupRequest:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment
    leads = joined.leader == joined.member_id
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment(member_id=each.member_id, assignment=b"\0\1") for each in joined.members]
        if leads
        else [],
    )


class Member:
    """Joins, joins again with its assigned id, syncs; then sends heartbeats until all members have an assignment."""

    def __init__(self, address: tuple[str, int], group: str) -> None:
        self.group = group
        self.sock = connect(address)
        self.sock.setblocking(False)
        self.received = bytearray()
        self.joined: Any = None
        self.assigned = False
        self.synced_generation = -1
        self.next_heartbeat = float("inf")
        self.asked: tuple[Any, int] = (JoinGroupRequest, JOIN_VERSION)

    def send(self, request: Any, version: int) -> None:
        self.asked = (type(request), version)
        self.sock.sendall(frame(request, version))

    def join(self) -> None:
        self.send(join_request(self.group, self.joined.member_id if self.joined else ""), JOIN_VERSION)

    def on_readable(self, now: float) -> None:
        self.received += self.sock.recv(65536)
        if len(self.received) < 4 or len(self.received) < 4 + SIZE.unpack_from(self.received)[0]:
            return
        payload, self.received = bytes(self.received[4:]), bytearray()
        request_type, version = self.asked
        self.on_response(decode_response(request_type.API_KEY, version, payload), now)

    def on_response(self, response: Any, now: float) -> None:
        if response.error_code == RebalanceInProgress.code:
            self.next_heartbeat = float("inf")
            self.join()
        elif isinstance(response, JoinGroupResponse):
            if response.error_code in NOT_YET:
                self.join()
                return
            self.joined = response
            if response.error_code == MemberIdRequired.code:
                self.join()
                return
            raise_for(response.error_code)
            self.send(sync_request(self.group, response), SYNC_VERSION)
        else:
            raise_for(response.error_code)
            if isinstance(response, SyncGroupResponse):
                self.assigned = self.assigned or bool(response.assignment)
                self.synced_generation = self.joined.generation_id
            self.next_heartbeat = now + HEARTBEAT_SECONDS

    def heartbeat(self) -> None:
        self.next_heartbeat = float("inf")
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.joined.generation_id, member_id=self.joined.member_id
        )
        self.send(request, HEARTBEAT_VERSION)


def _serve(members: list[Member], done: Callable[[], bool], *, heartbeats: bool = True) -> None:
    """Handle the answers to the members until `done`."""
    deadline = time.perf_counter() + JOIN_SECONDS
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.sock, selectors.EVENT_READ, member)
        while not done():
            for key, _ in selector.select(HEARTBEAT_SECONDS / 2):
                key.data.on_readable(time.perf_counter())
            now = time.perf_counter()
            for member in members:
                if heartbeats and member.next_heartbeat <= now:
                    member.heartbeat()
            if now > deadline:
                raise TimeoutError(f"{sum(each.assigned for each in members)} of {len(members)} members were assigned")


def _join_all(members: list[Member]) -> None:
    for member in members:
        member.join()
    _serve(members, lambda: all(member.assigned for member in members))


def _settle(members: list[Member]) -> None:
    """Run until all members are in the same generation, with no request in flight."""
    _serve(members, lambda: len({member.synced_generation for member in members}) == 1)
    _serve(members, lambda: all(member.next_heartbeat < float("inf") for member in members), heartbeats=False)


def join(spec: Spec) -> Callable[[], Result]:
    """`members` join a new group at once, `rounds` times; measures seconds until the last has an assignment."""
    address = (spec["host"], spec["port"])
    with Client(address) as client:
        client.require(JoinGroupRequest, JOIN_VERSION)
        client.require(SyncGroupRequest, SYNC_VERSION)
        client.require(HeartbeatRequest, HEARTBEAT_VERSION)
        groups = [f"{spec['group']}-{index}" for index in range(spec["rounds"])]
        coordinators = [client.coordinator(group, "group") for group in groups]
    rounds = [
        [Member(coordinator, group) for _ in range(spec["members"])]
        for group, coordinator in zip(groups, coordinators, strict=True)
    ]

    def timed() -> Result:
        latencies = []
        for members in rounds:
            started = time.perf_counter()
            _join_all(members)
            latencies.append(time.perf_counter() - started)
            for member in members:
                member.sock.close()
        return {"latencies": latencies}

    return timed


def _asked(client: Client, request: Any, version: int) -> Any:
    response = client.call(request, version)
    raise_for(response.error_code)
    return response


def idle_groups(spec: Spec) -> Callable[[], Result]:
    """Create `groups` groups with one member each, numbered from `first`, and leave them idle."""
    found = Client((spec["host"], spec["port"]))
    # Up to v3 a member needs only one join, which halves the requests.
    found.require(JoinGroupRequest, 3)
    found.require(SyncGroupRequest, SYNC_VERSION)
    # The leader of a group's partition is its coordinator, so there is no need to look up each one.
    leaders = found.leaders(GROUP_METADATA_TOPIC)
    clients = {leader: Client(leader) for leader in set(leaders)}

    def timed() -> Result:
        for number in range(spec["first"], spec["first"] + spec["groups"]):
            group = f"{spec['group']}-{number}"
            client = clients[leaders[internal_partition(group, len(leaders))]]
            # The coordinator may still be loading if the broker has just started.
            joined = retried(partial(_asked, client, join_request(group, "", LONG_SESSION_MS), 3))
            _asked(client, sync_request(group, joined), 1)
        return {"groups": spec["groups"]}

    return timed


def member_requests(spec: Spec) -> Callable[[], Result]:
    """One member of a group with `members` members sends heartbeats or commits (`kind`) for `limit_seconds`."""
    with Client((spec["host"], spec["port"])) as client:
        for request_type, version in ((HeartbeatRequest, HEARTBEAT_VERSION), (OffsetCommitRequest, COMMIT_VERSION)):
            client.require(request_type, version)
        coordinator = client.coordinator(spec["group"], "group")
    members = [Member(coordinator, spec["group"]) for _ in range(spec["members"])]
    _join_all(members)
    _settle(members)
    member = members[0]
    known = {"group_id": spec["group"], "member_id": member.joined.member_id}
    generation = member.joined.generation_id
    if spec["kind"] == "heartbeat":
        encoded = frame(HeartbeatRequest(generation_id=generation, **known), HEARTBEAT_VERSION)
    else:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        topics = [topic(name=spec["topic"], partitions=[partition])]
        commit = OffsetCommitRequest(generation_id_or_member_epoch=generation, topics=topics, **known)
        encoded = frame(commit, COMMIT_VERSION)
    sock = member.sock
    sock.settimeout(None)
    sock.sendall(encoded)
    first = receive_frame(sock)
    _check(spec["kind"], first)

    def timed() -> Result:
        answered, last = pipelined(sock, encoded, 4 + len(first), 5, spec["limit_seconds"])
        _check(spec["kind"], last[4:])
        return {"requests": answered}

    return timed


def _check(kind: str, payload: bytes | bytearray) -> None:
    if kind == "heartbeat":
        raise_for(decode_response(HeartbeatRequest.API_KEY, HEARTBEAT_VERSION, payload).error_code)
    else:
        answer = decode_response(OffsetCommitRequest.API_KEY, COMMIT_VERSION, payload)
        raise_for(answer.topics[0].partitions[0].error_code)
