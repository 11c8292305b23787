"""Measures the lines about brokers inside tests: each runs in a separate Python process and prints JSON.

They use the benchmark's client on a raw socket, so that the figures show the broker and not a client library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = 20

TESTS = """
import pytest
from ottla.bench.in_tests import consume_first

@pytest.mark.parametrize("number", range({count}))
def test_it(kafka, number):
    topic, group = kafka.topic(), kafka.group()
    host, _, port = kafka.bootstrap.rpartition(":")
    consume_first((host, int(port)), str(topic), str(group))
    assert len(topic.records()) == 1
"""


def consume_first(address: tuple[str, int], topic: str, group: str) -> None:
    """Produce a record, join a group, and fetch the record as a member."""
    from ottla.bench import payloads
    from ottla.bench.client import FETCH_VERSION, Client, decode_response, raise_for, receive_frame, retried
    from ottla.bench.loads.members import JOIN_VERSION, SYNC_VERSION, join_request, sync_request
    from ottla.errors import MemberIdRequired
    from ottla.wire.messages import FetchRequest, ProduceRequest

    with Client(address) as client:
        records = payloads.batch(100, 1, "none").data

        def produce() -> None:
            client.sock.sendall(payloads.produce_frame(topic, 0, records, acks=-1))
            answer = decode_response(ProduceRequest.API_KEY, 9, receive_frame(client.sock))
            raise_for(answer.responses[0].partition_responses[0].error_code)

        retried(produce)
        client.coordinator(group, "group")

        def ask(request: Any, version: int) -> Any:
            response = client.call(request, version)
            if response.error_code != MemberIdRequired.code:
                raise_for(response.error_code)
            return response

        joined = retried(partial(ask, join_request(group, ""), JOIN_VERSION))
        if joined.error_code == MemberIdRequired.code:
            joined = ask(join_request(group, joined.member_id), JOIN_VERSION)
        ask(sync_request(group, joined), SYNC_VERSION)
        fetch, position = payloads.fetch_frame(topic, 0)
        fetch[position : position + 8] = bytes(8)
        client.sock.sendall(fetch)
        answer = decode_response(FetchRequest.API_KEY, FETCH_VERSION, receive_frame(client.sock))
        data = answer.responses[0].partitions[0]
        raise_for(data.error_code)
        if not data.records:
            raise RuntimeError("the record did not come back")


def first_record() -> dict[str, float]:
    """The first broker of this process, before any codec is compiled; imports are measured separately."""
    started = time.perf_counter()
    import ottla.testing.threaded

    imported = time.perf_counter()
    from ottla.bench import payloads
    from ottla.bench.loads import members  # noqa: F401  # the client's imports are not the broker's

    payloads.batch(100, 1, "none")
    began = time.perf_counter()
    with ottla.testing.threaded.serve() as broker:
        broker.topic("t").create()
        host, _, port = broker.bootstrap.rpartition(":")
        consume_first((host, int(port)), "t", "g")
        done = time.perf_counter()
    return {"ms": (done - began) * 1e3, "import_ms": (imported - started) * 1e3}


def brokers() -> dict[str, float]:
    import ottla

    fresh, resets = [], []
    with ottla.serve():
        pass
    for _ in range(ROUNDS):
        started = time.perf_counter()
        with ottla.serve():
            pass
        fresh.append(time.perf_counter() - started)
    with ottla.serve() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        for number in range(ROUNDS):
            broker.topic(f"t{number}").create()
            consume_first((host, int(port)), f"t{number}", f"g{number}")
            started = time.perf_counter()
            broker.reset()
            resets.append(time.perf_counter() - started)
    return {"fresh_ms": median(fresh) * 1e3, "reset_ms": median(resets) * 1e3}


def secured() -> dict[str, float]:
    """Create, start and stop a broker with certificates, users and rules."""
    import ottla

    seconds = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        with ottla.serve(tls=True, users={"alice": "secret"}, acls=["alice all topic:*"]):
            seconds.append(time.perf_counter() - started)
    return {"ms": median(seconds[1:]) * 1e3, "first_ms": seconds[0] * 1e3}


def snapshots(megabytes: int) -> dict[str, float]:
    """Take snapshots of a broker with this much data, in memory and in a folder."""
    import ottla

    figures: dict[str, float] = {}
    value = bytes(900_000)
    with tempfile.TemporaryDirectory() as folder:
        for where, options in (("memory", {}), ("folder", {"data": f"{folder}/data"})):
            with ottla.serve(**options) as broker:  # type: ignore[arg-type]
                broker.topic("t").create(4)
                for number in range(megabytes * 1_048_576 // len(value)):
                    broker.topic("t").append([value], partition=number % 4)
                broker.snapshot().close()  # rolls the segments of a folder once
                taken, restored, branched = [], [], []
                for _ in range(5):
                    started = time.perf_counter()
                    state = broker.snapshot()
                    snapped = time.perf_counter()
                    broker.restore(state)
                    back = time.perf_counter()
                    branch = broker.branch()
                    branched.append(time.perf_counter() - back)
                    branch.stop()
                    state.close()
                    taken.append(snapped - started)
                    restored.append(back - snapped)
                for name, seconds in (("snapshot", taken), ("restore", restored), ("branch", branched)):
                    figures[f"{where}_{name}_ms"] = median(seconds) * 1e3
    return figures


def spawned() -> dict[str, float]:
    """Start a broker in a child process, until its address is known."""
    import ottla

    times = []
    for _ in range(5):
        started = time.perf_counter()
        with ottla.spawn():
            times.append(time.perf_counter() - started)
    return {"ms": median(times) * 1e3}


def thousand(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_it.py").write_text(TESTS.format(count=count))
        (Path(folder) / "pytest.ini").write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "ottla.pytest_plugin", "-p", "no:cacheprovider"]
        started = time.perf_counter()
        # Load only this plugin: other installed plugins would be measured with it.
        environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
    if f"{count} passed" not in done.stdout:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return {"s": seconds}


def main(what: str, *arguments: str) -> None:
    figures = {"first-record": first_record, "brokers": brokers, "secured": secured, "spawned": spawned}
    sized = {"snapshots": snapshots, "thousand": thousand}
    print(json.dumps(figures[what]() if what in figures else sized[what](int(arguments[0]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
