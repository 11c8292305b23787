"""The metadata quorum in the console: voters, observers, lag, and controllers that stop and start."""

from typing import Any

import ottla
from support.console import Console


def test_any_cluster_shows_its_quorum(console: Console) -> None:
    (broker,) = console.get("/overview")["brokers"]
    found = console.get("/quorum")
    assert found["leader"] == broker["broker"]
    (voter,) = found["voters"]
    assert (voter["node"], voter["lag"], voter["fetched_ms"]) == (broker["broker"], 0, 0)
    assert found["high_watermark"] == voter["end_offset"]
    assert (found["observers"], found["controllers"]) == ([], [])


def _states(found: Any) -> dict[str, str]:
    return {each["name"]: each["state"] for each in found["controllers"]}


def test_controllers_are_killed_and_started() -> None:
    with ottla.Cluster(2, controllers=3, console=0) as cluster:
        console = Console(cluster.console_url)
        former = cluster.active_controller
        cluster.wait_until(lambda _: len(cluster.nodes.controller.log.describe_quorum().observers) == 2)
        found = console.get("/quorum")
        assert found["leader"] == cluster.controller(former).node_id
        assert [each["node"] for each in found["voters"]] == [3001, 3002, 3003]
        assert [each["node"] for each in found["observers"]] == found["brokers"] == [1, 2]
        assert found["voters"][0]["address"] == "{}:{}".format(*cluster.controller("c1").address)

        assert console.ask("POST", "/powers/cluster/kill_controller", {"controller": former}).status == 200
        cluster.wait_for_controller()
        cluster.create_topic("t", 1, 1)
        after = console.get("/quorum")
        assert after["leader"] not in (None, found["leader"])
        assert after["epoch"] > found["epoch"]
        assert _states(after)[former] == "down"
        gone = next(each for each in after["voters"] if each["node"] == found["leader"])
        assert gone["lag"] is None or gone["lag"] > 0

        second = cluster.active_controller
        assert console.ask("POST", "/powers/cluster/stop_controller", {"controller": second}).status == 200
        cluster.wait_until(lambda c: c.active_controller is None)
        alone = console.get("/quorum")
        assert (alone["leader"], alone["observers"]) == (None, [])
        assert len(alone["voters"]) == 3
        assert console.ask("POST", "/powers/cluster/start_controller", {}).status == 200
        cluster.wait_for_controller()
        assert "down" not in _states(console.get("/quorum")).values()


def test_a_broker_is_added_drained_and_removed() -> None:
    with ottla.Cluster(2, console=0) as cluster:
        console = Console(cluster.console_url)
        cluster.create_topic("t", assignments=[[2], [2]])
        assert console.ask("POST", "/powers/cluster/add_broker", {"rack": "b"}).data["brokers"]["3"] == "running"
        assert console.ask("POST", "/powers/cluster/drain", {"broker": 2}).status == 200
        cluster.wait_until(lambda c: c.describe()["replicas"]["2"] == 0)
        removed = console.ask("POST", "/powers/cluster/remove_broker", {"broker": 2})
        assert list(removed.data["brokers"]) == ["1", "3"]
        assert console.get("/powers")["state"]["clock_skew_ms"] == {}
