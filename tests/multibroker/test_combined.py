"""Nodes that are broker and controller at once: both roles start and stop together, and share one copy of the metadata
log."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.answers import Reply
from ottla.errors import NONE
from ottla.wire.messages import DescribeClusterRequest
from support.async_wire import AsyncWire
from support.quorum import answer_of, asked, describe_quorum, new_topic

COMBINED = {"controllers": 3, "combined": True}


def states(cluster: Any) -> tuple[str, str]:
    """The states of node 1 as a broker and as a controller."""
    found = cluster.describe()
    return found["brokers"]["1"], found["controllers"]["c1"]["state"]


def test_a_kill_stops_both_roles_and_a_start_restores_both(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", 3)
        await cluster.wait_in_sync()
        assert cluster.active_controller == "c1"
        await cluster.kill(1)
        assert states(cluster) == ("down", "down")
        await cluster.wait_for_controller()
        assert cluster.active_controller in ("c2", "c3")
        assert (await answer_of(cluster.broker(2), new_topic("u", 2), 7)).topics[0].error_code == NONE
        await cluster.wait_until(lambda _: all(cluster.leader("t", index) in (2, 3) for index in range(3)))
        await cluster.start(1)
        await cluster.wait_in_sync()
        assert states(cluster) == ("running", "follower")
        assert cluster.broker(1).server.metadata.topics == cluster.nodes.controller.image.topics
        former = cluster.active_controller
        await cluster.stop_controller()
        assert cluster.describe()["brokers"][former[1:]] == "down"
        assert cluster.active_controller not in (None, former)

    run(scenario, **COMBINED)


def test_voters_are_not_observers(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.wait_until(lambda _: len(cluster.nodes.active_controller.log.describe_quorum().observers) == 1)
        view = (await answer_of(cluster.broker(4), describe_quorum(), 2)).topics[0].partitions[0]
        assert [voter.replica_id for voter in view.current_voters] == [1, 2, 3]
        assert [observer.replica_id for observer in view.observers] == [4]
        assert view.leader_id == 1
        assert cluster.broker(1).server.config["process.roles"] == ("broker", "controller")
        assert cluster.broker(4).server.config["process.roles"] == ("broker",)

    run(scenario, brokers=4, **COMBINED)


def test_a_node_cut_off_leads_neither_partitions_nor_the_quorum(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        await cluster.wait_in_sync()
        cluster.partition_network([1, "c1"], [2, 3])
        await cluster.wait_until(lambda _: cluster.active_controller in ("c2", "c3"))
        await cluster.wait_until(lambda _: cluster.leader("t") in (2, 3))
        cluster.heal()
        await cluster.wait_in_sync()

    run(scenario, **COMBINED)


def test_a_pause_stops_both_roles(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.pause_controller("c1")
        assert states(cluster) == ("paused", "paused")
        await cluster.wait_until(lambda _: cluster.active_controller in ("c2", "c3"))
        cluster.resume(1)
        await cluster.wait_until(lambda _: states(cluster) == ("running", "follower"))

    run(scenario, **COMBINED)


def test_without_a_majority_a_broker_waits_with_its_start(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t")
        await cluster.wait_in_sync()
        for number in (1, 2, 3):
            await cluster.kill(number)
        await cluster.start(1)
        await asyncio.sleep(5)
        broker, controller = states(cluster)
        assert broker == "starting"
        assert controller != "active"
        await cluster.kill(1)
        assert states(cluster) == ("down", "down")
        await cluster.start_controller()
        assert set(cluster.describe()["brokers"].values()) == {"running"}
        await cluster.wait_in_sync("t")

    run(scenario, **COMBINED)


def test_a_broker_reads_a_snapshot_of_the_controller_beside_it(run: Any) -> None:
    """The log before the snapshot is gone when the broker starts."""

    async def scenario(cluster: Any) -> None:
        for number in range(30):
            cluster.create_topic(f"t{number}", 3)
        assert cluster.controller("c2").node.raft.replica.log.start_offset > 0
        await cluster.restart(2)
        await cluster.wait_in_sync()
        assert cluster.broker(2).server.metadata.topics == cluster.nodes.controller.image.topics

    run(scenario, **COMBINED, settings={"metadata.log.max.record.bytes.between.snapshots": 3000})


def test_folders_of_a_combined_cluster(tmp_path: Path) -> None:
    """The metadata log has its own folder, as with Kafka's `metadata.log.dir`."""
    with ottla.Cluster(3, **COMBINED, data=tmp_path) as cluster:
        cluster.create_topic("t", 2)
        cluster.wait_in_sync()
        cluster_id = cluster.nodes.cluster_id
        assert cluster.broker(1).server.config["metadata.log.dir"] == str(tmp_path / "controller-1")
    for folder in ("broker-1", "controller-1"):
        assert "node.id=1\n" in (tmp_path / folder / "meta.properties").read_text()
    with ottla.Cluster(3, **COMBINED, data=tmp_path) as cluster:
        assert cluster.topics() == ["t"]
        assert cluster.nodes.cluster_id == cluster_id
        cluster.wait_in_sync()


def test_controllers_describe_the_nodes_that_are_controllers() -> None:
    async def main() -> None:
        async with ottla.Cluster(4, **COMBINED) as cluster:
            await cluster.wait_until(lambda _: len(cluster.nodes.controller.image.controllers) == 3)
            for name, expected in (("c1", [1, 2, 3]), ("c3", [1, 2, 3])):
                wire = await AsyncWire.connect(*cluster.controller(name).address)
                await cluster.wait_until(lambda _, n=name: len(cluster.controller(n).server.metadata.controllers) == 3)
                seen = await wire.call(DescribeClusterRequest(endpoint_type=2), 1)
                assert [node.broker_id for node in seen.brokers] == expected
                assert [node.port for node in seen.brokers] == [
                    cluster.controller(f"c{number}").address[1] for number in expected
                ]
                assert seen.controller_id == 1
                await wire.close()

    asyncio.run(main())


def test_combined_roles_need_enough_brokers() -> None:
    with pytest.raises(ValueError, match="combined roles need a number of controllers"):
        ottla.Cluster(3, combined=True)
    with pytest.raises(ValueError, match="3 controllers share their nodes with as many brokers, and there are 2"):
        ottla.Cluster(2, controllers=3, combined=True)
    with ottla.Cluster(2, controllers=1, combined=True) as cluster:
        with pytest.raises(ValueError, match="node 1 is a controller, too, and cannot be removed"):
            cluster.remove_broker(1)
        with pytest.raises(ValueError, match="1 and c1 are on one node"):
            cluster.slow_link(1, "c1", ms=5)
        cluster.remove_broker(2)


def test_a_request_of_a_client_finds_the_next_controller(run: Any) -> None:
    """The broker on the stopped controller's node is gone too; any other broker resends the request."""

    async def scenario(cluster: Any) -> None:
        await cluster.kill_controller()
        answer = asked(cluster.broker(2), new_topic("t", 2), 7)
        assert isinstance(answer, Reply)
        assert (await answer).topics[0].error_code == NONE

    run(scenario, **COMBINED)
