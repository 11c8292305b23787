"""The test features of a broker, on a whole cluster: faults, groups, requests, scenarios, time and listeners."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import ottla
from ottla.embedded.scenario import ScenarioError
from ottla.multibroker.cluster_options import defaults
from ottla.server.broker import StartError


def ask(url: str, method: str = "GET", body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data, method=method), timeout=60) as answer:
        return json.load(answer)


def produce(bootstrap: str, **settings: Any) -> Any:
    """Produce one record to `t` with librdkafka; returns its delivery error."""
    outcome: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.timeout.ms": 120_000,
            "retry.backoff.ms": 5,
            "log_level": 0,
            **settings,
        }
    )
    producer.produce("t", b"x", on_delivery=lambda error, message: outcome.append(error))
    assert producer.flush(180) == 0
    return outcome[0]


def test_a_fault_applies_to_every_broker() -> None:
    with ottla.Cluster(3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        cluster.wait_in_sync()
        moved = cluster.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic="t", times=2)
        assert produce(cluster.bootstrap) is None
        moved.expect_fired(2)
        refused = cluster.broker(1).faults.error("Produce", "INVALID_RECORD", times=1)
        assert produce(cluster.bootstrap).name() == "INVALID_RECORD"
        refused.expect_fired(1)
        full = cluster.faults.disk_full(topic="t")
        assert produce(cluster.bootstrap, retries=0) is not None
        full.expect_fired(1)
        cluster.faults.clear()
        assert not cluster.faults.may_strike and not cluster.broker(2).faults.may_strike
        struck = [seen for seen in cluster.requests(api="Produce") if seen.fault]
        assert len(struck) >= 3
        epoch = cluster.partition("t").leader_epoch
        cluster.faults.bump_leader_epoch("t")
        assert cluster.partition("t").leader_epoch == epoch + 1
        assert cluster.leader("t") == 1
        with pytest.raises(ValueError, match="there is no group 'g'"):
            cluster.faults.rebalance("g")


def test_groups_are_found_on_any_broker(consumer: Callable[..., Any]) -> None:
    with ottla.Cluster(3) as cluster:
        cluster.create_topic("t")
        assert produce(cluster.bootstrap) is None
        groups = [f"g{number}" for number in range(3)]
        for name in groups:
            reader = consumer(cluster.bootstrap, name, session_timeout_ms=60_000)
            reader.subscribe(["t"])
            message = reader.poll(60)
            assert message is not None and message.value() == b"x"
            reader.commit(message, asynchronous=False)
        assert cluster.groups() == groups
        for name in groups:
            group = cluster.group(name)
            assert group.state == "Stable" and group.committed() == {("t", 0): 1} and group.lag() == 0
            assert cluster.broker(cluster.coordinator(name)).group(name).state == "Stable"
            (member,) = group.members()
            evicted = cluster.faults.evict(name)
            assert member.member_id in evicted.text
        cluster.reset()
        assert cluster.groups() == [] and cluster.topics() == []


def test_a_scenario_runs_on_a_cluster() -> None:
    with ottla.Cluster(3, clock="virtual") as cluster:
        done = cluster.run_scenario(
            {
                "steps": [
                    {"create": {"topic": "t", "partitions": 1}},
                    {"wait_in_sync": "t"},
                    {"append": {"topic": "t", "records": ["a"]}},
                    {"records": {"topic": "t", "timeout": 60}},
                    {"error": {"api": "Produce", "error": "INVALID_RECORD", "broker": 2, "as": "one"}},
                    {"error": {"api": "Fetch", "error": "INVALID_RECORD", "as": "all"}},
                    {"stop": 2},
                    {"start": {"broker": 2}},
                    {"partition_network": [[1], [2, 3]]},
                    {"slow_link": {"first": 2, "second": 3, "ms": 5}},
                    "heal",
                    {"pause": 3},
                    {"resume": 3},
                    {"advance": {"seconds": 1}},
                    "wait_in_sync",
                    "clear",
                ]
            }
        )
        assert len(done) == 16
        assert len(cluster.broker(2).faults) == len(cluster.faults) == 0
        said = [seen.text for seen in cluster.requests(api="Control")]
        assert said[:3] == ["stop 2", "start 2", "partition network [[1], [2, 3]]"]
        for wrong, text in (
            ([{"down": 1}], "there is no 'down'"),
            ([{"kill": 9}], "the brokers are 1, 2, 3"),
            ([{"move_leader": {"topic": "t", "to": 9}}], "has no replica"),
            ([{"move_leader": {"topic": "t", "where": 9}}], "missing a required argument"),
        ):
            with pytest.raises(ScenarioError, match=text):
                cluster.run_scenario(wrong)


def test_everything_is_controlled_over_http() -> None:
    with ottla.Cluster(3, control=0) as cluster:
        url = cluster.control_url
        cluster.create_topic("t", assignments=[[1, 2]])
        cluster.wait_in_sync()
        ask(f"{url}/cluster/reassign", "POST", {"topic": "t", "partition": 0, "replicas": [2, 3]})
        cluster.wait_until(lambda c: c.partition("t").replicas == [2, 3] and not c.partition("t").adding)
        fault = ask(f"{url}/faults", "POST", {"kind": "error", "api": "Produce", "error": "INVALID_RECORD"})
        assert ask(f"{url}/faults/{fault['id']}")["active"]
        assert ask(f"{url}/groups") == [] and ask(f"{url}/topics") == ["t"]
        assert "t-0: leader" not in ask(f"{url}/report")["text"]
        ask(f"{url}/scenario", "POST", {"steps": [{"wait_in_sync": {"topic": "t"}}, "elect_preferred"]})
        said = [seen["control"] for seen in ask(f"{url}/requests?api=Control")]
        assert said == ["move t-0 to [2, 3]", "elect preferred leaders"]
        ask(f"{url}/reset", "POST", {})
        assert ask(f"{url}/topics") == [] and len(cluster.faults) == 0
        for path, body, text in (
            ("/cluster/kill", {"brokers": 1}, "missing a required argument"),
            ("/cluster/reassign", {"topic": "t", "partition": 0, "replicas": [9]}, "cannot be moved"),
            ("/nothing", {}, "it has /cluster"),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(url + path, "POST", body)
            with refused.value as answer:
                assert text in json.load(answer)["error"]


def test_brokers_have_their_own_port_for_each_listener() -> None:
    from ottla.config import Config, ConfigError
    from ottla.multibroker.cluster_options import Configs

    def ports(listeners: str, brokers: int = 3, **more: str) -> list[list[int]]:
        names = [entry.partition(":")[0] for entry in listeners.split(",")]
        shared = Config.load(
            preset="test",
            overrides={
                "listeners": listeners,
                "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
                **more,
            },
        )
        configs = Configs(shared, brokers)
        return [[each.port for each in configs.of_broker(n + 1).listeners] for n in range(brokers)]

    assert ports("A://h:9092") == [[9092], [9093], [9094]]
    assert ports("A://h:0,B://h:9092") == [[0, 9092], [0, 9093], [0, 9094]]
    assert ports("A://h:9092,B://h:9093") == [[9092, 9093], [9094, 9095], [9096, 9097]]
    assert ports("A://h:9092,B://h:19092") == [[9092, 19092], [9093, 19093], [9094, 19094]]
    assert ports("A://h:9092,B://h:9094") == [[9092, 9094], [9095, 9097], [9098, 9100]]
    found = ports("A://h:9092,B://h:9093,CONTROLLER://h:9094", **{"controller.listener.names": "CONTROLLER"})
    assert found == [[9092, 9093], [9094, 9095], [9096, 9097]]
    with pytest.raises(ConfigError, match="begin lower"):
        ports("A://h:65534")


def test_addresses_that_are_advertised_move_with_the_ports() -> None:
    from ottla.config import Config
    from ottla.multibroker.cluster_options import Configs

    shared = Config.load(
        preset="test", overrides={"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://box:30000"}
    )
    configs = Configs(shared, 2, broker_settings={2: {"num.io.threads": 3}}, racks=["a", "b"])
    second = configs.of_broker(2)
    assert [str(each) for each in second.advertised_listeners] == ["PLAINTEXT://box:30001"]
    assert (second["broker.rack"], second["num.io.threads"], second.node_id) == ("b", 3, 2)
    assert configs.of_broker(1)["num.io.threads"] != 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"broker_settings": {4: {}}}, "names broker 4"),
        ({"broker_settings": {1: {"no.such": 1}}}, "no.such"),
        ({"config": ottla.Config.load(preset="test"), "settings": {"num.partitions": 1}}, "either config="),
    ],
)
def test_wrong_options_of_a_cluster_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ottla.Cluster(**options)


def test_the_data_folder_of_one_broker_is_refused_untouched(tmp_path: Path) -> None:
    with ottla.serve(data=tmp_path):
        pass
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StartError, match="is the data folder of a single broker"), ottla.Cluster(2, data=tmp_path):
        pytest.fail("it started")
    assert sorted(tmp_path.rglob("*")) == before


def test_given_settings_override_the_defaults_of_a_cluster() -> None:
    with ottla.Cluster(2, settings={"default.replication.factor": 1}) as cluster:
        cluster.create_topic("t")
        assert len(cluster.partition("t").replicas) == 1
        config = cluster.broker(1).server.config
        assert (
            config["offsets.topic.replication.factor"] == defaults(2, "test")["offsets.topic.replication.factor"] == 2
        )
