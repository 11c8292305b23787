"""Brokers, their settings and clients, and the places of replicas."""

import ottla
from support.console import Console


def test_a_broker_has_settings_with_their_source_and_folders(console: Console) -> None:
    (broker,) = console.get("/overview")["brokers"]
    path = f"/brokers/{broker['broker']}"
    found = console.get(path)
    assert found["address"] == broker["address"]
    configs = {each["name"]: each for each in found["configs"]}
    assert configs["log.cleaner.threads"]["source"] == "default"
    assert len(found["log_dirs"]) == 1

    assert console.ask("PATCH", path, {"configs": {"log.cleaner.threads": "2"}}).status == 200
    changed = {each["name"]: each for each in console.get(path)["configs"]}["log.cleaner.threads"]
    assert (changed["value"], changed["source"], changed["default"]) == ("2", "broker", False)
    assert console.ask("GET", "/brokers/99").status == 404
    assert console.ask("GET", "/brokers/no").status == 404


def test_a_broker_is_a_controller_only_if_it_leads_the_quorum() -> None:
    with ottla.Cluster(2, console=0) as cluster:
        console = Console(cluster.console_url)
        brokers = [each["broker"] for each in console.get("/overview")["brokers"]]
        assert console.get("/overview")["controller"] not in brokers
        assert [console.get(f"/brokers/{each}")["controller"] for each in brokers] == [False, False]
    with ottla.serve(console=0) as broker:
        console = Console(broker.console_url)
        node = console.get("/overview")["controller"]
        assert console.get(f"/brokers/{node}")["controller"] is True


def test_connections_are_listed_with_their_client(own_console: Console) -> None:
    assert own_console.get("/connections") == []


def test_replicas_have_their_ends_and_watermarks() -> None:
    with ottla.Cluster(3, console=0) as cluster:
        console = Console(cluster.console_url)
        cluster.create_topic("t", 1, 3)
        cluster.topic("t").append(["a", "b"])
        cluster.wait_in_sync("t")
        cluster.wait_until(lambda _: cluster.partition("t").high_watermarks == {1: 2, 2: 2, 3: 2})
        (found,) = console.get("/replicas", topic="t")["partitions"]
        assert {each["broker"]: (each["end_offset"], each["high_watermark"]) for each in found["replicas"]} == {
            1: (2, 2),
            2: (2, 2),
            3: (2, 2),
        }
        cluster.kill(found["leader"])
        cluster.wait_until(lambda _: cluster.leader("t") not in (-1, found["leader"]))
        (after,) = console.get("/replicas", topic="t")["partitions"]
        assert found["leader"] not in after["in_sync"]
        assert {each["broker"]: each["running"] for each in after["replicas"]}[found["leader"]] is False
        assert console.ask("GET", "/replicas", topic="nope").status == 404


def test_a_scenario_runs_and_a_bad_one_says_why(own_console: Console) -> None:
    text = "- create: {topic: orders, partitions: 2}\n- append: {topic: orders, records: [a, b]}\n"
    done = own_console.ask("POST", "/powers/scenario", {"text": text})
    assert [each["verb"] for each in done.data["steps"]] == ["create", "append"]
    assert own_console.broker.topic("orders").partitions == 2
    wrong = own_console.ask("POST", "/powers/scenario", {"text": "- dance"})
    assert wrong.status == 400
    assert "there is no 'dance'" in wrong.data["error"]
    path = own_console.ask("POST", "/powers/scenario", {"text": "/etc/hostname"})
    assert "a scenario is a list of steps" in path.data["error"], "no file is read"
    assert own_console.ask("POST", "/powers/reset", {}).status == 200
    assert own_console.get("/topics") == []
