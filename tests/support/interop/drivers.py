"""Client drivers: each wraps one real client library in a child process and accepts the same operations as JSON lines.

One child process per client keeps its threads, loops and warnings out of the test process, and lets a test kill a
member for real. The operations, with bytes as base64 (helpers below), are:

    info; produce; read; offsets; offset_for_time; max_timestamp;
    consumer_open, _poll, _seek, _position, _commit, _committed, _close;
    create_topic, delete_topic, list_topics, describe_topic, describe_cluster;
    groups_list, group_describe, group_delete, group_offsets, group_offsets_alter, _delete;
    configs_describe, configs_alter (a change), configs_replace (all of them); partitions_create, records_delete;
    acls_create, _describe, _delete; quotas_alter, _describe; scram_alter, _describe; log_dirs; elect_leaders;
    reassign, reassignments; features, quorum, config_resources (Java only); tool (Java only: a Kafka command line tool
    in the same JVM)
"""

import base64
import dataclasses
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from support.interop import toolchains

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CALL_TIMEOUT_S = 90


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def unb64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@dataclasses.dataclass(frozen=True)
class Rec:
    """A record as a test writes and compares it."""

    value: bytes | None = b""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "value": b64(self.value),
            "key": b64(self.key),
            "headers": [[name, b64(data)] for name, data in self.headers],
            "timestamp": self.timestamp,
            "partition": self.partition,
        }


@dataclasses.dataclass(frozen=True)
class Got(Rec):
    """A record as a client read it."""

    topic: str = ""
    offset: int = -1
    timestamp_type: int | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Got":
        return cls(
            value=unb64(data["value"]),
            key=unb64(data["key"]),
            headers=tuple((name, unb64(value)) for name, value in data["headers"]),
            timestamp=data["timestamp"],
            partition=data["partition"],
            topic=data["topic"],
            offset=data["offset"],
            timestamp_type=data["timestamp_type"],
        )

    def as_sent(self) -> Rec:
        return Rec(self.value, self.key, self.headers, self.timestamp, self.partition)


