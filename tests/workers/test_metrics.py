"""One metrics page for all workers."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.wire.messages import CreateTopicsRequest, DescribeClusterRequest
from support.ports import free_ports

SECONDS = 60.0
Serve = Callable[..., Any]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return str(answer.read().decode())


def samples(page: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """{labels: value} of one metric."""
    found = {}
    for line in page.splitlines():
        match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match:
            found[tuple(sorted(re.findall(r'(\w+)="([^"]*)"', match[1] or "")))] = float(match[2])
    return found


def test_a_page_for_all_workers(serve: Serve) -> None:
    serving = serve(3, "--metrics", "0", "--json")
    said = json.loads(serving.said)
    assert "3 workers" in said["where"]
    url = said["metrics"]
    settings = {"bootstrap.servers": serving.bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("t", 6, 1)])["t"].result(SECONDS)
    producer = ck.Producer(settings)
    for number in range(60):
        producer.produce("t", b"x", partition=number % 6)
    assert producer.flush(SECONDS) == 0
    for number in range(4):  # their coordinators are not all on one worker
        consumer = ck.Consumer({**settings, "group.id": f"g{number}"})
        offsets = [ck.TopicPartition("t", index, index) for index in range(6)]
        assert all(part.error is None for part in consumer.commit(offsets=offsets, asynchronous=False))
        consumer.close()

    page = get(url)
    leaders = serving.leaders("t")
    ends = {
        dict(labels)["partition"]: (dict(labels)["worker"], value)
        for labels, value in samples(page, "ottla_log_end_offset").items()
        if dict(labels)["topic"] == "t"
    }
    assert ends == {str(index): (str(leaders[index]), 10.0) for index in range(6)}
    # Every partition of each group, no matter which worker leads it.
    lags = {
        (dict(labels)["group"], dict(labels)["partition"]): value
        for labels, value in samples(page, "ottla_group_lag").items()
    }
    assert lags == {(f"g{number}", str(index)): 10.0 - index for number in range(4) for index in range(6)}
    assert sum(samples(page, "ottla_groups").values()) == 4
    assert {dict(labels)["worker"] for labels in samples(page, "ottla_connections")} == {"1", "2", "3"}
    # Each name is explained once, however many workers have it.
    kinds = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds))
    assert get(url.replace("/metrics", "/ready")) == "ready\n" and get(url.replace("/metrics", "/health")) == "ok\n"
    assert serving.stop() == (0, "")


def test_a_request_is_counted_where_it_came_in(serve: Serve) -> None:
    serving = serve(2, "--metrics", "0", "--json")
    ports = serving.ports()
    wire = serving.wire(ports[2])
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)  # passed on to the first
    wire.call(DescribeClusterRequest(), 0)
    counted = samples(get(json.loads(serving.said)["metrics"]), "ottla_requests_total")
    by_api = {(dict(labels)["api"], dict(labels)["worker"]): value for labels, value in counted.items()}
    assert by_api["CreateTopics", "2"] == by_api["DescribeCluster", "2"] == 1.0
    assert ("CreateTopics", "1") not in by_api
    assert serving.stop() == (0, "")


def test_a_page_whose_port_is_taken(serve: Serve, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        code, errors = serve(2, "--metrics", str(port), ready=False).finish()
    assert code == 1 and errors.startswith(f"ottla: cannot listen on 127.0.0.1:{port}")
    assert not (tmp_path / "data").exists()
