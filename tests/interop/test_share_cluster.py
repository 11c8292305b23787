"""Share groups in a cluster: the partition's leader, the group coordinator and the share coordinator are different
brokers."""

from collections.abc import Callable

import pytest

from ottla.enums import CoordinatorType
from ottla.errors import NotLeaderOrFollower
from support.interop.clusters import Clustered
from support.interop.sharing import ACCEPT, RELEASE, Sharer, taken


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_group_continues_with_another_leader(cluster: Clustered, unique: Callable[[str], str], how: str) -> None:
    topic = cluster.create(unique("t"), [[1, 2, 3]])
    for number in range(3):
        assert cluster.produced(1, topic, *[b"%d-%d" % (number, each) for each in range(4)]) == 0
    group = unique("s")
    with cluster.wire(cluster.find(CoordinatorType.GROUP, group).node_id) as coordinator:
        keeper = Sharer(coordinator, group)
        keeper.start_at(topic, p0=0)
        place = (coordinator.topic_id(topic), 0)
    with cluster.wire(2) as follower:
        answer = Sharer(follower, group).fetch([place], wait_ms=500)
        (refused,) = answer.responses[0].partitions
        assert (refused.error_code, refused.current_leader.leader_id) == (NotLeaderOrFollower.code, 1)
        assert [node.node_id for node in answer.node_endpoints] == [1]
    with cluster.wire(1) as leader:
        one = Sharer(leader, group)
        assert one.take_soon(place, most=8) == [(0, 7, 1)]
        assert one.tell(place, (0, 3, [ACCEPT]), (5, 5, [RELEASE])) == (0, "")
        getattr(cluster, how)(1)
    cluster.wait_leads(topic, 2)
    with cluster.wire(2) as leader:
        one = Sharer(leader, group)
        seen: dict[int, int] = {}

        def all_given() -> bool:
            for first, last, count in taken(one.fetch([place] if not one.epoch else [], wait_ms=200)):
                seen.update(dict.fromkeys(range(first, last + 1), count))
            return len(seen) == 8

        cluster.wait(all_given, "what was not accepted")
        assert sorted(seen) == list(range(4, 12))
        assert seen[5] == 2
        assert one.tell(place, (4, 11, [ACCEPT])) == (0, "")
    with cluster.wire(cluster.find(CoordinatorType.GROUP, group).node_id) as coordinator:
        keeper = Sharer(coordinator, group)
        cluster.wait(lambda: keeper.stands(topic)[1] == 0, "no lag")
