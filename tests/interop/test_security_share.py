"""ACLs of share groups, on both brokers: the errors for a user without any rights, or with rights on the group only."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.enums import AclOperation, ResourceType
from ottla.errors import ClusterAuthorizationFailed, GroupAuthorizationFailed, TopicAuthorizationFailed
from ottla.wire import messages as m
from support.interop.secured import Secured, acls
from support.interop.sharing import Sharer
from support.wire import Wire


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.jvm)])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder: Path = tmp_path_factory.mktemp("secured") / request.param
    broker = Secured(request.param, folder)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def admin(secured: Secured) -> Iterator[Wire]:
    with secured.wire() as wire:
        yield wire


@pytest.fixture(scope="module")
def topic(admin: Wire) -> str:
    name = admin.create_topic("secret-topic")
    Sharer(admin, "g").start_at(name, p0=0)
    return name


@pytest.fixture
def alice(secured: Secured, topic: str) -> Iterator[Wire]:
    with secured.wire("alice") as wire:
        yield wire


@pytest.fixture
def allow(admin: Wire, secured: Secured) -> Iterator[Callable[..., None]]:
    with acls(secured, admin) as add:
        yield add


def test_every_share_request_is_denied_without_acls(alice: Wire, admin: Wire, topic: str) -> None:
    one, topic_id = Sharer(alice, "g"), admin.topic_id(topic)
    assert one.beat(0, [topic]).error_code == GroupAuthorizationFailed.code
    described = alice.call(m.ShareGroupDescribeRequest(group_ids=["g"]), 1)
    assert described.groups[0].error_code == GroupAuthorizationFailed.code
    assert one.fetch([(topic_id, 0)]).error_code == GroupAuthorizationFailed.code
    assert one.acknowledge({}, epoch=1).error_code == GroupAuthorizationFailed.code
    assert one.offsets().error_code == GroupAuthorizationFailed.code
    assert one.alter(**{topic: {0: 1}}).error_code == GroupAuthorizationFailed.code
    assert one.forget(topic).error_code == GroupAuthorizationFailed.code


@pytest.mark.parametrize(
    ("request_type", "topic_type", "fields"),
    [
        (m.InitializeShareGroupStateRequest, "InitializeStateData", {"state_epoch": 0, "start_offset": 0}),
        (m.ReadShareGroupStateRequest, "ReadStateData", {"leader_epoch": 0}),
        (m.WriteShareGroupStateRequest, "WriteStateData", {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0}),
        (m.DeleteShareGroupStateRequest, "DeleteStateData", {}),
        (m.ReadShareGroupStateSummaryRequest, "ReadStateSummaryData", {"leader_epoch": 0}),
    ],
)
def test_share_state_requests_need_cluster_action(
    alice: Wire, admin: Wire, topic: str, request_type: Any, topic_type: str, fields: Any
) -> None:
    data = getattr(request_type, topic_type)(
        topic_id=admin.topic_id(topic), partitions=[request_type.PartitionData(partition=0, **fields)]
    )
    answer = alice.call(request_type(group_id="g", topics=[data]), 0)
    assert answer.results[0].partitions[0].error_code == ClusterAuthorizationFailed.code


def test_the_topic_has_to_be_allowed_too(alice: Wire, admin: Wire, topic: str, allow: Callable[..., None]) -> None:
    for operation in (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE):
        allow(ResourceType.GROUP, "g", operation)
    one, place = Sharer(alice, "g"), (admin.topic_id(topic), 0)
    assert one.beat(0, [topic]).error_code == TopicAuthorizationFailed.code
    answer = one.fetch([place])
    assert (answer.error_code, [each.error_code for each in answer.responses[0].partitions]) == (
        0,
        [TopicAuthorizationFailed.code],
    )
    assert one.tell(place, (0, 0, [1]))[0] == TopicAuthorizationFailed.code
    assert [each.error_code for each in one.alter(**{topic: {0: 1}}).responses[0].partitions] == [
        TopicAuthorizationFailed.code
    ]
    assert [each.error_code for each in one.forget(topic).responses] == [TopicAuthorizationFailed.code]
    found = one.offsets({topic: [0]})
    assert (found.error_code, [each.error_code for each in found.topics[0].partitions]) == (
        0,
        [TopicAuthorizationFailed.code],
    )
    assert one.offsets().topics == []
    allow(ResourceType.TOPIC, topic, AclOperation.READ)
    assert one.stands(topic) == (0, 0)
    assert one.alter(**{topic: {0: 0}}).responses[0].partitions[0].error_code == 0
