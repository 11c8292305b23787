"""Every guided tour runs to its end, and its steps do what their descriptions say."""

from typing import Any

import ottla
from ottla.console.server import ConsoleServer
from support.console import Console, served


def run_tour(console: Console, name: str) -> list[Any]:
    tour = next(each for each in console.get("/tours") if each["name"] == name)
    first = console.ask("POST", f"/tours/{name}/start", {})
    assert first.status == 200, first
    steps = [first.data]
    while len(steps) < len(tour["steps"]):
        following = console.ask("POST", "/tours/next", {"run": first.data["run"]})
        assert following.status == 200, following
        steps.append(following.data)
    assert [each["title"] for each in steps] == tour["steps"]
    return steps


def replica(console: Console, topic: str) -> Any:
    return console.get("/sandbox/replicas", topic=topic, partition=0)["partitions"][0]


def test_there_are_six_tours(console: Console) -> None:
    names = [each["name"] for each in console.get("/tours")]
    assert names == ["record", "look-up", "replicas", "rebalance", "compaction", "transaction"]


def test_a_record_reaches_all_replicas_and_a_consumer(own_console: Console) -> None:
    steps = run_tour(own_console, "record")
    index = steps[-1]["look"][1]["partition"]
    (found,) = own_console.get("/sandbox/replicas", topic="orders", partition=index)["partitions"]
    assert {each["end_offset"] for each in found["replicas"]} == {5}
    assert own_console.get("/sandbox/groups/billing")["offsets"][0]["committed"] == 5
    assert own_console.get("/topics") == [], "a tour does not change the real cluster"


def test_a_look_up_by_time_has_its_steps(own_console: Console) -> None:
    asked = run_tour(own_console, "look-up")[-1]["look"][1]
    found = own_console.get("/sandbox/topics/events/partitions/0/lookup", time=asked["time"])
    assert [each["where"] for each in found["steps"]] == ["segments", "timeindex", "index", "scan"]
    assert found["found"]["offset"] == 30


def test_the_isr_shrinks_and_grows_again(own_console: Console) -> None:
    steps = run_tour(own_console, "replicas")
    assert "leader epoch 1" in steps[3]["notes"][-1] or "leads" in steps[3]["notes"][-1]
    found = replica(own_console, "payments")
    assert sorted(found["in_sync"]) == [1, 2, 3]
    assert {(each["end_offset"], each["high_watermark"]) for each in found["replicas"]} == {(8, 8)}


def test_a_rebalance_has_its_causes(own_console: Console) -> None:
    steps = run_tour(own_console, "rebalance")
    assert "anna has partitions 0, 1, 2, 3, 4, 5" in steps[0]["notes"][-1]
    assert len([each for each in steps[1]["notes"] if "has partitions" in each and each.count(",") == 3]) == 2
    causes = {(each["member_id"], each["kind"]) for each in own_console.get("/sandbox/groups/warehouse/history")}
    assert {("ben", "joined"), ("ben", "left"), ("cleo", "timed out")} <= causes
    assert "anna has partitions 0, 1, 2, 3, 4, 5" in steps[-1]["notes"][-1]


def test_compaction_keeps_the_last_record_of_each_key_in_a_tour(own_console: Console) -> None:
    run_tour(own_console, "compaction")
    found = own_console.get("/sandbox/topics/users/partitions/0/compaction")
    closed = [each["key"] for each in found["records"] if not each["active"]]
    assert len(closed) == len(set(closed))


def test_a_transaction_is_held_back_committed_and_aborted(own_console: Console) -> None:
    steps = run_tour(own_console, "transaction")
    assert steps[1]["notes"][-1] == "payments-0: others read up to 4, readers of committed records up to 1"
    for topic in ("orders", "payments"):
        (found,) = own_console.get(f"/sandbox/topics/{topic}/transactions")
        assert (found["last_stable_offset"], found["high_watermark"]) == (9, 9)
    states = [each["state"] for each in own_console.get("/sandbox/transaction-history")["events"]]
    assert {"CompleteCommit", "CompleteAbort"} <= set(states)


def test_a_tour_that_is_over_says_so(own_console: Console) -> None:
    assert own_console.ask("POST", "/tours/next", {"run": "old"}).status == 404
    assert own_console.ask("POST", "/tours/nothing/start", {}).status == 404
    assert own_console.ask("GET", "/sandbox/topics").status == 404
    run = own_console.ask("POST", "/tours/compaction/start", {}).data["run"]
    for _ in range(2):
        assert own_console.ask("POST", "/tours/next", {"run": run}).status == 200
    assert own_console.ask("POST", "/tours/next", {"run": run}).data["error"] == "that was the last step"
    assert own_console.ask("POST", "/tours/stop", {}).status == 200
    assert own_console.ask("GET", "/sandbox/topics").status == 404


def test_a_console_that_is_read_only_has_tours_too() -> None:
    def make() -> ConsoleServer:
        return ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0, read_only=True)

    with ottla.serve() as broker, served(make) as url:
        assert len(run_tour(Console(url), "look-up")) == 3
