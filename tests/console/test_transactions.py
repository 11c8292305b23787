"""Transactions in the console: open ones, what they block, their history, and an abort."""

from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from support.console import Console


def open_transaction(console: Console, transactional_id: str = "payments-1") -> Producer:
    console.broker.topic("t").create(1)
    producer = Producer({"bootstrap.servers": console.broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", b"v")
    producer.flush(20)
    return producer


def test_an_open_transaction_holds_back_readers_until_it_is_aborted(console: Console) -> None:
    producer = open_transaction(console)
    (listed,) = console.get("/transactions")
    assert (listed["transactional_id"], listed["state"], listed["open"]) == ("payments-1", "Ongoing", True)
    assert listed["age_ms"] >= 0
    assert listed["partitions"] == [{"topic": "t", "partition": 0}]
    assert console.get("/overview")["open_transactions"] == 1

    found = console.get("/transactions/payments-1")
    (partition,) = found["partitions"]
    assert (partition["last_stable_offset"], partition["high_watermark"], partition["first_offset"]) == (0, 1, 0)
    assert [each["transactional_id"] for each in partition["open"]] == ["payments-1"]
    (of_topic,) = console.get("/topics/t/transactions")
    assert [each["transactional_id"] for each in of_topic["open"]] == ["payments-1"]

    assert console.ask("POST", "/transactions/payments-1/abort", {}).status == 200
    (of_topic,) = console.get("/topics/t/transactions")
    assert (of_topic["last_stable_offset"], of_topic["open"]) == (2, [])
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)


def test_an_unknown_transactional_id_is_not_found(console: Console) -> None:
    answer = console.ask("GET", "/transactions/nobody")
    assert (answer.status, answer.data["error"]) == (404, "there is no transactional id 'nobody'")
    assert console.ask("POST", "/transactions/nobody/abort", {}).status == 404


def test_a_transactional_id_may_have_slashes(console: Console) -> None:
    open_transaction(console, "eu/payments")
    assert console.get("/transactions/eu%2Fpayments")["state"] == "Ongoing"
    assert console.ask("POST", "/transactions/eu%2Fpayments/abort", {}).status == 200


def test_a_hanging_producer_is_not_found_without_a_transaction(console: Console) -> None:
    console.broker.topic("t").create(1)
    answer = console.ask("POST", "/topics/t/partitions/0/abort", {"producer_id": 7})
    assert (answer.status, answer.data["error"]) == (404, "producer 7 has no transaction open in t-0")


def states(events: Any) -> list[str]:
    return [each["state"] for each in events]


def test_the_history_has_each_step(own_console: Console) -> None:
    producer = open_transaction(own_console)
    producer.commit_transaction(20)
    events = own_console.get("/transaction-history")["events"]
    assert states(events)[-3:] == ["Ongoing", "PrepareCommit", "CompleteCommit"]
    assert events[-3]["partitions"] == ["t-0"]
