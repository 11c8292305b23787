"""Clusters of three brokers for the benchmark: Ottla's in one process, Apache Kafka's in one JVM per broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ottla.bench.client import METADATA_VERSION, Client
from ottla.bench.model import NotMeasurable
from ottla.bench.targets import START_SECONDS, KafkaMaker, OttlaMaker, Target, free_port
from ottla.wire.messages import DescribeQuorumRequest, MetadataRequest

BROKERS = 3
FIRST_CONTROLLER = 3000
PATIENCE_SECONDS = 60.0
QUICK_SESSIONS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "100"}
"""Both detect a dead broker after one second; Kafka's default of nine seconds would only make the wait longer."""
_DESCRIBE_QUORUM_VERSION = 1


class BenchCluster(ABC):
    """Three running brokers, with one controller or a quorum of controllers."""

    def __init__(self, port: int) -> None:
        self.addresses = [("127.0.0.1", port + n) for n in range(BROKERS)]

    @abstractmethod
    def kill(self, broker: int) -> None: ...

    @abstractmethod
    def kill_controller(self) -> None:
        """Kill the active controller."""

    @property
    @abstractmethod
    def pids(self) -> list[int]: ...

    @abstractmethod
    def end(self) -> None: ...

    def leader(self, topic: str) -> tuple[int, tuple[str, int]]:
        """The current leader, according to any of the brokers."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        while True:
            for address in self.addresses:
                try:
                    with Client(address, 5.0) as client:
                        answer = client.call(wanted, METADATA_VERSION)
                except OSError:
                    continue
                brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
                leader = answer.topics[0].partitions[0].leader_id if answer.topics[0].partitions else -1
                if leader in brokers:
                    return leader, brokers[leader]
            if time.monotonic() > deadline:
                raise TimeoutError("no broker names a leader")
            time.sleep(0.005)

    def active_controller(self) -> int:
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
        with Client(self.addresses[0]) as client:
            answer = client.call(DescribeQuorumRequest(topics=[topic]), _DESCRIBE_QUORUM_VERSION)
        leader: int = answer.topics[0].partitions[0].leader_id
        return leader


class _OttlaCluster(BenchCluster):
    """A child process with three brokers, and its control endpoint."""

    def __init__(self, folder: Path, port: int, controllers: int, settings: Mapping[str, str]) -> None:
        super().__init__(port)
        command = [sys.executable, "-m", "ottla.cli.main", "serve", "--brokers", str(BROKERS), "--preset", "kafka"]
        command += ["--data", str(folder), "--port", str(port), "--control", "0", "--json"]
        if controllers > 1:
            command += ["--controllers", str(controllers)]
        command += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._child.stdout is not None
        said = self._child.stdout.readline().decode()
        if not said.startswith("{"):
            self.end()
            raise RuntimeError(f"the cluster did not start: {said}")
        self._control = json.loads(said)["control"]

    def _steer(self, verb: str, options: dict[str, Any]) -> None:
        body = json.dumps(options).encode()
        request = urllib.request.Request(f"{self._control}/cluster/{verb}", data=body, method="POST")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            answer.read()

    def kill(self, broker: int) -> None:
        self._steer("kill", {"broker": broker})

    def kill_controller(self) -> None:
        self._steer("kill_controller", {})

    @property
    def pids(self) -> list[int]:
        return [self._child.pid]

    def end(self) -> None:
        self._child.terminate()
        self._child.wait(30)
        assert self._child.stdout is not None
        self._child.stdout.close()


class _KafkaCluster(BenchCluster):
    """Three brokers and their controllers, one JVM each."""

    def __init__(self, folder: Path, port: int, controllers: int, settings: Mapping[str, str], script: Path) -> None:
        super().__init__(port)
        self._folder = folder
        self._nodes = [*range(1, BROKERS + 1), *range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)]
        subprocess.run(
            [str(script), str(port), str(folder), *(f"{key}={value}" for key, value in settings.items())],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "KAFKA_CONTROLLERS": str(controllers)},
            timeout=START_SECONDS * len(self._nodes),
        )

    def _pid(self, node: int) -> int:
        return int((self._folder / f"node-{node}" / "pid").read_text())

    def kill(self, broker: int) -> None:
        os.kill(self._pid(broker), signal.SIGKILL)

    def kill_controller(self) -> None:
        os.kill(self._pid(self.active_controller()), signal.SIGKILL)

    @property
    def pids(self) -> list[int]:
        return [self._pid(node) for node in self._nodes]

    def end(self) -> None:
        for node in self._nodes:
            with suppress(ProcessLookupError, FileNotFoundError):
                os.kill(self._pid(node), signal.SIGKILL)


@contextmanager
def started_cluster(
    target: Target, *, controllers: int = 1, settings: Mapping[str, str] = QUICK_SESSIONS
) -> Iterator[BenchCluster]:
    """A new, temporary cluster of the same kind as `target`."""
    maker = target.fresh()
    port = free_port(maker.base_port, BROKERS)
    folder = maker.data / f"{maker.name}-cluster"
    cluster: BenchCluster
    try:
        if isinstance(maker, OttlaMaker):
            cluster = _OttlaCluster(folder, port, controllers, settings)
        elif isinstance(maker, KafkaMaker):
            script = maker.script.with_name("kafka-cluster-start")
            cluster = _KafkaCluster(folder, port, controllers, settings, script)
        else:
            raise NotMeasurable("needs a cluster that the benchmark can start")
        try:
            yield cluster
        finally:
            cluster.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
