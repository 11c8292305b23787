"""The same loads with librdkafka (confluent-kafka), which the clients of most languages build on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from ottla.bench import payloads
from ottla.bench.load import Result, Spec
from ottla.bench.model import NotMeasurable

try:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition
except ImportError as _missing:
    raise NotMeasurable("needs confluent-kafka (pip install confluent-kafka)") from _missing

QUIET: dict[str, Any] = {"log_level": 0, "log.connection.close": False}


def _bootstrap(spec: Spec) -> dict[str, Any]:
    return {"bootstrap.servers": f"{spec['host']}:{spec['port']}", **QUIET, **spec.get("client", {})}


def _producer(spec: Spec, **settings: Any) -> Any:
    return Producer({**_bootstrap(spec), "queue.buffering.max.messages": 1_000_000, **settings})


def _raise(error: Any) -> None:
    if error is not None:
        raise RuntimeError(str(error))


def rdkafka_produce(spec: Spec) -> Callable[[], Result]:
    """Produce values of `record_bytes` with the client's default batching (acks=all, linger 5 ms)."""
    producer = _producer(spec)
    body = payloads.value(random.Random(3), spec["record_bytes"])
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer.produce(spec["topic"], body, partition=0, on_delivery=delivered)
    producer.flush(30)

    def timed() -> Result:
        count = spec["limit_bytes"] // spec["record_bytes"]
        for index in range(count):
            while True:
                try:
                    producer.produce(spec["topic"], body, partition=index % spec["partitions"])
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(120) or failures:
            raise RuntimeError(failures[0] if failures else "not every message was delivered within 120 s")
        return {"bytes": count * spec["record_bytes"]}

    return timed


def rdkafka_consume(spec: Spec) -> Callable[[], Result]:
    """Read all partitions from the start until `limit_bytes` of values have arrived."""
    consumer = Consumer(
        {
            **_bootstrap(spec),
            "group.id": "bench-rdkafka",
            "enable.auto.commit": False,
            # By default the client pauses for a second when its queue is full, and the figure would show that pause.
            "fetch.queue.backoff.ms": 10,
        }
    )
    wanted = spec["limit_bytes"] // spec["record_bytes"]

    def timed() -> Result:
        consumer.assign([TopicPartition(spec["topic"], index, OFFSET_BEGINNING) for index in range(spec["partitions"])])
        count, deadline = 0, time.perf_counter() + 120
        while count < wanted:
            messages = consumer.consume(10_000, 1.0)
            count += len(messages)
            if messages:
                _raise(messages[-1].error())
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{count} of {wanted} messages in 120 s")
        return {"bytes": count * spec["record_bytes"]}

    return timed


def rdkafka_latency(spec: Spec) -> Callable[[], Result]:
    """Send one message and wait until the consumer has it, `rate` times per second, without linger."""
    producer = _producer(spec, **{"linger.ms": 0})
    consumer = Consumer(
        {**_bootstrap(spec), "group.id": "bench-rdkafka", "enable.auto.commit": False, "fetch.wait.max.ms": 500}
    )
    consumer.assign([TopicPartition(spec["topic"], 0, OFFSET_END)])
    # The assignment is active once a message that was sent after it arrives.
    for _ in range(100):
        producer.produce(spec["topic"], b"warm", partition=0)
        producer.flush(10)
        if consumer.poll(0.2) is not None:
            break
    while consumer.poll(0.2) is not None:
        pass

    def timed() -> Result:
        latencies, pace = [], 1 / spec["rate"]
        for _ in range(int(spec["rate"] * spec["limit_seconds"])):
            started = time.perf_counter()
            producer.produce(spec["topic"], b"x" * 100, partition=0)
            message = consumer.poll(10)
            if message is None:
                raise TimeoutError("a message did not come within 10 s")
            _raise(message.error())
            latencies.append(time.perf_counter() - started)
            time.sleep(max(0.0, started + pace - time.perf_counter()))
        producer.flush(10)
        return {"latencies": latencies}

    return timed
