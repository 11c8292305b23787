"""Start-up time and memory; each measurement uses a new broker process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from ottla.bench import payloads
from ottla.bench.client import PRODUCE_VERSION, decode_response, raise_for, receive_frame, retried
from ottla.bench.lines.topics import topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, NotMeasurable, Size, at_most, line, value_at_most
from ottla.bench.targets import OttlaMaker, Target
from ottla.wire.messages import ProduceRequest


def _produce_one(target: Target, topic_name: str) -> None:
    request = payloads.produce_frame(topic_name, 0, payloads.batch(100, 1, "none").data, acks=-1)
    with target.client() as client:
        client.require(ProduceRequest, PRODUCE_VERSION)

        def produce() -> None:
            client.sock.sendall(request)
            answer = receive_frame(client.sock)
            response = decode_response(ProduceRequest.API_KEY, PRODUCE_VERSION, answer)
            raise_for(response.responses[0].partition_responses[0].error_code)

        retried(produce, pause_seconds=0.002)


@line(
    "start",
    "start of the process",
    Figure("answer_s", "s", False, (value_at_most(0.3),), title="to the first ApiVersions answer"),
    Figure("ack_s", "s", False, (at_most(1 / 25),), title="to the first acknowledged produce"),
)
def start(target: Target, size: Size) -> dict[str, float]:
    maker = target.fresh()
    folder, port = maker.prepare()
    payloads.batch(100, 1, "none")
    started = time.perf_counter()
    broker = maker.launch(folder, port)
    try:
        broker.await_ready()
        answered = time.perf_counter()
        with topic(broker, 1) as name:
            _produce_one(broker, name)
            acknowledged = time.perf_counter()
    finally:
        broker.stop()
    return {"answer_s": answered - started, "ack_s": acknowledged - started}


@line(
    "embed",
    "a broker inside a running Python, until it answers ApiVersions",
    Figure("first_ms", "ms", False, (value_at_most(20),), title="the first"),
    Figure("ms", "ms", False, (value_at_most(20),), title="a later one"),
    Figure("import_ms", "ms", False, title="the import before it"),
    reference=False,
)
def embed(target: Target, size: Size) -> dict[str, float]:
    maker = target.fresh()
    if not isinstance(maker, OttlaMaker):
        raise NotMeasurable("concerns Ottla alone")
    script = Path(__file__).parent.parent / "embedded.py"
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the embedded broker failed"
        )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


@line(
    "memory",
    "resident memory",
    Figure("idle_mb", "MB", False, (at_most(0.12), value_at_most(60)), title="idle"),
    Figure("loaded_mb", "MB", False, (at_most(0.15),), title="after 2 GB produced"),
    repeats=1,
)
def memory(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().start()
    try:
        time.sleep(size.pick(3.0, 0.2))
        idle_mb = broker.resident_mb()
        with topic(broker, 4) as name:
            drive(
                broker,
                "produce",
                topic=name,
                connections=4,
                record_bytes=1024,
                batch_bytes=65536,
                codec="none",
                limit_bytes=size.pick(2_000_000_000, 32_000_000),
                limit_seconds=120.0,
            )
            loaded_mb = broker.resident_mb()
    finally:
        broker.stop()
    return {"idle_mb": idle_mb, "loaded_mb": loaded_mb}
