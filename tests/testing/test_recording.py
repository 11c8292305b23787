"""Recordings of requests, and their replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from ottla.cli.main import main
from ottla.client.replaying import read_recording
from ottla.records import message_json
from ottla.testing import ServedBroker, replay_requests
from ottla.wire.messages import REQUESTS


def work(broker: ServedBroker) -> None:
    """A transaction, and a group that reads and commits it."""
    producer = Producer(
        {**broker.client_config("confluent", "producer"), "transactional.id": "t", "client.id": "writer"}
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    for n in range(3):
        producer.produce("orders", f"v{n}", b"\xff")
    producer.commit_transaction(10)
    settings = {**broker.client_config("confluent", "consumer"), "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "client.id": "reader", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    for _ in range(3):
        assert consumer.poll(10) is not None
    consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
    consumer.close()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    with ottla.serve() as broker:
        broker.topic("orders").create()
        with broker.record(path) as recording:
            work(broker)
        assert recording.count > 10 and "requests" in repr(recording)
    return path


def test_a_replayed_run_has_the_same_effect(recorded: Path) -> None:
    with ottla.serve() as broker:
        broker.topic("orders").create()
        outcome = replay_requests(recorded, broker.bootstrap)
        assert outcome.differences == []
        assert outcome.requests == len(recorded.read_text().splitlines()) - 1
        broker.topic("orders").expect([(b"\xff", f"v{n}") for n in range(3)])
        assert broker.group("billing").committed() == {("orders", 0): 3}
        assert {request.client_id for request in broker.requests()} >= {"writer", "reader"}
        # Once more: the transactional id now has another epoch, and the topic has other offsets.
        assert replay_requests(recorded, broker.bootstrap, client_id="writer").differences == []
        assert len(broker.topic("orders").records()) == 6


def test_different_answers_are_reported(recorded: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ottla.serve() as broker:
        broker.topic("orders").create()
        broker.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times="every")
        (difference,) = replay_requests(recorded, broker.bootstrap).differences
        assert (difference.api, difference.recorded, difference.now) == (
            "OffsetCommit",
            [],
            ["GROUP_AUTHORIZATION_FAILED"],
        )
        assert "no error in the recording, GROUP_AUTHORIZATION_FAILED now" in str(difference)
        assert main(["replay-requests", str(recorded), "-b", broker.bootstrap, "--client", "reader"]) == 1
        assert "GROUP_AUTHORIZATION_FAILED now" in capfd.readouterr().out
        broker.faults.clear()
        assert main(["replay-requests", str(recorded), "-b", broker.bootstrap, "--json"]) in (0, 1)
        assert json.loads(capfd.readouterr().out)["requests"] > 10


def test_requests_are_repeated_until_the_topic_has_a_leader(recorded: Path) -> None:
    """As on Apache Kafka, which answers before a topic that a request creates has a leader."""
    with ottla.serve() as broker:
        broker.topic("orders").create()
        late = [
            broker.faults.error("Metadata", "LEADER_NOT_AVAILABLE", times=2, topic="orders"),
            broker.faults.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=2),
            broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2),
        ]
        assert replay_requests(recorded, broker.bootstrap).differences == []
        for fault in late:
            fault.expect_fired(2)
        broker.topic("orders").expect([(b"\xff", f"v{n}") for n in range(3)])


def test_messages_survive_json(recorded: Path) -> None:
    for each in read_recording(recorded):
        kind = next(REQUESTS[key] for key in REQUESTS if REQUESTS[key].__name__ == f"{each.api}Request")
        message: Any = message_json.from_json(kind, each.request)
        again = kind.decode(message.encode(each.version), each.version)
        assert message_json.to_json(again, each.version) == each.request


def test_logins_are_not_recorded(tmp_path: Path) -> None:
    with ottla.serve(users={"alice": "very-secret"}) as broker, broker.record(tmp_path / "run.jsonl"):
        producer = Producer(broker.client_config("confluent", "producer"))
        producer.produce("t", b"x")
        assert producer.flush(10) == 0
    text = (tmp_path / "run.jsonl").read_text()
    assert '"api": "Produce"' in text and "very-secret" not in text and "SaslAuthenticate" not in text
    assert oct((tmp_path / "run.jsonl").stat().st_mode)[-3:] == "600"


def test_other_files_are_not_recordings(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="is not a recording of requests"):
        replay_requests(path, "127.0.0.1:1")
    path.write_text('{"format": "ottla-requests-1"}\n{"number": 1}\n')
    with pytest.raises(ValueError, match="line 2: not a request"):
        replay_requests(path, "127.0.0.1:1")
