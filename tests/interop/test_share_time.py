"""Share groups and time, in a broker whose clock a test advances: locks and sessions expire."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import serve
from ottla.wire.messages import ShareGroupDescribeRequest
from support.batches import batch
from support.interop.sharing import ACCEPT, RENEW, Sharer, taken
from support.wire import Wire

LOCK_S, SESSION_S = 30, 45


@pytest.fixture
def broker() -> Iterator[Any]:
    """Ottla, even if other tests run on another broker."""
    with serve(clock="virtual") as running:
        yield running


@pytest.fixture
def wire(broker: Any) -> Iterator[Wire]:
    host, _, port = broker.bootstrap.rpartition(":")
    with Wire((host, int(port))) as connection:
        yield connection


def test_locks_expire(broker: Any, wire: Wire) -> None:
    topic = wire.create_topic("t")
    place = (wire.topic_id(topic), 0)
    wire.produce(topic, batch(b"a", b"b", b"c", b"d"))
    one = Sharer(wire, "g")
    one.configure(share_delivery_count_limit=2)
    one.start_at(topic, p0=0)
    assert one.take(place) == [(0, 3, 1)]
    broker.clock.advance(seconds=LOCK_S - 1)
    assert one.tell(place, (0, 0, [ACCEPT]), (1, 1, [RENEW]), renews=True) == (0, "")
    broker.clock.advance(seconds=2)
    assert one.take() == [(2, 3, 2)], "1 is still acquired"
    broker.clock.advance(seconds=LOCK_S)
    assert one.take() == [(1, 1, 2)], "2 and 3 reached the delivery limit"
    assert one.tell(place, (1, 1, [ACCEPT])) == (0, "")
    assert one.stands(topic)[1] == 0


def test_a_waiting_fetch_gets_records_of_an_expired_lock(broker: Any, wire: Wire) -> None:
    topic = wire.create_topic("t")
    place = (wire.topic_id(topic), 0)
    wire.produce(topic, batch(b"a", b"b"))
    one, other = Sharer(wire, "g"), Sharer(wire, "g")
    one.start_at(topic, p0=0)
    assert one.take(place) == [(0, 1, 1)]
    assert other.take(place) == []
    with Wire(wire.address) as waiting:
        waiting.send(other.fetch_request(wait_ms=10 * LOCK_S * 1000), 2)
        broker.clock.advance(seconds=LOCK_S)
        assert taken(waiting.receive()) == [(0, 1, 2)]


def test_silent_members_are_removed(broker: Any, wire: Wire) -> None:
    topic = wire.create_topic("t")
    one = Sharer(wire, "g", "m")
    one.find()
    joined = one.beat(0, [topic])
    broker.clock.advance(seconds=2)
    got = one.beat(joined.member_epoch)
    assert [each.partitions for each in got.assignment.topic_partitions] == [[0]]
    broker.clock.advance(seconds=SESSION_S - 1)
    assert one.beat(got.member_epoch).error_code == 0
    broker.clock.advance(seconds=SESSION_S + 1)
    (found,) = wire.call(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (found.group_state, found.members) == ("Empty", [])
