"""Requests that hardly a client sends, and what Apache Kafka makes of them."""

from collections.abc import Callable

import pytest
from interop.transacting import find_group
from interop.wire import Wire, new_topic

from ottla.wire import messages as m

NONE, UNKNOWN_TOPIC, INVALID_TOPIC, MEMBER_ID_REQUIRED = 0, 3, 17, 79

# -- text that is no UTF-8 is read with replacement characters; the last of these is half a surrogate pair

NO_TEXT = [
    (b"a\xff\xc3(b", "a\ufffd\ufffd(b"),
    (b"\xe2\x82\xe2\x82\xac", "\ufffd\u20ac"),
    (b"x\xed\xa0\x80y", "x\ufffdy"),
]
STAND_IN = "?!?!?"


@pytest.mark.parametrize(("sent", "read"), NO_TEXT)
@pytest.mark.parametrize("version", [1, 8, 12])
def test_topics_whose_names_are_no_text(version: int, sent: bytes, read: str, wire: Wire) -> None:
    entry = m.MetadataRequest.MetadataRequestTopic(name=STAND_IN)
    request = m.MetadataRequest(topics=[entry], allow_auto_topic_creation=True)
    (found,) = wire.call(request, version, (STAND_IN.encode(), sent)).topics
    assert (found.name, found.error_code) == (read, INVALID_TOPIC)


@pytest.mark.parametrize(("sent", "read"), NO_TEXT)
@pytest.mark.parametrize("version", [4, 7])
def test_creation_of_topics_whose_names_are_no_text(version: int, sent: bytes, read: str, wire: Wire) -> None:
    request = m.CreateTopicsRequest(topics=[new_topic(STAND_IN)], timeout_ms=30000)
    (found,) = wire.call(request, version, (STAND_IN.encode(), sent)).topics
    assert (found.name, found.error_code) == (read, INVALID_TOPIC)


def test_a_group_whose_name_is_no_text(wire: Wire, unique: Callable[[str], str]) -> None:
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
    assert wire.call(request, 4, change).error_code == MEMBER_ID_REQUIRED
    (found,) = wire.call(m.DescribeGroupsRequest(groups=[name]), 5, change).groups
    assert found.group_id == name.replace("\u20ac", "\ufffd(\ufffd")


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"])
def test_every_negative_count_means_null(length: bytes, topic: str, wire: Wire) -> None:
    wire.client_id = None
    found = wire.call(
        m.MetadataRequest(topics=None, allow_auto_topic_creation=False), 4, (b"\xff\xff\xff\xff\x00", length + b"\x00")
    )
    assert topic in [each.name for each in found.topics]
