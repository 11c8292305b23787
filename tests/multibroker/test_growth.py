"""A cluster that gets more brokers, and fewer, while clients use it."""

from typing import Any

import pytest

import ottla


@pytest.mark.parametrize("controllers", [None, 3])
def test_brokers_come_and_go_and_no_record_is_lost(run: Any, wire: Any, controllers: int | None) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.wait_in_sync()
        assert (await wire.produce(cluster, 1, b"a", b"b")).error_code == 0
        assert await cluster.add_broker(rack="z") == 4
        assert cluster.broker(4).server.metadata.brokers[4].rack == "z"
        assert {node: len(image.server.metadata.brokers) for node, image in cluster.brokers.items()} == {
            1: 4, 2: 4, 3: 4, 4: 4,
        }  # fmt: skip
        seen: list[tuple[int, int]] = []
        await cluster.remove_broker(1, on_progress=lambda done, total: seen.append((done, total)))
        assert seen[0] == (0, 1) and seen[-1] == (1, 1)
        assert sorted(cluster.brokers) == [2, 3, 4]
        assert cluster.partition("t").replicas == [4, 2, 3]
        assert sorted(cluster.nodes.controller.image.brokers) == [2, 3, 4]
        leader = cluster.leader("t")
        assert cluster.partition("t").end_offsets[leader] == 2
        assert (await wire.produce(cluster, leader, b"c")).error_code == 0
        with pytest.raises(ValueError, match="there is no broker 1; the brokers are 2, 3, 4"):
            cluster.kill(1)
        assert await cluster.add_broker(1) == 1
        await cluster.wait_in_sync()

    run(scenario, controllers=controllers)


def test_a_drained_broker_stays_without_replicas(run: Any) -> None:
    """With racks, a replica moves to a rack without one. If no broker is free, the partition has one replica less."""

    async def scenario(cluster: Any) -> None:
        cluster.create_topic("two", assignments=[[1, 2], [2, 1]])
        cluster.create_topic("all", assignments=[[1, 2, 3, 4]])
        await cluster.wait_in_sync()
        await cluster.drain(2)
        assert [cluster.partition("two", each).replicas for each in (0, 1)] == [[1, 3], [4, 1]]
        assert cluster.partition("all").replicas == [1, 3, 4]
        assert cluster.describe()["replicas"]["2"] == 0
        assert cluster.running() == [1, 2, 3, 4]

    run(scenario, 4, racks=["a", "b", "b", "c"])


def test_wrong_changes_of_the_brokers_are_refused() -> None:
    with ottla.Cluster(1) as cluster:
        with pytest.raises(ValueError, match="there is a broker 1 already"):
            cluster.add_broker(1)
        with pytest.raises(ValueError, match="the last broker of a cluster cannot be removed"):
            cluster.remove_broker(1)
        with pytest.raises(ValueError, match="broker 1 is the only one that is up"):
            cluster.drain(1)
