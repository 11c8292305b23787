"""Kafka's own tools on the controllers of a quorum: `--bootstrap-controller`, with nodes of one role and of both."""

import re
from collections.abc import Callable, Iterator

import pytest

import ottla
from support.interop.drivers import clients

JAVA = [param for param in clients() if param.id == "java"]
pytestmark = [pytest.mark.jvm, pytest.mark.parametrize("driver", JAVA, indirect=True)]

Tool = Callable[..., str]


@pytest.fixture(params=[False, True], ids=["dedicated", "combined"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ottla.Cluster]:
    # Kafka's timeouts: no leader is deposed during a request on a busy machine.
    with ottla.Cluster(4, controllers=3, combined=request.param, preset="kafka") as found:
        found.wait_until(lambda _: len(found.nodes.controller.image.controllers) == 3)
        yield found


@pytest.fixture
def tool(driver, cluster) -> Tool:
    def run(name: str, *words: str, status: int = 0) -> str:
        args = ["--bootstrap-controller", cluster.bootstrap_controllers, *words]
        if name == "ClusterTool":
            args = [*words, *args[:2]]
        done = driver.call("tool", name=f"org.apache.kafka.tools.{name}", args=args, stdin="")
        assert done["status"] == status, done
        return done["stdout"] + (done["stderr"] if status else "")

    return run


def test_voters_and_observers_are_described(tool: Tool, cluster: ottla.Cluster) -> None:
    voters = [cluster.controller(name).node_id for name in ("c1", "c2", "c3")]
    observers = [broker for broker in (1, 2, 3, 4) if broker not in voters]
    active = cluster.active_controller
    assert active is not None
    leader = cluster.controller(active).node_id
    cluster.wait_until(lambda _: len(cluster.nodes.controller.log.describe_quorum().observers) == len(observers))
    status = tool("MetadataQuorumCommand", "describe", "--status")
    assert re.search(rf"LeaderId:\s+{leader}\n", status), status
    assert re.search(r"MaxFollowerLag:\s+\d+\n", status), status
    assert [int(found) for found in re.findall(r'"id": (\d+)', status)] == [*voters, *observers]
    rows = [line.split() for line in tool("MetadataQuorumCommand", "describe", "--replication").splitlines()[1:]]
    assert {(int(row[0]), row[-1]) for row in rows} == {
        (leader, "Leader"),
        *((voter, "Follower") for voter in voters if voter != leader),
        *((observer, "Observer") for observer in observers),
    }


def test_endpoints_and_features_of_controllers(tool: Tool, cluster: ottla.Cluster) -> None:
    assert cluster.nodes.cluster_id in tool("ClusterTool", "cluster-id")
    listed = tool("ClusterTool", "list-endpoints")
    for name in ("c1", "c2", "c3"):
        controller = cluster.controller(name)
        assert re.search(rf"^{controller.node_id}\s+127\.0\.0\.1\s+{controller.address[1]}\s", listed, re.M), listed
    assert re.search(r"Feature: kraft.version.*FinalizedVersionLevel: 0", tool("FeatureCommand", "describe"))


def test_a_controller_loses_its_vote(tool: Tool, cluster: ottla.Cluster) -> None:
    tool("FeatureCommand", "upgrade", "--feature", "kraft.version=1")
    active = cluster.active_controller
    name = next(each for each in ("c1", "c2", "c3") if each != active)
    node = cluster.controller(name).node_id
    described = tool("MetadataQuorumCommand", "describe", "--replication")
    directory = next(line.split()[1] for line in described.splitlines() if line.split()[0] == str(node))
    removed = tool(
        "MetadataQuorumCommand",
        "remove-controller",
        "--controller-id",
        str(node),
        "--controller-directory-id",
        directory,
    )
    assert f"Removed  KRaft controller {node} with directory id {directory}" in removed
    cluster.wait_until(lambda _: node not in [v.node_id for v in cluster.nodes.controller.log.describe_quorum().voters])
    after = tool("MetadataQuorumCommand", "describe", "--replication")
    assert re.search(rf"^{node}\s.*Observer", after, re.M), after
