"""The requests of the quorum, to the active controller and to another one: the refusals and their fields.

Some requests are not tested, because they stop a controller of Apache Kafka 4.3.1: another leader in the same epoch,
and Fetch or FetchSnapshot without a topic. Its refusals of FetchSnapshot are all UNKNOWN_SERVER_ERROR, by a bug.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from ottla.errors import (
    NONE,
    DuplicateBrokerRegistration,
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRegistration,
    InvalidRequest,
    InvalidVoterKey,
    NotController,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    VoterNotFound,
)
from ottla.raft.messages import TOPIC, TOPIC_ID
from ottla.wire.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BrokerRegistrationRequest,
    DescribeClusterRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from ottla.wire.primitives import ZERO_UUID
from support.interop.clusters import Clustered
from support.quorum import describe_quorum
from support.wire import Wire

Check = Callable[[object, object], None]

STRANGE_ID = b"\7" * 16
NO_VOTER = 77


class Asked(NamedTuple):
    """The active controller or another one, and their state of the quorum."""

    wire: Wire
    node_id: int
    cluster_id: str
    leader_id: int
    epoch: int
    other_id: int
    leader_address: tuple[str, int]

    @property
    def leads(self) -> bool:
        return self.node_id == self.leader_id


@pytest.fixture
def controllers(quorum: Clustered) -> Iterator[list[Asked]]:
    """The active controller first."""
    while quorum.ask_any(describe_quorum(), 2).topics[0].partitions[0].leader_epoch < 2:
        quorum.kill_controller()  # so that there is an epoch before the current one
        quorum.mend()
    cluster_id = quorum.ask_any(DescribeClusterRequest(), 1).cluster_id
    with ExitStack() as open_wires:

        def agreeing() -> list[Asked] | None:
            answer = quorum.ask_any(describe_quorum(), 2)
            seen = answer.topics[0].partitions[0]
            addresses = {node.node_id: (node.listeners[0].host, node.listeners[0].port) for node in answer.nodes}
            follower, other = (each for each in sorted(addresses) if each != seen.leader_id)
            open_wires.close()
            found = [
                Asked(
                    open_wires.enter_context(Wire(addresses[node])),
                    node,
                    cluster_id,
                    seen.leader_id,
                    seen.leader_epoch,
                    other,
                    addresses[seen.leader_id],
                )
                for node in (seen.leader_id, follower)
            ]
            known = [to.wire.call(fetch(to), 17).responses[0].partitions[0].current_leader for to in found]
            agree = all((each.leader_id, each.leader_epoch) == (seen.leader_id, seen.leader_epoch) for each in known)
            return found if agree else None

        yield quorum.wait(agreeing, "both controllers to know the leader")


def vote(to: Asked, *, voter_id: int | None = None, cluster_id: str | None = None, count: int = 1, **other: Any) -> Any:
    """A candidate that lags asks for a vote in the current epoch; `other` are fields of the partition."""
    fields = {"partition_index": 0, "replica_epoch": to.epoch, "replica_id": to.other_id, "last_offset_epoch": 0}
    partition = VoteRequest.PartitionData(**{**fields, "last_offset": 0, **other})
    return VoteRequest(
        cluster_id=cluster_id or to.cluster_id,
        voter_id=to.node_id if voter_id is None else voter_id,
        topics=[VoteRequest.TopicData(topic_name=TOPIC, partitions=[partition])] * count,
    )


def begin(
    to: Asked, *, cluster_id: str | None = None, voter_id: int | None = None, count: int = 1, **other: Any
) -> Any:
    fields = {"partition_index": 0, "leader_id": to.leader_id, "leader_epoch": to.epoch}
    host, port = to.leader_address
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id or to.cluster_id,
        voter_id=to.node_id if voter_id is None else voter_id,
        topics=[
            BeginQuorumEpochRequest.TopicData(
                topic_name=TOPIC, partitions=[BeginQuorumEpochRequest.PartitionData(**{**fields, **other})]
            )
        ]
        * count,
        leader_endpoints=[BeginQuorumEpochRequest.LeaderEndpoint(name="CONTROLLER", host=host, port=port)],
    )


def end(to: Asked, *, cluster_id: str | None = None, count: int = 1, **other: Any) -> Any:
    fields = {"partition_index": 0, "leader_id": to.leader_id, "leader_epoch": to.epoch}
    return EndQuorumEpochRequest(
        cluster_id=cluster_id or to.cluster_id,
        topics=[
            EndQuorumEpochRequest.TopicData(
                topic_name=TOPIC, partitions=[EndQuorumEpochRequest.PartitionData(**{**fields, **other})]
            )
        ]
        * count,
    )


def fetch(to: Asked, *, cluster_id: str | None = None, count: int = 1, max_wait_ms: int = 0, **other: Any) -> Any:
    fields = {"partition": 0, "current_leader_epoch": to.epoch, "fetch_offset": 0, "last_fetched_epoch": 0}
    partition = FetchRequest.FetchPartition(**{**fields, "partition_max_bytes": 1 << 20, **other})
    return FetchRequest(
        cluster_id=cluster_id or to.cluster_id,
        max_wait_ms=max_wait_ms,
        topics=[FetchRequest.FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])] * count,
    )


def address_in(answer: Any) -> list[tuple[int, str, int]]:
    return [(node.node_id, node.host, node.port) for node in answer.node_endpoints]


def test_votes_are_refused(controllers: list[Asked], check: Check) -> None:
    for to in controllers:
        for wrong, code in (
            ({"cluster_id": "another"}, InconsistentClusterId.code),
            ({"count": 0}, InvalidRequest.code),
            ({"count": 2}, InvalidRequest.code),
            ({"partition_index": 1}, InvalidRequest.code),
        ):
            answer = to.wire.call(vote(to, **wrong), 2)
            check((wrong, answer.error_code, answer.topics, address_in(answer)), (wrong, code, [], []))
        before = to.epoch - 1
        for wrong, code in (
            ({}, NONE),
            ({"replica_epoch": before}, FencedLeaderEpoch.code),
            ({"replica_epoch": before, "last_offset_epoch": before}, InvalidRequest.code),
            ({"replica_id": -1}, InvalidRequest.code),
            ({"last_offset_epoch": -1}, InvalidRequest.code),
            ({"last_offset": -1}, InvalidRequest.code),
            ({"last_offset_epoch": to.epoch}, InvalidRequest.code),
            ({"last_offset_epoch": to.epoch, "pre_vote": True}, NONE),
            ({"last_offset_epoch": to.epoch + 1, "pre_vote": True}, InvalidRequest.code),
            ({"voter_id": NO_VOTER}, InvalidVoterKey.code),
            ({"voter_id": NO_VOTER, "replica_id": -1}, InvalidRequest.code),
            ({"voter_directory_id": STRANGE_ID}, InvalidVoterKey.code),
        ):
            answer = to.wire.call(vote(to, **wrong), 2)
            part = answer.topics[0].partitions[0]
            found = (wrong, part.error_code, part.vote_granted, part.leader_id, part.leader_epoch)
            check(found, (wrong, code, False, to.leader_id, to.epoch))
            check(address_in(answer), [(to.leader_id, *to.leader_address)])
        check(address_in(to.wire.call(vote(to), 0)), [])


def test_announcements_of_leaders_are_refused(controllers: list[Asked], check: Check) -> None:
    for to in controllers:
        for request in (begin, end):
            for wrong, code in (
                ({"cluster_id": "another"}, InconsistentClusterId.code),
                ({"count": 0}, InvalidRequest.code),
                ({"count": 2}, InvalidRequest.code),
                ({"partition_index": 1}, InvalidRequest.code),
            ):
                answer = to.wire.call(request(to, **wrong), 1)
                check((wrong, answer.error_code, answer.topics), (wrong, code, []))
        announced: list[tuple[Callable[..., Any], dict[str, Any], int]] = [
            (begin, {}, NONE),
            (begin, {"leader_epoch": to.epoch - 1}, FencedLeaderEpoch.code),
            (begin, {"leader_id": -1}, InvalidRequest.code),
            (begin, {"voter_id": NO_VOTER}, InvalidVoterKey.code),
            (begin, {"voter_directory_id": STRANGE_ID}, InvalidVoterKey.code),
            (end, {"leader_epoch": to.epoch - 1}, FencedLeaderEpoch.code),
            (end, {"leader_epoch": to.epoch - 1, "leader_id": NO_VOTER}, FencedLeaderEpoch.code),
        ]
        for request, wrong, code in announced:
            answer = to.wire.call(request(to, **wrong), 1)
            part = answer.topics[0].partitions[0]
            found = (wrong, part.error_code, part.leader_id, part.leader_epoch)
            check(found, (wrong, code, to.leader_id, to.epoch))
            check(address_in(answer), [(to.leader_id, *to.leader_address)])


def test_a_later_epoch_counts_in_a_message_for_another_voter(controllers: list[Asked], check: Check) -> None:
    to = controllers[1]
    answer = to.wire.call(vote(to, voter_id=NO_VOTER, replica_epoch=to.epoch + 1), 2)
    part = answer.topics[0].partitions[0]
    check((part.error_code, part.leader_id, part.leader_epoch), (InvalidVoterKey.code, -1, to.epoch + 1))
    check(address_in(answer), [])


def test_an_announcement_for_another_voter_names_the_leader(controllers: list[Asked], check: Check) -> None:
    to = controllers[1]
    request = begin(to, voter_id=NO_VOTER, leader_id=to.other_id, leader_epoch=to.epoch + 1)
    part = to.wire.call(request, 1).topics[0].partitions[0]
    check((part.error_code, part.leader_id, part.leader_epoch), (InvalidVoterKey.code, to.other_id, to.epoch + 1))


def test_a_leader_that_resigns_is_still_the_leader_of_its_epoch(controllers: list[Asked], check: Check) -> None:
    to = controllers[1]
    answer = to.wire.call(end(to), 1)
    part = answer.topics[0].partitions[0]
    check((part.error_code, part.leader_id, part.leader_epoch), (NONE, to.leader_id, to.epoch))
    check(address_in(answer), [(to.leader_id, *to.leader_address)])


def test_fetches_of_the_log_are_refused(controllers: list[Asked], check: Check) -> None:
    for to in controllers:
        for wrong, code in (
            ({"cluster_id": "another"}, InconsistentClusterId.code),
            ({"count": 2}, InvalidRequest.code),
            ({"partition": 1}, InvalidRequest.code),
        ):
            answer = to.wire.call(fetch(to, **wrong), 17)
            check((wrong, answer.error_code, answer.responses), (wrong, code, []))
        check(to.wire.call(fetch(to), 12).error_code, InvalidRequest.code)  # it has no topic id
        right = NONE if to.leads else NotLeaderOrFollower.code
        for wrong, code in (
            ({}, right),
            ({"current_leader_epoch": to.epoch - 1}, FencedLeaderEpoch.code),
            ({"current_leader_epoch": to.epoch + 1}, UnknownLeaderEpoch.code),
            ({"current_leader_epoch": -1}, InvalidRequest.code),
            ({"current_leader_epoch": to.epoch - 1, "last_fetched_epoch": to.epoch}, InvalidRequest.code),
            ({"fetch_offset": -1}, InvalidRequest.code),
            ({"last_fetched_epoch": -1}, InvalidRequest.code),
            ({"max_wait_ms": -1}, InvalidRequest.code),
        ):
            answer = to.wire.call(fetch(to, **wrong), 17)
            part = answer.responses[0].partitions[0]
            found = (wrong, part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch)
            check(found, (wrong, code, to.leader_id, to.epoch))
            check((part.high_watermark > 0, bool(part.records)), (code == NONE, code == NONE))
            check((part.log_start_offset, part.last_stable_offset), (0, -1))
            check(address_in(answer), [(to.leader_id, *to.leader_address)])
        check(address_in(to.wire.call(fetch(to), 16)), [])


def test_changes_of_voters_are_refused(controllers: list[Asked], check: Check) -> None:
    for to in controllers:
        listener = UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=9)
        both = UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
        none = UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=3, max_supported_version=2)
        another = UpdateRaftVoterRequest.Listener(name="ANOTHER", host="127.0.0.1", port=9)
        for wrong, code in (
            ({"cluster_id": "another"}, InconsistentClusterId.code),
            ({"current_leader_epoch": to.epoch - 1}, FencedLeaderEpoch.code),
            ({"current_leader_epoch": to.epoch + 1}, UnknownLeaderEpoch.code),
            ({}, VoterNotFound.code if to.leads else NotLeaderOrFollower.code),
            ({"voter_id": -1}, InvalidRequest.code if to.leads else NotLeaderOrFollower.code),
            ({"voter_directory_id": ZERO_UUID}, InvalidRequest.code if to.leads else NotLeaderOrFollower.code),
            ({"listeners": []}, InvalidRequest.code if to.leads else NotLeaderOrFollower.code),
            ({"listeners": [another]}, InvalidRequest.code if to.leads else NotLeaderOrFollower.code),
            ({"k_raft_version_feature": none}, InvalidRequest.code if to.leads else NotLeaderOrFollower.code),
        ):
            fields = {"cluster_id": to.cluster_id, "current_leader_epoch": to.epoch, "voter_id": NO_VOTER}
            fields |= {"voter_directory_id": STRANGE_ID, "listeners": [listener], "k_raft_version_feature": both}
            answer = to.wire.call(UpdateRaftVoterRequest(**{**fields, **wrong}), 0)
            leader = answer.current_leader
            check((wrong, answer.error_code), (wrong, code))
            check((leader.leader_id, leader.leader_epoch), (to.leader_id, to.epoch))
            check((leader.host, leader.port), to.leader_address)


def test_a_controller_that_does_not_lead_names_the_leader(controllers: list[Asked], check: Check) -> None:
    to = controllers[1]
    part = to.wire.call(describe_quorum(), 2).topics[0].partitions[0]
    check((part.error_code, part.error_message), (NotLeaderOrFollower.code, NotLeaderOrFollower.default_message))
    check((part.leader_id, part.leader_epoch, part.current_voters), (0, 0, []))
    asked = DescribeQuorumRequest.TopicData(
        topic_name="t", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    part = to.wire.call(DescribeQuorumRequest(topics=[asked]), 2).topics[0].partitions[0]
    check(part.error_code, UnknownTopicOrPartition.code)
    adding = AddRaftVoterRequest(timeout_ms=1000, voter_id=NO_VOTER, voter_directory_id=STRANGE_ID)
    removing = RemoveRaftVoterRequest(voter_id=NO_VOTER, voter_directory_id=STRANGE_ID)
    for request in (adding, removing):
        request.cluster_id = "another"
        check(to.wire.call(request, 0).error_code, InconsistentClusterId.code)
        request.cluster_id = to.cluster_id
        answer = to.wire.call(request, 0)
        check((answer.error_code, answer.error_message), (NotLeaderOrFollower.code, ""))
    answer = to.wire.call(UnregisterBrokerRequest(broker_id=99), 0)
    check(answer.error_code, NotController.code)
    check(answer.error_message, f"The active controller appears to be node {to.leader_id}.")


def test_invalid_registrations_of_brokers_are_refused(controllers: list[Asked], check: Check) -> None:
    to = controllers[0]
    new_broker = 50
    levels = {"metadata.version": (7, 30), "group.version": (0, 1), "transaction.version": (0, 2)}
    levels |= dict.fromkeys(("share.version", "streams.version", "eligible.leader.replicas.version"), (0, 1))

    def registered(features: dict[str, tuple[int, int]] = levels, **other: Any) -> Any:
        fields = {"broker_id": new_broker, "cluster_id": to.cluster_id, "incarnation_id": STRANGE_ID}
        return to.wire.call(
            BrokerRegistrationRequest(
                **{**fields, "log_dirs": [STRANGE_ID], **other},
                listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="localhost", port=9)],
                features=[
                    BrokerRegistrationRequest.Feature(name=n, min_supported_version=low, max_supported_version=high)
                    for n, (low, high) in features.items()
                ],
            ),
            4,
        )

    for wrong, code in (
        ({"cluster_id": "another"}, InconsistentClusterId.code),
        ({"broker_id": 1}, DuplicateBrokerRegistration.code),
        ({"log_dirs": []}, InvalidRegistration.code),
        ({"log_dirs": [ZERO_UUID]}, InvalidRegistration.code),
        ({"log_dirs": [bytes(15) + b"\x02"]}, InvalidRegistration.code),
        ({"log_dirs": [STRANGE_ID, STRANGE_ID]}, InvalidRegistration.code),
        ({"features": {}}, InvalidRegistration.code),
        ({"features": {**levels, "metadata.version": (7, 20)}}, UnsupportedVersion.code),
        ({"features": {**levels, "strange": (1, 5)}}, UnsupportedVersion.code),
        ({"features": {"metadata.version": (7, 30)}}, UnsupportedVersion.code),
    ):
        answer = registered(**wrong)
        check((wrong, answer.error_code, answer.broker_epoch), (wrong, code, -1))
    first, second = registered(), registered()
    check((first.error_code, second.error_code), (NONE, NONE))
    check(second.broker_epoch, first.broker_epoch)
    check(registered(broker_id=new_broker + 1).error_code, InvalidRegistration.code)  # the folder is that of the first
    restarted = registered(incarnation_id=b"8" * 16)  # it did not send a heartbeat yet
    check((restarted.error_code, restarted.broker_epoch > first.broker_epoch), (NONE, True))
    check(to.wire.call(UnregisterBrokerRequest(broker_id=new_broker), 0).error_code, NONE)
