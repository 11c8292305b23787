"""A wrong clock on one node: its effect on records and decisions, and what stays correct."""

import asyncio
from typing import Any

import pytest

import ottla
from ottla.cli.main import main
from ottla.errors import NONE, InvalidTimestamp
from ottla.testing.over_http import Control
from support.batches import batch
from support.requests import produce_request

HOUR_MS = 3_600_000


async def produce(wire: Any, cluster: Any, broker_id: int, index: int, timestamp: int | None = None) -> Any:
    """Sends a record to a partition, with the time of the cluster's clock. Returns the partition's response."""
    now_ms = cluster.nodes.clock.now_ms() if timestamp is None else timestamp
    request = produce_request("t", memoryview(batch(b"v", timestamp=now_ms)), acks=-1, timeout_ms=1000, partition=index)
    return (await wire.ask(cluster, broker_id, request, 12)).responses[0].partition_responses[0]


def test_a_node_stamps_records_with_its_own_time(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1], [2]], config={"message.timestamp.type": "LogAppendTime"})
        cluster.skew_clock(2, ms=HOUR_MS)
        assert cluster.describe()["clock_skew_ms"] == {"2": HOUR_MS}
        right = (await produce(wire, cluster, 1, 0)).log_append_time_ms
        wrong = (await produce(wire, cluster, 2, 1)).log_append_time_ms
        assert HOUR_MS <= wrong - right < HOUR_MS + 1000
        await cluster.restart(2)
        assert (await produce(wire, cluster, 2, 1)).log_append_time_ms - right >= HOUR_MS
        cluster.reset()
        assert cluster.describe()["clock_skew_ms"] == {}
        assert [str(event) for event in cluster.requests()] == []

    run(scenario)


def test_a_node_that_is_behind_refuses_records_from_its_future(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1], [2]], config={"message.timestamp.after.max.ms": HOUR_MS // 2})
        cluster.skew_clock(2, ms=-HOUR_MS)
        assert (await produce(wire, cluster, 1, 0)).error_code == NONE
        assert (await produce(wire, cluster, 2, 1)).error_code == InvalidTimestamp.code
        cluster.skew_clock(2, ms=0)
        assert (await produce(wire, cluster, 2, 1)).error_code == NONE

    run(scenario)


def test_a_node_that_is_ahead_deletes_too_early(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1], [2]], config={"retention.ms": HOUR_MS})
        cluster.skew_clock(2, ms=2 * HOUR_MS)
        for index in (0, 1):
            assert (await produce(wire, cluster, index + 1, index)).error_code == NONE
        await asyncio.sleep(600)
        starts = [cluster.broker(index + 1).server.replicas.get("t", index).log_start_offset for index in (0, 1)]
        assert starts == [0, 1]

    run(scenario, settings={"log.retention.check.interval.ms": 300_000})


def test_sessions_and_elections_do_not_depend_on_the_time_of_day(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t")
        await cluster.wait_in_sync()
        former, epoch = cluster.active_controller, cluster.describe()["controllers"]["c1"]["epoch"]
        cluster.skew_clock(2, ms=HOUR_MS)
        cluster.skew_clock("c1", ms=-HOUR_MS)
        cluster.skew_clock("c2", ms=HOUR_MS)
        await asyncio.sleep(120)
        assert cluster.describe()["clock_skew_ms"] == {"2": HOUR_MS, "c1": -HOUR_MS, "c2": HOUR_MS}
        assert cluster.active_controller == former
        assert cluster.describe()["controllers"]["c1"]["epoch"] == epoch
        assert set(cluster.describe()["brokers"].values()) == {"running"}
        # The times of DescribeQuorum are those of the active controller.
        view = cluster.nodes.active_controller.log.describe_quorum()
        assert all(voter.last_fetch_ms < cluster.nodes.clock.now_ms() - HOUR_MS // 2 for voter in view.voters)

    run(scenario, controllers=3)


def test_a_node_with_both_roles_has_one_clock(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.skew_clock("c2", ms=5000)
        assert cluster.describe()["clock_skew_ms"] == {"2": 5000}
        now_ms = cluster.nodes.clock.now_ms()
        for server in (cluster.broker(2).server, cluster.controller("c2").server):
            assert server.clock.now_ms() >= now_ms + 5000

    run(scenario, controllers=3, combined=True)


def test_over_http_and_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with ottla.Cluster(2, control=0) as cluster:
        Control(cluster.control_url).ask("POST", "/cluster/skew_clock", {"node": 2, "ms": -1500})
        assert cluster.describe()["clock_skew_ms"] == {"2": -1500}
        command = ["cluster", "--control", cluster.control_url]
        assert main([*command, "skew-clock", "1", "60000"]) == 0
        assert main([*command, "status"]) == 0
        said = capsys.readouterr().out
        assert "the clock of 1 is 60000 ms ahead" in said
        assert "the clock of 2 is 1500 ms behind" in said
        assert [str(event) for event in cluster.requests(api="Control")] == [
            "control: set the clock of 2 1500 ms behind",
            "control: set the clock of 1 60000 ms ahead",
        ]
