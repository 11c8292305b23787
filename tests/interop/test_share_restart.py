"""Share groups survive a restart: acknowledged records stay acknowledged, others are delivered again."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from ottla.wire.messages import ShareGroupDescribeRequest
from support.batches import batch
from support.interop.sharing import ACCEPT, REJECT, RELEASE, Sharer
from support.wire import Wire


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_group_continues_after_a_restart(start_broker: Callable[..., Any], how: int) -> None:
    broker = start_broker()
    with Wire(broker.address) as wire:
        topic = wire.create_topic("t")
        place = (wire.topic_id(topic), 0)
        for number in range(3):
            wire.produce(topic, batch(*[b"%d-%d" % (number, each) for each in range(4)]))
        one = Sharer(wire, "g", "member")
        one.configure(share_auto_offset_reset="earliest")
        epoch = one.join(topic).member_epoch
        assert one.take_soon(place, most=8) == [(0, 7, 1)]
        assert one.tell(place, (0, 1, [ACCEPT]), (3, 3, [RELEASE]), (5, 5, [REJECT])) == (0, "")
        broker.stop(how)  # with the connection open: closing it would release the member's records
    again = start_broker(data=broker.data)
    with Wire(again.address) as wire:
        one = Sharer(wire, "g", "member")
        (found,) = wire.call(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups
        assert (found.group_state, found.group_epoch) == ("Stable", epoch)
        assert one.beat(epoch).member_epoch == epoch
        # 3 was released after one delivery; the coordinator never learned about 2, 4, 6 and 7.
        assert one.take_soon(place) == [(2, 2, 1), (3, 3, 2), (4, 4, 1), (6, 11, 1)]
        assert one.tell(place, (2, 4, [ACCEPT]), (6, 11, [ACCEPT])) == (0, "")
        assert one.stands(topic)[1] == 0