class ClientError(Exception):
    """What the client raised: the Kafka error code if there is one, the class name, and the text."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(f"{data['name']} (code {data['code']}): {data['text']}")
        self.code: int | None = data["code"]
        self.name: str = data["name"]
        self.text: str = data["text"]


class Driver:
    """One running driver process. Calls are answered in order; `start` and `finish` split one in two."""

    def __init__(self, client: "Client", bootstrap: str) -> None:
        self.client = client
        command, environment = client.command()
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [*command, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **environment},
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, op: str, **args: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, "args": args}).encode() + b"\n")
        self._process.stdin.flush()

    def finish(self, timeout_s: float = CALL_TIMEOUT_S) -> Any:
        answer = json.loads(self._line(timeout_s))
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["ok"]

    def ready(self, timeout_s: float) -> bool:
        """Whether an answer is available, or arrives within the time."""
        assert self._process.stdout is not None
        if b"\n" in self._buffer:
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout.fileno(), selectors.EVENT_READ)
            return bool(selector.select(timeout_s))

    def call(self, op: str, **args: Any) -> Any:
        self.start(op, **args)
        return self.finish()

    def _line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    pytest.fail(f"{self.client.name} did not answer in {timeout_s} s; its log:\n{self.log()}")
                data = os.read(descriptor, 1 << 20)
                if not data:
                    pytest.fail(f"{self.client.name}'s driver ended; its log:\n{self.log()}")
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def log(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()[-4000:]

    def kill(self) -> None:
        """Ends the client like a crash: it neither leaves the group nor commits."""
        self._process.kill()
        self._end()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(10)
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None and not stream.closed:
                stream.close()

    # The operations that most tests use, with records instead of JSON

    def produce(self, topic: str, records: Iterable[Rec], **options: Any) -> list[dict[str, Any]]:
        return list(self.call("produce", topic=topic, records=[record.to_json() for record in records], **options))

    def produce_ok(self, topic: str, records: Iterable[Rec], **options: Any) -> list[dict[str, Any]]:
        sent = self.produce(topic, records, **options)
        for one in sent:
            assert "error" not in one, one
        return sent

    def read(self, topic: str, partitions: Iterable[int] = (0,), **options: Any) -> list[Got]:
        # Several clients wait for their last fetch when they close. No more records will arrive, so a short wait is
        # enough.
        options["config"] = {"fetch_max_wait_ms": 50, **options.get("config", {})}
        found = self.call("read", topic=topic, partitions=list(partitions), **options)
        return [Got.from_json(one) for one in found]

    def poll(self, consumer: str, timeout_ms: int = 1000) -> tuple[list[Got], list[tuple[str, int]]]:
        found = self.call("consumer_poll", id=consumer, timeout_ms=timeout_ms)
        return [Got.from_json(one) for one in found["records"]], [(t, p) for t, p in found["assignment"]]


@dataclasses.dataclass(frozen=True)
class Client:
    """A client library: how to run its driver, and what it can and cannot do."""

    name: str
    command: Callable[[], tuple[list[str], dict[str, str]]]
    codecs: tuple[str, ...] = CODECS
    assignors: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    marks: tuple[str, ...] = ()

    def can(self, *features: str) -> bool:
        return set(features) <= self.features

    def __str__(self) -> str:
        return self.name


def _python(script: str, path: Callable[[], list[Path]] = list) -> Callable[[], tuple[list[str], dict[str, str]]]:
    def command() -> tuple[list[str], dict[str, str]]:
        folders = ":".join(str(folder) for folder in path())
        return [sys.executable, str(toolchains.HERE / "python" / script)], {"PYTHONPATH": folders}

    return command


def _go(name: str) -> Callable[[], tuple[list[str], dict[str, str]]]:
    return lambda: ([str(toolchains.go_binary()), name], {})


def _java() -> tuple[list[str], dict[str, str]]:
    classes, jars = toolchains.java_classes()
    return [*toolchains.JAVA, "-cp", f"{classes}:{jars}/*", "Driver"], {}


def _node() -> tuple[list[str], dict[str, str]]:
    modules = toolchains.node_modules()
    return ["node", str(toolchains.HERE / "node" / "driver.js")], {"NODE_PATH": str(modules)}


ALL = {
    "idempotent",  # has an idempotent producer
    "null_header",  # writes headers without a value
    "no_payload",  # writes records with neither key nor value
    "plain_read",  # reads without a group
    "assign",  # opens consumers on given partitions
    "seek",  # seeks in an open consumer
    "position",
    "long_poll",  # accepts fetch waits of minutes
    "time_with_timestamp",  # offsets for times come with the timestamp
    "max_timestamp",
    "commit_metadata",
    "static",  # static group members
    "pattern",  # subscribes to a pattern
    "group_delete",
}
# What admin clients can do besides topics and groups. All can describe configs and add partitions.
ADMIN = {
    "configs_alter",  # changes single configs
    "configs_replace",  # sets all configs of a resource
    "delete_records",
    "acls",
    "log_dirs",
    "quotas",
    "scram",
    "elect",
    "reassign",
    "cancel_reassignment",
    "alter_group_offsets",
    "delete_group_offsets",
}
CLIENTS = {
    client.name: client
    for client in (
        Client(
            "kafka-python",
            _python("kafka_python_driver.py"),
            assignors=("range", "roundrobin", "sticky", "cooperative-sticky"),
            features=frozenset(ALL) - {"null_header", "no_payload"} | ADMIN - {"quotas"},
        ),
        Client(
            "kafka-python-2.0.2",
            _python("kafka_python_driver.py", lambda: [toolchains.kafka_python_2()]),
            assignors=("range", "roundrobin"),  # its sticky one fails in Python 3 when a second member joins
            features=frozenset(ALL) - {"null_header", "no_payload", "idempotent", "max_timestamp", "static"}
            | {"configs_replace", "acls"},
        ),
        Client(
            "aiokafka",
            _python("aiokafka_driver.py"),
            assignors=("range", "roundrobin", "sticky"),
            features=frozenset(ALL) - {"no_payload", "max_timestamp", "commit_metadata", "group_delete"}
            | {"configs_replace", "delete_records"},
        ),
        Client(
            "confluent-kafka",
            _python("confluent_driver.py"),
            assignors=("range", "roundrobin", "cooperative-sticky"),
            features=frozenset(ALL)
            | {"consumer_protocol", "create_off"}
            | ADMIN - {"log_dirs", "quotas", "reassign", "cancel_reassignment", "delete_group_offsets"},
        ),
        Client(
            "sarama",
            _go("sarama"),
            assignors=("range", "roundrobin", "sticky"),
            features=frozenset(ALL)
            - {"seek", "position", "max_timestamp", "pattern", "assign", "long_poll", "time_with_timestamp"}
            | ADMIN - {"cancel_reassignment"},
            marks=("go",),
        ),
        Client(
            "franz-go",
            _go("franz"),
            assignors=("range", "roundrobin", "sticky", "cooperative-sticky"),
            features=frozenset(ALL) - {"position"} | ADMIN,
            marks=("go",),
        ),
        Client(
            "java",
            _java,
            assignors=("range", "roundrobin", "sticky", "cooperative-sticky"),
            features=frozenset(ALL) | {"consumer_protocol", "create_off", "topic_ids"} | ADMIN - {"configs_replace"},
            marks=("jvm",),
        ),
        Client(
            "kafkajs",
            _node,
            codecs=("none", "gzip", "snappy"),
            # Its only assignor, with a non-standard name on the wire.
            assignors=("roundrobin",),
            features=frozenset({"idempotent", "no_payload", "commit_metadata", "group_delete"})
            | {"configs_replace", "delete_records", "acls", "reassign", "alter_group_offsets"},
            marks=("node",),
        ),
    )
}


def clients(*features: str, but: Iterable[str] = ()) -> list[Any]:
    """pytest parameters: every client that has all the features."""
    return [
        pytest.param(client, id=client.name, marks=[getattr(pytest.mark, mark) for mark in client.marks])
        for client in CLIENTS.values()
        if client.can(*features) and client.name not in but
    ]
