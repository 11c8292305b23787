"""A broker on this loop, in a thread, in a child process: options, stops and starts, and nothing left behind."""

import asyncio
import gc
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.async_wire import AsyncWire

import ottla
from ottla.bench.client import Client
from ottla.errors import MemberIdRequired, UnknownTopicOrPartition
from ottla.testing import BrokerStopped
from ottla.wire.messages import ConsumerGroupHeartbeatRequest, FindCoordinatorRequest, JoinGroupRequest, MetadataRequest


def test_a_broker_on_the_running_loop(run: Any) -> None:
    async def main() -> None:
        async with ottla.Broker() as broker:
            host, _, port = broker.bootstrap.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
            assert await reader.readexactly(4)
            writer.close()
            await writer.wait_closed()
        assert not broker.is_running

    run(main())


def test_options(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"log.retention.ms": 1234}
        async with ottla.Broker(data=tmp_path, partitions=3, settings=settings, preset="kafka") as broker:
            assert broker.topic("t").create().partitions == 3
            assert broker.server.config["log.retention.ms"] == 1234
            assert broker.server.config["group.initial.rebalance.delay.ms"] == 3000
        assert (tmp_path / "t-2").is_dir()

    run(main())


async def drawn(seed: int) -> dict[str, Any]:
    """The random values of a broker, as its clients see them."""
    async with ottla.Broker(seed=seed) as broker:
        broker.topic("t").create()
        host, _, port = broker.bootstrap.rpartition(":")
        wire = await AsyncWire.connect(host, int(port))
        metadata = await wire.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 12)
        await wire.call(FindCoordinatorRequest(coordinator_keys=["g", "consumers"]), 4)  # creates the offsets topic
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        refused = await wire.call(join, 9)
        beat = ConsumerGroupHeartbeatRequest(
            group_id="consumers", rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        joined = await wire.call(beat, 0)
        await wire.close()
        assert refused.error_code == MemberIdRequired.code
        assert joined.error_code == 0
        return {
            "cluster id": metadata.cluster_id,
            "topic id": metadata.topics[0].topic_id,
            "classic member id": refused.member_id,
            "consumer member id": joined.member_id,
        }


def test_a_seed_repeats_the_random_values(run: Any) -> None:
    first, again, other = run(drawn(1)), run(drawn(1)), run(drawn(2))
    assert first == again
    assert all(first[name] and first[name] != other[name] for name in first)


def test_the_test_preset() -> None:
    config = ottla.Config.load(preset="test")
    assert config["group.initial.rebalance.delay.ms"] == 0
    assert config["transaction.state.log.replication.factor"] == 1
    assert config["offsets.retention.check.interval.ms"] <= 1000


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ({}, [0, 0]),
        ({"preset": "dev"}, [UnknownTopicOrPartition.code, 0]),
        ({"preset": "kafka"}, [UnknownTopicOrPartition.code, 0]),
    ],
)
@pytest.mark.parametrize("start", [ottla.serve, lambda **options: ottla.Cluster(1, **options)])
def test_only_the_test_preset_creates_a_topic_within_the_first_request(
    start: Any, options: dict[str, Any], codes: list[int]
) -> None:
    with start(**options) as broker:
        host, _, port = broker.bootstrap.partition(",")[0].rpartition(":")
        with Client((host, int(port))) as client:
            wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")])
            assert [client.call(wanted, 12).topics[0].error_code for _ in range(2)] == codes


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_restart_keeps_data_and_port(run: Any, tmp_path: Path, on_disk: bool) -> None:
    async def main() -> None:
        async with ottla.Broker(data=tmp_path if on_disk else None) as broker:
            broker.topic("t").append(["a"])
            first = broker.bootstrap
            await broker.restart()
            assert broker.bootstrap == first
            broker.topic("t").append(["b"])
            await broker.kill()
            with pytest.raises(BrokerStopped, match="start"):
                _ = broker.bootstrap
            await broker.up()
            assert broker.bootstrap == first
            assert broker.topic("t").texts() == ["a", "b"]

    run(main())


def test_the_port_is_kept_but_closed_while_down(run: Any) -> None:
    async def main() -> None:
        async with ottla.Broker() as broker:
            address = broker.address
            await broker.down()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)
            with socket.socket() as other, pytest.raises(OSError):
                other.bind(address)
            await broker.up()
            assert broker.address == address

    run(main())


def test_several_brokers_run_in_one_process(run: Any) -> None:
    async def main() -> None:
        async with ottla.Broker() as one, ottla.Broker() as other:
            assert one.bootstrap != other.bootstrap
            one.topic("t").append(["x"])
            assert not other.topic("t").exists
            with ottla.serve() as third:
                assert third.topics() == []

    run(main())


