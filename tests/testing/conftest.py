"""Brokers in a thread, and small clients."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import ServedBroker, serve


@pytest.fixture
def broker() -> Iterator[ServedBroker]:
    with serve() as served:
        yield served


def _resources() -> tuple[set[str], int]:
    """Names of threads, and how many files and sockets are open."""
    return {thread.name for thread in threading.enumerate()}, len(os.listdir("/proc/self/fd"))


@pytest.fixture
def resources() -> Callable[[], tuple[set[str], int]]:
    return _resources


@pytest.fixture
def produce() -> Callable[..., Any]:
    """Produce one record with librdkafka and return its delivery error, None if it was stored."""

    def send(bootstrap: str, topic: str, value: bytes = b"x", **settings: Any) -> Any:
        outcome: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.timeout.ms": 8000,
                "retry.backoff.ms": 5,
                "reconnect.backoff.ms": 5,
                "log_level": 0,
                **{key.replace("_", "."): setting for key, setting in settings.items()},
            }
        )
        producer.produce(topic, value, on_delivery=lambda error, message: outcome.append(error))
        assert producer.flush(10) == 0
        return outcome[0]

    return send


@pytest.fixture
def consumer() -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(bootstrap: str, group: str = "g", **settings: Any) -> Consumer:
        one = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 50,
                "session.timeout.ms": 2000,
                "fetch.wait.max.ms": 20,
                "retry.backoff.ms": 5,
                "reconnect.backoff.ms": 5,
                "log_level": 0,
                **{key.replace("_", "."): setting for key, setting in settings.items()},
            }
        )
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
