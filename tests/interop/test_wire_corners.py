"""Requests that hardly any client sends, with the answers of Apache Kafka."""

from collections.abc import Callable

import pytest

from ottla.enums import ConfigResourceType, IsolationLevel
from ottla.errors import (
    NONE,
    InvalidTopicException,
    MemberIdRequired,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    TransactionAbortable,
    UnknownLeaderEpoch,
    UnknownServerError,
)
from ottla.wire import messages as m
from support.batches import batch, batches_of, records_of
from support.interop.transacting import Transacting, find_group, mark
from support.requests import new_topic
from support.wire import Wire

# -- text that is not UTF-8 is read with replacement characters; the last of these is half a surrogate pair

NO_TEXT = [
    (b"a\xff\xc3(b", "a\ufffd\ufffd(b"),
    (b"\xe2\x82\xe2\x82\xac", "\ufffd\u20ac"),
    (b"x\xed\xa0\x80y", "x\ufffdy"),
]
STAND_IN = "?!?!?"


@pytest.mark.parametrize(("sent", "read"), NO_TEXT)
@pytest.mark.parametrize("version", [1, 8, 12])
def test_topic_names_that_are_not_utf8(version: int, sent: bytes, read: str, wire: Wire) -> None:
    entry = m.MetadataRequest.MetadataRequestTopic(name=STAND_IN)
    request = m.MetadataRequest(topics=[entry], allow_auto_topic_creation=True)
    (found,) = wire.call(request, version, (STAND_IN.encode(), sent)).topics
    assert (found.name, found.error_code) == (read, InvalidTopicException.code)


@pytest.mark.parametrize(("sent", "read"), NO_TEXT)
@pytest.mark.parametrize("version", [4, 7])
def test_creating_topics_with_names_that_are_not_utf8(version: int, sent: bytes, read: str, wire: Wire) -> None:
    request = m.CreateTopicsRequest(topics=[new_topic(STAND_IN)], timeout_ms=30000)
    (found,) = wire.call(request, version, (STAND_IN.encode(), sent)).topics
    assert (found.name, found.error_code) == (read, InvalidTopicException.code)


def test_a_group_id_that_is_not_utf8(wire: Wire, unique: Callable[[str], str]) -> None:
    name = find_group(wire, unique("g")) + "\u20ac"
    change = ("\u20ac".encode(), b"\xe2\x28\xa1")
    find_group(wire, name.replace("\u20ac", "\ufffd(\ufffd"))
    request = m.JoinGroupRequest(
        group_id=name,
        session_timeout_ms=10000,
        rebalance_timeout_ms=10000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert wire.call(request, 4, change).error_code == MemberIdRequired.code
    (found,) = wire.call(m.DescribeGroupsRequest(groups=[name]), 5, change).groups
    assert found.group_id == name.replace("\u20ac", "\ufffd(\ufffd")


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"])
def test_every_negative_count_means_null(length: bytes, topic: str, wire: Wire) -> None:
    wire.client_id = None
    found = wire.call(
        m.MetadataRequest(topics=None, allow_auto_topic_creation=False), 4, (b"\xff\xff\xff\xff\x00", length + b"\x00")
    )
    assert topic in [each.name for each in found.topics]


# -- settings, markers, tokens


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "+5", "5"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("preallocate", " TRUE ", "true"),
    ],
)
def test_settings_of_a_new_topic_are_answered_as_given(
    name: str, given: str, meant: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    topic = new_topic(unique("t"), **{name: given})
    (made,) = wire.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=30000), 7).topics
    assert made.error_code == NONE
    assert [config.value for config in made.configs if config.name == name] == [given]
    wire.wait_until_ready(topic.name)
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, configuration_keys=[name]
    )
    (found,) = wire.call(m.DescribeConfigsRequest(resources=[resource]), 4).results
    assert [config.value for config in found.configs] == [meant]