def test_nothing_is_left_behind(run: Any, resources: Any, tmp_path: Path) -> None:
    async def main(folder: Path) -> None:
        async with ottla.Broker(data=folder, clock="virtual", control=0) as broker:
            _, writer = await asyncio.open_connection(*broker.address)
            broker.topic("t").append(["x"])
            broker.clock.advance(minutes=1)
            await broker.kill()
            await broker.up()
            writer.close()

    run(main(tmp_path / "warm"))  # permanent imports and caches are loaded here
    with ottla.serve():
        pass
    gc.collect()
    threads, files = resources()
    run(main(tmp_path / "data"))
    with ottla.serve(data=tmp_path / "served") as served:
        served.topic("t").append(["x"])
        socket.create_connection(("127.0.0.1", int(served.bootstrap.rpartition(":")[2]))).close()
    gc.collect()
    assert resources() == (threads, files)


def test_a_start_that_fails_leaves_nothing_behind(resources: Any) -> None:
    with ottla.serve() as running:
        port = int(running.bootstrap.rpartition(":")[2])
        before = resources()
        with pytest.raises(Exception, match="cannot listen"):
            ottla.serve(port=port).start()
        gc.collect()
        assert resources() == before


def test_a_broker_can_be_stopped_twice_and_started_again() -> None:
    broker = ottla.serve()
    broker.stop()
    broker.start()
    broker.topic("t").append(["x"])
    broker.stop()
    broker.stop()
    with broker:
        assert broker.topic("t").texts() == ["x"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70000}, "not a port"),
        ({"partitions": 0}, "at least one"),
        ({"clock": "sundial"}, "'virtual'"),
        ({"as_version": "1.7"}, "choose one of"),
        ({"preset": "fast"}, "choose one of"),
        ({"settings": {"log.retention.mss": 3}}, r"\(settings\); did you mean"),
    ],
)
def test_bad_options_say_what_to_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        ottla.Broker(**options)


def test_bad_use_says_what_to_do(run: Any) -> None:
    async def main() -> None:
        broker = ottla.Broker()
        with pytest.raises(BrokerStopped, match=r"start\(\) it first"):
            _ = broker.bootstrap
        with pytest.raises(BrokerStopped, match="start"):
            broker.topic("t").records()
        async with broker:
            with pytest.raises(RuntimeError, match="restart"):
                await broker.start()
            with pytest.raises(RuntimeError, match='clock="virtual"'):
                _ = broker.clock
            with pytest.raises(RuntimeError, match="control=0"):
                _ = broker.control_url

    run(main())
    served = ottla.serve()
    with pytest.raises(BrokerStopped, match=r"start\(\)"):
        served.restart()


def test_a_child_process(tmp_path: Path) -> None:
    with ottla.spawn(data=tmp_path, partitions=2) as broker:
        first = broker.bootstrap
        broker.topic("t").append([("k", "v"), {"n": 1}])
        assert sorted(map(str, broker.topic("t").texts())) == ["v", '{"n": 1}']
        broker.kill()
        with pytest.raises(BrokerStopped, match="start"):
            _ = broker.pid
        broker.start()
        assert broker.bootstrap == first
        assert len(broker.topic("t").records()) == 2
        assert broker.topics() == ["t"]
        pid = broker.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_a_child_process_accepts_only_plain_values() -> None:
    with pytest.raises(ValueError, match="another process"):
        ottla.spawn(disk=object())
    with pytest.raises(ValueError, match="plain values"):
        ottla.spawn(settings={"a": object()})


def test_a_wrong_with_statement_shows_the_two_ways_that_work() -> None:
    broker: Any = ottla.Broker()
    with pytest.raises(TypeError, match="use `async with"), broker:
        pass


@pytest.mark.parametrize("make", [ottla.serve, ottla.spawn])
def test_an_unknown_option_is_named_with_the_one_that_was_meant(make: Any) -> None:
    with pytest.raises(TypeError, match=r"there is no option partition; did you mean partitions\?"), make(partition=3):
        pass


def test_a_child_that_cannot_start_says_why() -> None:
    with pytest.raises(ValueError, match="there is no preset 'tset'"), ottla.spawn(preset="tset"):
        pass
    with (
        ottla.serve() as other,
        pytest.raises(RuntimeError, match="in use"),
        ottla.spawn(port=int(other.bootstrap.rpartition(":")[2])),
    ):
        pass


def test_settings_of_a_spawned_broker_are_not_on_its_command_line(tmp_path: Path) -> None:
    """They may contain passwords, and every user of the machine can read a command line."""
    with ottla.spawn(data=tmp_path, settings={"delegation.token.secret.key": "very-secret"}) as broker:
        command = Path(f"/proc/{broker.pid}/cmdline")
        if not command.exists():
            pytest.skip("needs /proc")
        assert b"very-secret" not in command.read_bytes()
        assert broker.is_running
