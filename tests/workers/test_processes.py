"""The lifecycle of `ottla serve --workers N`: ports, start, stop, another number of workers, and workers that crash."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from ottla.enums import CoordinatorType
from ottla.errors import TopicAuthorizationFailed
from ottla.records.batch import Record, batches, build_batch
from ottla.wire.messages import (
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from support.ports import free_ports

Serve = Callable[..., Any]
CLEAN = ".kafka_cleanshutdown"


def create(wire: Any, name: str, partitions: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    (result,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
    assert result.error_code == 0, result


def produce(wire: Any, topic: str, index: int, *values: bytes) -> int:
    batch = build_batch([Record(number, 0, None, value) for number, value in enumerate(values)])
    data = ProduceRequest.PartitionProduceData(index=index, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    (outcome,) = wire.call(request, 9).responses[0].partition_responses
    assert outcome.error_code == 0, outcome
    return int(outcome.base_offset)


def fetch(wire: Any, topic: str, index: int) -> list[bytes | None]:
    part = FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])], max_bytes=1 << 20)
    (answer,) = wire.call(request, 12).responses[0].partitions
    assert answer.error_code == 0, answer
    return [record.value for batch in batches(answer.records or b"") for record in batch.records()]


def coordinator_port(serving: Any, group: str) -> int:
    answer = serving.wire().call(FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP), 3)
    assert answer.error_code == 0, answer
    return int(answer.port)


def commit(serving: Any, group: str, offset: int) -> None:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
    answer = serving.wire(coordinator_port(serving, group)).call(OffsetCommitRequest(group_id=group, topics=[topic]), 8)
    assert answer.topics[0].partitions[0].error_code == 0


def committed(serving: Any, group: str) -> int:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = serving.wire(coordinator_port(serving, group)).call(OffsetFetchRequest(groups=[asked]), 8)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def fill(serving: Any, partitions: int = 6) -> None:
    create(serving.wire(), "t", partitions)
    ports = serving.ports()
    for index, leader in serving.leaders("t").items():
        produce(serving.wire(ports[leader]), "t", index, b"value %d" % index)


def assert_filled(serving: Any, partitions: int = 6) -> None:
    ports = serving.ports()
    leaders = serving.leaders("t")
    assert len(leaders) == partitions
    for index, leader in leaders.items():
        assert fetch(serving.wire(ports[leader]), "t", index)[:1] == [b"value %d" % index]


def test_one_port_to_bootstrap_and_one_for_each_worker(serve: Serve) -> None:
    port = free_ports(4)[0]
    serving = serve(3, "--port", str(port))
    assert serving.port == port
    assert serving.ports() == {1: port + 1, 2: port + 2, 3: port + 3}
    assert serving.stop() == (0, "")


def test_free_ports_and_a_clean_stop(serve: Serve, tmp_path: Path) -> None:
    serving = serve(2)
    ports = serving.ports()
    assert len({serving.port, *ports.values()}) == 3
    assert not (tmp_path / "data" / CLEAN).exists()
    pids = serving.pids()
    assert len(pids) == 2
    code, errors = serving.stop()
    assert (code, errors) == (0, "")
    assert (tmp_path / "data" / CLEAN).exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("taken", [0, 2])
def test_a_port_in_use_is_found_before_anything_is_touched(serve: Serve, tmp_path: Path, taken: int) -> None:
    port = free_ports(3)[0]
    with socket.create_server(("127.0.0.1", port + taken)):
        code, errors = serve(2, "--port", str(port), ready=False).finish()
    assert code == 1
    assert errors.startswith(f"ottla: cannot listen on 127.0.0.1:{port + taken}")
    assert not (tmp_path / "data").exists()


def test_a_second_broker_cannot_use_the_folder(serve: Serve) -> None:
    serving = serve(2)
    for workers in (1, 2):
        code, errors = serve(workers, ready=False).finish()
        assert code == 1
        assert "another process uses the data folder" in errors
        assert len(errors.splitlines()) == 1
    assert serving.stop() == (0, "")


@pytest.mark.parametrize("options", [("--ephemeral",), ("--control", "0")])
def test_options_that_need_a_single_worker_are_refused(serve: Serve, options: tuple[str, ...]) -> None:
    code, errors = serve(2, *options, ready=False).finish()
    assert code == 1
    assert errors == f"ottla: {options[0]} cannot be combined with --workers 2\n"


def test_another_number_of_workers_spreads_the_partitions_again(serve: Serve, tmp_path: Path) -> None:
    serving = serve(2)
    fill(serving)
    assert Counter(serving.leaders("t").values()) == {1: 3, 2: 3}
    for number in range(8):
        commit(serving, f"group-{number}", number)
    assert serving.stop()[0] == 0
    for workers in (3, 1, 4, 2):
        serving = serve(workers)
        assert sorted(serving.ports()) == [*range(1, workers + 1)]
        shares = Counter(serving.leaders("t").values())
        assert max(shares.values()) - min(shares.values()) <= 1 and len(shares) == min(workers, 6)
        assert_filled(serving)
        assert [committed(serving, f"group-{number}") for number in range(8)] == [*range(8)]
        code, errors = serving.stop()
        assert (code, errors) == (0, "")
        assert (tmp_path / "data" / CLEAN).exists()


def test_the_same_number_of_workers_keeps_the_partitions_in_place(serve: Serve) -> None:
    serving = serve(2)
    fill(serving)
    before = serving.leaders("t")
    serving.stop()
    serving = serve(2)
    assert serving.leaders("t") == before
    (topic,) = serving.metadata("t").topics
    assert {partition.leader_epoch for partition in topic.partitions} == {0}


@pytest.mark.parametrize("victim", [0, 1], ids=["controller", "follower"])
def test_the_death_of_a_worker_ends_the_broker_and_loses_nothing(serve: Serve, tmp_path: Path, victim: int) -> None:
    serving = serve(2)
    fill(serving)
    pids = serving.pids()
    os.kill(pids[victim], signal.SIGKILL)
    code, errors = serving.finish()
    assert code == 1
    assert errors == f"ottla: worker {victim + 1} was ended by SIGKILL; the broker stops\n"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not (tmp_path / "data" / CLEAN).exists()
    for workers in (2, 1):
        serving = serve(workers)
        assert_filled(serving)
        assert serving.stop()[0] == 0


def test_workers_stop_without_their_supervisor(serve: Serve, tmp_path: Path, gone: Callable[[list[int]], bool]) -> None:
    serving = serve(2)
    fill(serving)
    pids = serving.pids()
    os.kill(serving.child.pid, signal.SIGKILL)
    assert gone(pids)
    serving.finish()
    assert (tmp_path / "data" / CLEAN).exists()
    assert_filled(serve(2))


AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_every_worker_asks_the_authorizer(serve: Serve) -> None:
    serving = serve(2, "--set", AUTHORIZER, "--set", "super.users=User:another")
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    for port in serving.ports().values():
        (result,) = serving.wire(port).call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
        assert result.error_code == TopicAuthorizationFailed.code
    assert serving.stop()[0] == 0


def test_requests_between_workers_need_no_permission(serve: Serve) -> None:
    serving = serve(2, "--set", AUTHORIZER, "--set", "super.users=User:ANONYMOUS")
    create(serving.wire(), "t", 2)
    for number in range(4):
        producer = ck.Producer({"bootstrap.servers": serving.bootstrap, "transactional.id": f"id-{number}"})
        producer.init_transactions(60)
        for _ in range(2):
            producer.begin_transaction()
            for index in range(2):
                producer.produce("t", "value", partition=index)
            producer.commit_transaction(60)
    ports = serving.ports()
    for index, leader in serving.leaders("t").items():
        assert fetch(serving.wire(ports[leader]), "t", index).count(b"value") == 8
    assert serving.stop()[0] == 0
