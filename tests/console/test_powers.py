"""Faults, the clock and stops, through the console."""

import ottla
from support.console import Console


def test_a_fault_is_set_counted_and_removed(own_console: Console) -> None:
    fault = {"kind": "error", "api": "Metadata", "error": "LEADER_NOT_AVAILABLE"}
    made = own_console.ask("POST", "/powers/faults", fault)
    assert made.status == 200
    (found,) = own_console.get("/powers")["faults"]
    assert (found["kind"], found["active"]) == ("error", True)
    assert own_console.ask("DELETE", f"/powers/faults/{found['id']}").status == 200
    (found,) = own_console.get("/powers")["faults"]
    assert not found["active"]


def test_a_bad_fault_says_why(own_console: Console) -> None:
    answer = own_console.ask("POST", "/powers/faults", {"kind": "earthquake"})
    assert answer.status == 400
    assert "there is no fault 'earthquake'" in answer.data["error"]


def test_the_clock_is_advanced(own_console: Console) -> None:
    before = own_console.broker.clock.now_ms()
    assert own_console.ask("POST", "/powers/clock", {"hours": 1}).data["now_ms"] >= before + 3_600_000


def test_the_broker_goes_down_and_up(own_console: Console) -> None:
    assert own_console.ask("POST", "/powers/broker/down", {}).data == {"running": False}
    assert own_console.ask("GET", "/overview").status == 503
    assert own_console.ask("POST", "/powers/broker/up", {}).data == {"running": True}
    assert own_console.get("/overview")["topics"] == 0


def test_a_broker_of_a_cluster_is_killed() -> None:
    with ottla.Cluster(3, console=0) as cluster:
        console = Console(cluster.console_url)
        assert console.get("/powers")["cluster"]
        killed = console.ask("POST", "/powers/cluster/kill", {"broker": 2})
        assert killed.data["brokers"]["2"] == "down"
        assert cluster.running() == [1, 3]


def test_a_full_disk_is_reported_and_the_next_record_is_written(own_console: Console) -> None:
    own_console.broker.topic("t").create(1)
    assert own_console.ask("POST", "/topics/t/records", {"value": {"text": "v"}}).status == 200
    fault = own_console.ask("POST", "/powers/faults", {"kind": "disk_full"}).data
    refused = own_console.ask("POST", "/topics/t/records", {"value": {"text": "v"}})
    assert (refused.status, refused.data["code"]) == (409, "KAFKA_STORAGE_ERROR")
    own_console.ask("DELETE", f"/powers/faults/{fault['id']}")
    assert own_console.ask("POST", "/topics/t/records", {"value": {"text": "v"}}).status == 200
