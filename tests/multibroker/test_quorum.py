"""A quorum of controllers: elections, fail-over without loss, changes of voters, and the answers of each controller."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.answers import Reply
from ottla.enums import FeatureUpgradeType
from ottla.errors import (
    NONE,
    DuplicateVoter,
    FencedLeaderEpoch,
    InvalidRequest,
    NotController,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnsupportedVersion,
    VoterNotFound,
)
from ottla.wire.messages import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    DescribeClusterRequest,
    FetchRequest,
    RemoveRaftVoterRequest,
    UpdateFeaturesRequest,
    UpdateRaftVoterRequest,
)
from support.async_wire import AsyncWire
from support.quorum import answer_of, asked, describe_quorum, new_topic

NAMES = ("c1", "c2", "c3")
ON_CONTROLLERS = [
    1, 17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 50, 51, 52, 53, 54, 55, 56, 57,
    59, 60, 62, 63, 64, 67, 70, 73, 80, 81, 82,
]  # fmt: skip
"""What a controller of Kafka 4.3.1 advertises, without Envelope."""


async def agree(cluster: Any) -> None:
    """Wait until all running controllers have the same committed log."""

    def holds(_: Any) -> bool:
        states = [each for each in cluster.describe()["controllers"].values() if each["state"] != "down"]
        ends = {state["end_offset"] for state in states} | {state["high_watermark"] for state in states}
        return len(ends) == 1 and any(state["state"] == "active" for state in states)

    await cluster.wait_until(holds)


def test_a_killed_controller_is_replaced_and_nothing_is_lost(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for number in range(4):
            cluster.create_topic(f"t{number}")
            former = cluster.active_controller
            await cluster.kill_controller()
            assert cluster.active_controller is None
            await cluster.wait_for_controller()
            assert cluster.active_controller != former
            assert cluster.topics() == [f"t{each}" for each in range(number + 1)]
            await cluster.start_controller()
            await agree(cluster)
        await cluster.wait_in_sync()
        noted = [str(event) for event in cluster.requests() if str(event).startswith("control")]
        assert noted[:2] == ["control: kill c1", "control: start c1"]

    run(scenario, controllers=3)


def test_a_request_during_a_fail_over_is_sent_to_the_next_controller(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.kill_controller()
        answer = await answer_of(cluster.broker(2), new_topic("t"), 7)
        assert answer.topics[0].error_code == NONE
        assert cluster.topics() == ["t"]

    run(scenario, controllers=3)


def test_a_controller_without_a_majority_answers_nothing(run: Any) -> None:
    """Its uncommitted records are gone when it returns, and waiting requests get the error that it does not lead."""

    async def scenario(cluster: Any) -> None:
        former = cluster.active_controller
        others = [name for name in NAMES if name != former]
        cluster.partition_network([former, 1], [*others, 2, 3])
        alone = asked(cluster.controller(former), new_topic("lost"), 7)
        assert isinstance(alone, Reply) and not alone.done
        await cluster.wait_until(lambda _: cluster.active_controller in others)
        assert (await answer_of(cluster.broker(2), new_topic("kept"), 7)).topics[0].error_code == NONE
        with pytest.raises(NotController):
            await alone
        assert cluster.controller(former).describe()["state"] != "active"
        cluster.heal()
        await agree(cluster)
        image = cluster.controller(former).server.metadata
        assert sorted(image.topics) == cluster.topics() == ["kept"]
        await cluster.wait_until(lambda _: sorted(cluster.broker(1).server.metadata.topics) == ["kept"])

    run(scenario, controllers=3)


def test_paused_and_slow_controllers(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        former = cluster.active_controller
        cluster.pause_controller()
        await cluster.wait_until(lambda _: cluster.active_controller not in (None, former))
        cluster.resume_controller()
        await agree(cluster)
        assert cluster.controller(former).describe()["state"] == "follower"
        for name in NAMES:
            cluster.slow_controller(name, ms=30)
        answer = asked(cluster.broker(1), new_topic("slow"), 7)
        assert isinstance(answer, Reply) and not answer.done
        assert (await answer).topics[0].error_code == NONE
        cluster.heal()
        await agree(cluster)

    run(scenario, controllers=3)


def test_a_process_that_is_busy_for_seconds_deposes_no_controller(run: Any) -> None:
    """Applying a record takes long on each node, as with many partitions on a slow disk."""

    async def scenario(cluster: Any) -> None:
        loop: Any = asyncio.get_running_loop()

        def busy(seconds: float) -> None:
            loop._elapsed_s += seconds

        epoch = cluster.nodes.active_controller.raft.replica.epoch
        for number in (1, 2, 3):
            cluster.broker(number).server.metadata_log.subscribe(lambda _: busy(0.24))
            cluster.controller(f"c{number}").server.metadata_log.subscribe(lambda _: busy(0.24))
        for number in range(20):
            cluster.create_topic(f"t{number}")
            await asyncio.sleep(0.017 * number)
            busy(0.1 * number)
        assert cluster.nodes.active_controller.raft.replica.epoch == epoch

    run(scenario, controllers=3)


def test_a_clean_stop_hands_over_at_once(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        former = cluster.active_controller
        await cluster.stop_controller()
        assert cluster.active_controller not in (None, former)

    run(scenario, controllers=3)


def test_without_two_of_three_controllers_only_changes_stop(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t")
        await cluster.wait_in_sync()
        await cluster.kill_controller("c2")
        await cluster.kill_controller("c3")
        await cluster.wait_until(lambda _: cluster.active_controller is None)
        waiting = asked(cluster.broker(1), new_topic("later"), 7)
        await asyncio.sleep(3)
        assert isinstance(waiting, Reply) and not waiting.done
        with pytest.raises(RuntimeError, match="no controller is active"):
            cluster.create_topic("now")
        await cluster.start_controller("c2")
        assert (await waiting).topics[0].error_code == NONE

    run(scenario, controllers=3)


def test_a_cluster_starts_again_on_its_folders(tmp_path: Path) -> None:
    with ottla.Cluster(2, controllers=3, data=tmp_path) as cluster:
        cluster.create_topic("t", 2)
        cluster.wait_in_sync()
        cluster_id = cluster.nodes.cluster_id
        epoch = cluster.describe()["controllers"]["c1"]["epoch"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broker-1", "broker-2", "controller-1", "controller-2", "controller-3",
    ]  # fmt: skip
    assert (tmp_path / "controller-2/__cluster_metadata-0/quorum-state").read_text().endswith('"data_version":0}')
    with ottla.Cluster(2, controllers=3, data=tmp_path) as cluster:
        assert cluster.topics() == ["t"]
        assert cluster.nodes.cluster_id == cluster_id
        assert cluster.describe()["controllers"]["c1"]["epoch"] > epoch
        cluster.wait_in_sync()


def test_snapshots_replace_the_log(run: Any) -> None:
    """For a controller and a broker that were away. The result is the same as with the log."""

    async def scenario(cluster: Any) -> None:
        await cluster.kill_controller("c3")
        cluster.partition_network([3], [1, 2, "controller"])
        cluster.create_topic("first", config={"retention.ms": 5000})
        for number in range(30):
            cluster.create_topic(f"t{number}", 3)
        for number in range(20):
            cluster.call(lambda server, n=number: server.controller.delete_topics([server.metadata.topics[f"t{n}"]]))
        start = cluster.controller("c1").node.raft.replica.log.start_offset
        assert start > 0
        cluster.heal()
        await cluster.start_controller("c3")
        await agree(cluster)
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.wait_in_sync()
        for node in (cluster.controller("c3"), cluster.broker(2), cluster.broker(3)):
            image, expected = node.server.metadata, cluster.nodes.controller.image
            assert image.topics == expected.topics
            assert image.configs == expected.configs
            assert image.features == expected.features
        assert cluster.controller("c3").node.raft.replica.log.start_offset > 0

    run(scenario, controllers=3, settings={"metadata.log.max.record.bytes.between.snapshots": 3000})


def test_voters_are_removed_and_added(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = cluster.broker(1)

        def voters() -> dict[int, bytes]:
            replica = cluster.nodes.active_controller.raft.replica
            return {voter.node_id: voter.directory_id for voter in replica.voters}

        third = cluster.controller("c3")
        directory, listener = third.server.directory_id, AddRaftVoterRequest.Listener
        add = AddRaftVoterRequest(
            cluster_id=None,
            voter_id=3003,
            voter_directory_id=directory,
            listeners=[listener(name="CONTROLLER", host="127.0.0.1", port=third.address[1])],
        )
        remove = RemoveRaftVoterRequest(cluster_id=None, voter_id=3003, voter_directory_id=directory)
        with pytest.raises(UnsupportedVersion):
            await answer_of(broker, remove, 0)
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="kraft.version", max_version_level=1, upgrade_type=FeatureUpgradeType.UPGRADE
        )
        assert (await answer_of(broker, UpdateFeaturesRequest(feature_updates=[update]), 2)).error_code == NONE
        assert voters()[3003] == directory
        assert broker.server.metadata.features["kraft.version"] == 1
        with pytest.raises(DuplicateVoter):
            await answer_of(broker, add, 1)
        assert (await answer_of(broker, remove, 0)).error_code == NONE
        assert sorted(voters()) == [3001, 3002]
        view = await answer_of(broker, describe_quorum(), 2)
        assert [replica.replica_id for replica in view.topics[0].partitions[0].observers] == [1, 2, 3, 3003]
        # Now both of the two voters are needed.
        await cluster.kill_controller("c3")
        assert (await answer_of(broker, new_topic("t"), 7)).topics[0].error_code == NONE
        await cluster.start_controller("c3")
        await agree(cluster)
        assert (await answer_of(broker, add, 1)).error_code == NONE
        assert sorted(voters()) == [3001, 3002, 3003]
        # The leader is removed too: another one is elected.
        leader = cluster.nodes.active_controller
        own = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=leader.node_id, voter_directory_id=leader.broker.directory_id
        )
        assert (await answer_of(broker, own, 0)).error_code == NONE
        await cluster.wait_until(
            lambda _: cluster.nodes.active_controller is not None and leader.node_id not in voters()
        )
        assert cluster.nodes.active_controller is not leader

    run(scenario, controllers=3)


def test_a_voter_reports_another_address(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        active = cluster.controller(cluster.active_controller)
        follower = next(each for each in cluster.controllers.values() if each is not active)

        def addresses() -> list[tuple[str, int]]:
            voter = active.node.raft.replica.voters.get(follower.node_id)
            return [(endpoint.host, endpoint.port) for endpoint in voter.endpoints]

        async def report(node: Any, port: int, *, epochs_ahead: int = 0, directory_id: bytes | None = None) -> Any:
            listener = UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="localhost", port=port)
            versions = UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
            request = UpdateRaftVoterRequest(
                cluster_id=None,
                current_leader_epoch=active.node.raft.replica.epoch + epochs_ahead,
                voter_id=follower.node_id,
                voter_directory_id=follower.server.directory_id if directory_id is None else directory_id,
                listeners=[listener],
                k_raft_version_feature=versions,
            )
            return await answer_of(node, request, 0)

        upgrade = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="kraft.version", max_version_level=1, upgrade_type=FeatureUpgradeType.UPGRADE
        )
        await answer_of(cluster.broker(1), UpdateFeaturesRequest(feature_updates=[upgrade]), 2)
        await agree(cluster)
        before = addresses()
        refused = await report(follower, 7)
        assert refused.error_code == NotLeaderOrFollower.code
        assert refused.current_leader.leader_id == active.node_id
        assert (await report(active, 7, epochs_ahead=-1)).error_code == FencedLeaderEpoch.code
        assert (await report(active, 7, epochs_ahead=1)).error_code == UnknownLeaderEpoch.code
        assert (await report(active, 7, directory_id=bytes(16))).error_code == InvalidRequest.code
        assert (await report(active, 7, directory_id=b"7" * 16)).error_code == VoterNotFound.code
        assert addresses() == before
        assert (await report(active, 7)).error_code == NONE
        assert addresses() == [("localhost", 7)]
        end_offset = active.node.raft.replica.log.end_offset
        assert (await report(active, 7)).error_code == NONE
        assert active.node.raft.replica.log.end_offset == end_offset, "nothing changed, so nothing is written"

    run(scenario, controllers=3)


def test_controllers_answer_on_their_listeners() -> None:
    async def main() -> None:
        async with ottla.Cluster(1, controllers=3) as cluster:
            await agree(cluster)
            active = cluster.active_controller
            assert active is not None
            for name in NAMES:
                host, port = cluster.controller(name).address
                wire = await AsyncWire.connect(host, port)
                versions = await wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
                assert [each.api_key for each in versions.api_keys] == ON_CONTROLLERS
                seen = await wire.call(DescribeClusterRequest(endpoint_type=2), 1)
                assert [node.broker_id for node in seen.brokers] == [3001, 3002, 3003]
                assert seen.controller_id == cluster.controller(active).node_id
                made = await wire.call(new_topic("t"), 7)
                expected = NotController.code if name != active else made.topics[0].error_code
                assert made.topics[0].error_code == expected
                partition = FetchRequest.FetchPartition(
                    partition=0,
                    current_leader_epoch=cluster.controller(active).node.raft.replica.epoch,
                    fetch_offset=0,
                    last_fetched_epoch=0,
                    partition_max_bytes=1 << 20,
                )
                topic = FetchRequest.FetchTopic(topic_id=bytes(15) + b"\x01", partitions=[partition])
                fetched = await wire.call(FetchRequest(max_wait_ms=0, topics=[topic]), 17)
                part = fetched.responses[0].partitions[0]
                assert part.error_code == (NONE if name == active else NotLeaderOrFollower.code)
                assert part.current_leader.leader_id == cluster.controller(active).node_id
                await wire.close()

    asyncio.run(main())


def test_names_that_are_wrong() -> None:
    with ottla.Cluster(1, controllers=1) as cluster:
        with pytest.raises(ValueError, match="there is no controller 'c2'; the controllers are c1"):
            cluster.kill_controller("c2")
        with pytest.raises(ValueError, match="a partition needs two sides"):
            cluster.partition_network(["c1"])
    with ottla.Cluster(1) as cluster, pytest.raises(ValueError, match="make the cluster with controllers=3"):
        cluster.kill_controller()
    with pytest.raises(ValueError, match="controllers=0: a quorum has 1 to 9"):
        ottla.Cluster(1, controllers=0)
