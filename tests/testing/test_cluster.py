"""`ottla.Cluster` as users call it: blocking and async, controlled from Python and over HTTP, in memory and on disk.

The tests wait for each expected state; none depends on how long it takes.
"""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import ottla


def control(cluster: ottla.Cluster, method: str, path: str, **body: Any) -> Any:
    data = json.dumps(body).encode() if method == "POST" else None
    request = urllib.request.Request(cluster.control_url + path, data=data, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_a_cluster_runs_in_its_own_thread() -> None:
    with ottla.Cluster(3) as cluster:
        assert len(cluster.bootstrap.split(",")) == 3
        assert cluster.running() == [1, 2, 3]
        cluster.create_topic("t", partitions=2)
        cluster.wait_in_sync()
        assert sorted(cluster.partition("t", 0).replicas) == [1, 2, 3]
        cluster.topic("t").append(["a"])
        assert cluster.topic("t").wait_for(timeout=60).text == "a"
        leader = cluster.leader("t")
        cluster.kill(leader)
        assert leader not in cluster.running()
        cluster.wait_until(lambda c: c.leader("t") not in (-1, leader))
        cluster.start(leader)
        cluster.wait_in_sync()
        assert cluster.topic("t").texts() == ["a"]
        said = [str(seen) for seen in cluster.requests(api="Control")]
        assert said == [f"control: kill {leader}", f"control: start {leader}"]
        assert [str(seen) for seen in cluster.broker(leader).requests(api="Control")] == said


def test_appended_records_can_be_read_at_once() -> None:
    with ottla.Cluster(3, control=0) as cluster:
        cluster.topic("t").append(["a", "b"])
        cluster.topic("t").expect(["a", "b"])
        control(cluster, "POST", "/topics/t/records", records=["c"])
        assert [record["value"] for record in control(cluster, "GET", "/topics/t/records")] == ["a", "b", "c"]
        cluster.run_scenario([{"append": {"topic": "t", "records": ["d"]}}])
        assert cluster.topic("t").texts() == ["a", "b", "c", "d"]
        follower = next(number for number in (1, 2, 3) if number != cluster.leader("t"))
        cluster.partition_network([follower], [number for number in (1, 2, 3) if number != follower])
        cluster.topic("t").append(["e"])
        assert len(cluster.isr("t")) == 3, "append does not wait for a follower that the test has stopped"


def test_settings_for_clients_of_a_cluster() -> None:
    with ottla.Cluster(3) as cluster:
        settings = cluster.client_config("confluent", "consumer")
        assert settings["bootstrap.servers"] == cluster.bootstrap
        assert settings["heartbeat.interval.ms"] == 50
        assert repr(cluster) == f"<Cluster at {cluster.bootstrap}>"


def test_a_cluster_on_the_running_loop() -> None:
    async def main() -> None:
        async with ottla.Cluster(2, settings={"num.partitions": 3}) as cluster:
            cluster.create_topic("t")
            await cluster.wait_in_sync()
            await cluster.stop(1)
            assert cluster.leader("t") == 2
            await cluster.start(1)
            cluster.pause(1)
            cluster.resume(1)
            await cluster.wait_in_sync()
            assert cluster.topics() == ["t"]

    asyncio.run(main())


def test_time_is_the_same_for_all_brokers() -> None:
    with ottla.Cluster(3, clock="virtual", preset="kafka", settings={"default.replication.factor": 3}) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        cluster.wait_in_sync()
        cluster.kill(1)
        cluster.clock.advance(seconds=15)
        assert cluster.leader("t") == 2


def test_the_data_of_a_cluster_outlives_it(tmp_path: Path) -> None:
    with ottla.Cluster(3, data=tmp_path) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.wait_in_sync()
        cluster.topic("t").append(["a", "b"])
        cluster.topic("t").wait_for_all(count=2, timeout=60)
        epoch = cluster.partition("t").leader_epoch
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == ["broker-1", "broker-2", "broker-3", "controller"]
    assert (tmp_path / "broker-2" / "t-0" / "00000000000000000000.log").exists()
    with ottla.Cluster(3, data=tmp_path) as cluster:
        cluster.wait_in_sync()
        assert cluster.topic("t").texts() == ["a", "b"]
        assert cluster.partition("t").leader_epoch == epoch, "a clean stop of all brokers changes no leader"


def test_steering_over_http() -> None:
    with ottla.Cluster(3, control=0) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        cluster.wait_in_sync()
        control(cluster, "POST", "/cluster/move_leader", topic="t", partition=0, to=3)
        state = control(cluster, "GET", "/")
        assert state["topics"]["t"][0]["leader"] == 3
        control(cluster, "POST", "/cluster/shrink_isr", topic="t", partition=0, remove=[2])
        assert 2 not in cluster.isr("t")
        control(cluster, "POST", "/cluster/partition_network", sides=[[1], [2, 3]])
        state = control(cluster, "POST", "/cluster/slow_link", first=2, second=3, ms=5)
        assert state["network"]["cut"] and state["network"]["slow"]
        control(cluster, "POST", "/cluster/heal")
        cluster.wait_in_sync()
        control(cluster, "POST", "/cluster/pause", broker=2)
        assert control(cluster, "GET", "/brokers")["2"] == "paused"
        control(cluster, "POST", "/cluster/resume", broker=2)
        control(cluster, "POST", "/cluster/kill", broker=1)
        assert control(cluster, "GET", "/")["brokers"]["1"] == "down"
        control(cluster, "POST", "/cluster/start", broker=1)
        fault = control(
            cluster, "POST", "/brokers/3/faults", kind="error", api="Produce", error="NOT_LEADER_OR_FOLLOWER"
        )
        assert fault["id"] == 1
        verbs = [seen["control"] for seen in control(cluster, "GET", "/requests?api=Control")]
        assert "kill 1" in verbs and "heal" in verbs
        for path, body in (("/cluster/explode", {}), ("/cluster/kill", {"broker": 9}), ("/faults", {"kind": "x"})):
            with pytest.raises(urllib.error.HTTPError):
                control(cluster, "POST", path, **body)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"brokers": 0}, "a cluster has 1 to 32"),
        ({"racks": ["a"]}, "name one for each"),
        ({"settings": {"no.such": 1}}, "no.such"),
    ],
)
def test_options_are_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ottla.Cluster(**options)


def test_errors_of_wrong_calls_show_the_valid_values() -> None:
    with ottla.Cluster(3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        cluster.wait_in_sync()
        for wrong, text in (
            (lambda: cluster.kill(7), "the brokers are 1, 2, 3"),
            (lambda: cluster.move_leader("t", to=3), "has no replica of t-0"),
            (lambda: cluster.move_leader("x", to=3), "there is no partition x-0"),
            (lambda: cluster.shrink_isr("t", remove=[1]), "leads t-0"),
            (lambda: cluster.partition_network([1], [1]), "one side"),
            (lambda: cluster.partition_network([1, 2, 3]), "two sides"),
            (lambda: cluster.partition_network([1], [5]), "no broker 5"),
            (lambda: cluster.create_topic("u", 1, 5), "only 3 broker"),
        ):
            with pytest.raises(ValueError, match=text):
                wrong()


def test_nothing_is_left_behind() -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with ottla.Cluster(3) as cluster:
            cluster.create_topic("t", partitions=3)
            await cluster.wait_in_sync()
            await cluster.kill(2)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    asyncio.run(main())