@pytest.mark.parametrize(
    ("producer", "code"),
    [((-1, 0), UnknownServerError.code), ((-2, -1), UnknownServerError.code), ((-2, 0), NONE), ((-(1 << 63), 5), NONE)],
)
def test_markers_of_negative_producers(producer: tuple[int, int], code: int, topic: str, wire: Wire) -> None:
    assert mark(wire, producer, True, topic, 0) == [code]
    batches = batches_of(wire.fetch(topic, 0))
    assert [(one.producer_id, one.producer_epoch, one.is_control) for one in batches] == (
        [(*producer, True)] if code == NONE else []
    )


def test_a_token_for_an_unknown_principal_type(wire: Wire) -> None:
    request = m.CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name="alice", renewers=[], max_lifetime_ms=-1
    )
    answer = wire.call(request, 3)
    assert (answer.error_code, answer.principal_type, answer.principal_name) == (
        UnknownServerError.code,
        "User",
        "ANONYMOUS",
    )


# -- fetches of clients that claim to be replicas


@pytest.mark.parametrize("version", [11, 12, 14, 17])
@pytest.mark.parametrize(("epoch", "code"), [(-1, NotLeaderOrFollower.code), (0, UnknownLeaderEpoch.code)])
def test_a_fetch_with_an_unknown_replica_id(version: int, epoch: int, code: int, topic: str, wire: Wire) -> None:
    request = wire.fetch_request([(topic, 0, 0)], version, current_leader_epoch=epoch)
    if version < 15:
        request.replica_id = 7
    else:
        request.replica_state = m.FetchRequest.ReplicaState(replica_id=7, replica_epoch=-1)
    answer = wire.call(request, version)
    found = answer.responses[0].partitions[0]
    assert (found.error_code, found.high_watermark) == (code, -1)
    # A consumer would get the leader and its address.
    assert (found.current_leader is not None) == (version >= 16 and code == NotLeaderOrFollower.code)
    assert answer.node_endpoints == []


# -- a batch whose transaction could not be verified delays later batches


@pytest.mark.parametrize(
    ("sequence", "codes"),
    [
        (0, {0: NONE, 1: OutOfOrderSequenceNumber.code}),
        (5, {0: NONE, 1: NONE}),
        (2, {3: OutOfOrderSequenceNumber.code, 0: NONE, 1: NONE}),
    ],
)
def test_batches_after_one_that_waits_for_its_transaction(
    sequence: int, codes: dict[int, int], topic: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    transaction = Transacting(wire, unique("tx")).start()
    # There was no AddPartitionsToTxn, and a produce request of this version does not add the partition itself.
    assert transaction.produce(topic, b"x", sequence=sequence, version=11).error_code == TransactionAbortable.code
    plain = {"transactional": False, "transactional_id": None, "version": 11}
    found = {each: transaction.produce(topic, b"x", sequence=each, **plain).error_code for each in codes}
    assert found == codes


def test_a_transaction_releases_batches_that_waited_for_it(
    topic: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    transaction = Transacting(wire, unique("tx")).start()
    assert transaction.produce(topic, b"x", sequence=0, version=11).error_code == TransactionAbortable.code
    assert transaction.add((topic, [0])) == {(topic, 0): NONE}
    assert transaction.produce(topic, b"x", sequence=1, version=11).error_code == OutOfOrderSequenceNumber.code
    assert transaction.produce(topic, b"x", sequence=0, version=11).error_code == NONE
    assert transaction.produce(topic, b"x", sequence=1, version=11).error_code == NONE


@pytest.mark.parametrize("version", [4, 12, 14, 17])
@pytest.mark.parametrize(("replica", "told"), [(-1, []), (-2, []), (-3, None)])
def test_a_negative_replica_id_is_treated_as_in_kafka(
    version: int, replica: int, told: list[object] | None, topic: str, wire: Wire
) -> None:
    wire.produce(topic, batch(b"x"))
    request = wire.fetch_request([(topic, 0, 0)], version, isolation_level=IsolationLevel.READ_COMMITTED)
    if version < 15:
        request.replica_id = replica
    else:
        request.replica_state = m.FetchRequest.ReplicaState(replica_id=replica, replica_epoch=-1)
    for _ in range(4):
        found = wire.call(request, version).responses[0].partitions[0]
        assert (found.error_code, len(records_of(found)), found.aborted_transactions) == (0, 1, told)
