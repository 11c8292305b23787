"""Streams groups of a broker of several processes: the controller creates the internal topics, wherever it is."""

import time
from typing import Any

from ottla.wire.messages import CreateTopicsRequest, FindCoordinatorRequest, MetadataRequest
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Beat
from support.streams import joining

DEADLINE_SECONDS = 60.0


def test_groups_on_every_worker_get_their_internal_topics(serving: Any) -> None:
    ports = serving.ports()
    wire = serving.wire(next(iter(ports.values())))
    topic = CreateTopicsRequest.CreatableTopic(name="source", num_partitions=3, replication_factor=1)
    assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0
    homes = set()
    for number in range(40):
        group = f"app-{number}"
        (home,) = wire.call(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators
        if home.node_id in homes:
            continue
        homes.add(home.node_id)
        own = serving.wire(ports[home.node_id])
        deadline = time.monotonic() + DEADLINE_SECONDS
        beat, tasks = joining(group, "source", f"{group}-store"), None
        while not tasks:
            assert time.monotonic() < deadline
            answer = own.call(beat, 0)
            assert answer.error_code == 0, answer
            tasks = answer.active_tasks
            beat = Beat(group_id=group, member_id="m", member_epoch=answer.member_epoch)
            time.sleep(0.05)
        assert [(each.subtopology_id, each.partitions) for each in tasks] == [("0", [0, 1, 2])]
        named = [MetadataRequest.MetadataRequestTopic(name=f"{group}-store")]
        (made,) = own.call(MetadataRequest(topics=named, allow_auto_topic_creation=False), 12).topics
        assert len(made.partitions) == 3
    assert homes == set(ports)
