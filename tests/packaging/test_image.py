"""The image without a container engine: `ottla.bench.containers` runs its root file system.

Each test of a Testcontainers module does what that module does, step by step.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.bench.containers import CONTRACTS, ENTRY_POINT, RUNNING, Container, assemble, can_run, unpack

from .conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not can_run(), reason="needs root, namespaces and /usr/bin/python3")]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("image") / "root"
    assemble(ROOT, root)
    return root


Start = Callable[..., Container]


@pytest.fixture
def start(image: Path, tmp_path: Path) -> Iterator[Start]:
    """`start(command, env)`: a container of the image, with its own file system."""
    started: list[Container] = []

    def run(command: list[str], env: dict[str, str], **options: Any) -> Container:
        unpack(image, tmp_path / "root")
        started.append(Container(tmp_path / "root", command, env, **options))
        return started[-1]

    yield run
    for container in started:
        container.kill()


def round_trip(container: Container, address: str = "localhost:9092") -> None:
    server = ("--bootstrap-server", address)
    assert container.run("kafka-topics.sh", *server, "--create", "--topic", "t") == "Created topic t.\n"
    container.run("kafka-console-producer.sh", *server, "--topic", "t", given="hello\n")
    options = ("--topic", "t", "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
    assert container.run("kafka-console-consumer.sh", *server, *options) == "hello\n"


@pytest.mark.parametrize("module", CONTRACTS)
def test_the_image_starts_as_testcontainers_modules_start_it(start: Start, module: str) -> None:
    contract = CONTRACTS[module]
    container = start(contract.command, contract.env)
    container.copy_in(contract.script_path, contract.script)
    container.wait_for(contract.started)
    round_trip(container, contract.address)
    if module == "java":
        cluster_id = container.run("kafka-cluster.sh", "cluster-id", "--bootstrap-server", contract.address)
        assert contract.env["CLUSTER_ID"] in cluster_id
        assert "KAFKA_PROCESS_ROLES=broker,controller has no effect" in container.log


def test_without_any_setting_on_a_read_only_root(start: Start) -> None:
    container = start([ENTRY_POINT], {}, read_only=True)
    container.wait_for(RUNNING)
    round_trip(container)
    assert container.stop() == 0


def test_compose_files_for_bitnami_work(start: Start) -> None:
    """Its variables, its entry point, its volume and its paths of the tools."""
    scripts = "/opt/bitnami/scripts/kafka"
    env = {"ALLOW_PLAINTEXT_LISTENER": "yes", "KAFKA_CFG_NODE_ID": "0", "KAFKA_CFG_PROCESS_ROLES": "controller,broker"}
    command = [f"{scripts}/entrypoint.sh", f"{scripts}/run.sh"]
    container = start(command, env, volume="/bitnami/kafka")
    container.wait_for(RUNNING)
    server = ("--bootstrap-server", "localhost:9092")
    container.run("/opt/bitnami/kafka/bin/kafka-topics.sh", *server, "--create", "--topic", "t")
    assert "t-0\n" in container.run("ls", "/bitnami/kafka/data")


def test_a_broker_started_with_a_file_as_in_confluents_image(start: Start) -> None:
    file = "/etc/kafka/server.properties"
    container = start(["sh", "-c", f"while [ ! -f {file} ]; do sleep 0.1; done; exec kafka-server-start {file}"], {})
    container.copy_in(
        file,
        "node.id=3\nlisteners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://localhost:9092\n"
        "log.dirs=/var/lib/kafka/data\n",
    )
    container.wait_for("listening on")
    assert "id: 3" in container.run("kafka-broker-api-versions", "--bootstrap-server", "localhost:9092")


def test_a_mounted_file_and_variables_over_it(start: Start, image: Path) -> None:
    mounted = "/mnt/shared/config/server.properties"
    container = start(
        ["sh", "-c", f"while [ ! -f {mounted} ]; do sleep 0.1; done; exec {ENTRY_POINT}"],
        {"KAFKA_NUM_PARTITIONS": "3"},
    )
    container.copy_in(
        mounted,
        "node.id=7\nlisteners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://localhost:9092\n"
        "log.dirs=/var/lib/kafka/data\nnum.partitions=2\n",
    )
    container.wait_for(r"\[KafkaRaftServer nodeId=7\] Kafka Server started")
    server = ("--bootstrap-server", "localhost:9092")
    container.run("kafka-topics.sh", *server, "--create", "--topic", "t")
    assert "PartitionCount: 3" in container.run("kafka-topics.sh", *server, "--describe", "--topic", "t")


def test_the_dockerfile_is_what_is_tested(image: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "RUN scripts/image-root /image" in text and "COPY --from=build /image /" in text
    copied = re.findall(r"^COPY ([^-].*) \S+$", text, flags=re.M)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}\n" in (ROOT / ".dockerignore").read_text()
    command = re.search(r'^CMD \["(.*)"\]$', text, flags=re.M)
    assert command is not None and os.access(image / command[1].lstrip("/"), os.X_OK)
    assert re.search(r"^USER (?!root)", text, flags=re.M)
    # Compiled modules of one Python do not fit another.
    bases = dict(re.findall(r"^ARG (\w+)=python:(\d+\.\d+)", text, flags=re.M))
    assert re.findall(r"^FROM \$\{(\w+)\}", text, flags=re.M) == list(bases)
    assert len(set(bases.values())) == 1
