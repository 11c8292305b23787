"""The image without a container engine: its root file system, assembled as in the Dockerfile, in namespaces of its own.

The base of the image is played by this machine's /usr. Each test of a Testcontainers module does what that module does,
step by step: the command that waits for a script, the script that is copied in, the line of the log that is waited for.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import ROOT

JAVA_ENV = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
SWAPPED = {  # where the port for clients is 9093, as in the modules for Confluent's image
    **JAVA_ENV,
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
    "KAFKA_BROKER_ID": "1",
}
RUNNING = r".*Transitioning from RECOVERY to RUNNING.*"


def _works() -> bool:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "chroot", "ip"))):
        return False
    probe = ["unshare", "-m", "-n", "sh", "-c", "ip link set lo up && mount -t tmpfs none /mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _works(), reason="needs root and namespaces"),
    pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs /usr/bin/python3 for the base"),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("image") / "root"
    subprocess.run([ROOT / "scripts" / "image-root", root, "/usr/bin/python3"], check=True)
    return root


class Container:
    """A process in the image's root file system, with a network of its own: only loopback."""

    def __init__(self, root: Path, command: list[str], env: dict[str, str], *, read_only: bool = False) -> None:
        self.root = root
        for name in ("usr", "proc", "dev", "tmp", "var/lib/kafka/data"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            if not (root / name).exists():
                (root / name).symlink_to(f"usr/{name}")
        self.env = {"PATH": "/opt/kafka/bin:/usr/local/bin:/usr/bin:/bin", **env}
        self._log = root.parent / "log"
        kept = root.parent / "usr-local"  # the image's own part of /usr goes over this machine's
        if not kept.exists():
            (root / "usr" / "local").rename(kept)
            (root / "usr").rmdir()
            (root / "usr").mkdir()
        setup = [
            "ip link set lo up",
            f"mount --bind {root} {root}",
            f"mount --bind /usr {root}/usr",
            f"mount --bind {kept} {root}/usr/local",
            f"mount --bind /dev {root}/dev",
            f"mount -t proc proc {root}/proc",
        ]
        if read_only:
            setup += [
                f"mount -t tmpfs -o mode=1777 tmpfs {root}/var/lib/kafka/data",
                f"mount -o remount,bind,ro {root}",
            ]
        script = " && ".join([*setup, f'exec chroot --userspec=1000:0 {root} "$@"'])
        with self._log.open("wb") as out:
            self.child = subprocess.Popen(
                ["unshare", "-m", "-n", "-p", "-f", "--kill-child", "sh", "-c", script, "sh", *command],
                env={**self.env, "PATH": f"{self.env['PATH']}:/usr/sbin:/sbin"},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, timeout_s: float = 30) -> None:
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.log):
            assert self.child.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def copy_in(self, path: str, content: str) -> None:
        """As `docker cp` does: under another name until it is complete."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(target.name + ".new")
        unfinished.write_text(content)
        unfinished.chmod(0o777)
        unfinished.rename(target)

    def inner(self) -> int:
        """The first process of the container, as this machine numbers it."""
        children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
        return int(children[0])

    def run(self, *command: str, given: str = "", code: int = 0) -> str:
        """As `docker exec` does."""
        enter = [
            "nsenter",
            "-t",
            str(self.inner()),
            "-m",
            "-n",
            "chroot",
            "--userspec=1000:0",
            str(self.root),
            *command,
        ]
        env = {**self.env, "PATH": f"{self.env['PATH']}:/usr/sbin:/sbin"}
        done = subprocess.run(enter, input=given, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}\n{self.log}"
        return done.stdout

    def stop(self) -> int:
        """As `docker stop` does."""
        os.kill(self.inner(), signal.SIGTERM)
        return self.child.wait(20)


Start = Callable[..., Container]


@pytest.fixture
def start(image: Path, tmp_path: Path) -> Iterator[Start]:
    """`start(command, env)`: a container of the image, with a file system of its own."""
    started: list[Container] = []

    def run(command: list[str], env: dict[str, str], *, read_only: bool = False) -> Container:
        root = tmp_path / "root"
        subprocess.run(["cp", "-a", image, root], check=True)
        # The Dockerfile gives these to the user.
        for name in ("var/lib/kafka", "etc/kafka", "etc/confluent"):
            subprocess.run(["chown", "-R", "1000:0", root / name], check=True)
        (root / "tmp").mkdir(mode=0o777, exist_ok=True)
        (root / "tmp").chmod(0o1777)
        (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")  # the engine makes this file
        for folder in (root, *root.parents):  # the user must be able to come here
            if not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
        started.append(Container(root, command, env, read_only=read_only))
        return started[-1]

    yield run
    for container in started:
        container.child.kill()
        container.child.wait()


def waiting(script: str, shell: str = "") -> str:
    return f"while [ ! -f {script} ]; do sleep 0.1; done; {shell}{script}"


def round_trip(container: Container, address: str = "localhost:9092") -> None:
    server = ("--bootstrap-server", address)
    assert container.run("kafka-topics.sh", *server, "--create", "--topic", "t") == "Created topic t.\n"
    container.run("kafka-console-producer.sh", *server, "--topic", "t", given="hello\n")
    options = ("--topic", "t", "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
    assert container.run("kafka-console-consumer.sh", *server, *options) == "hello\n"


def test_java_with_the_image_of_apache(start: Start) -> None:
    container = start(["sh", "-c", waiting("/tmp/testcontainers_start.sh")], JAVA_ENV)
    container.copy_in(
        "/tmp/testcontainers_start.sh",
        "#!/bin/bash\n"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://localhost:9093\n"
        "/etc/kafka/docker/run \n",
    )
    container.wait_for(RUNNING)
    round_trip(container)
    assert "4L6g3nShT-eMCtK--X86sw" in container.run(
        "kafka-cluster.sh", "cluster-id", "--bootstrap-server", "localhost:9092"
    )
    assert "KAFKA_PROCESS_ROLES=broker,controller has no effect" in container.log


def test_java_with_the_image_of_confluent(start: Start) -> None:
    container = start(["sh", "-c", waiting("/tmp/testcontainers_start.sh")], JAVA_ENV)
    container.copy_in(
        "/tmp/testcontainers_start.sh",
        "#!/bin/bash\n"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://localhost:9093\n"
        "/etc/confluent/docker/run \n",
    )
    container.wait_for(RUNNING)
    round_trip(container)


def test_python(start: Start) -> None:
    """With KRaft. The script is run with sh, and calls the steps one by one."""
    container = start(["sh", "-c", waiting("/tc-start.sh", "sh ")], SWAPPED)
    container.copy_in(
        "/tc-start.sh",
        "#!/bin/bash\n"
        "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
        "echo 'kafka-storage format --ignore-formatted -t MkU3OEVBNTcwNTJENDM2Qk -c /etc/kafka/kafka.properties'"
        " >> /etc/confluent/docker/configure\n"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9093,BROKER://127.0.0.1:9092\n"
        ". /etc/confluent/docker/bash-config\n"
        "/etc/confluent/docker/configure\n"
        "/etc/confluent/docker/launch\n",
    )
    container.wait_for(r".*Kafka Server started.*")
    round_trip(container, "localhost:9093")


def test_go(start: Start) -> None:
    """The module puts its script into /usr/sbin. /usr belongs to this machine here, so it goes to another folder."""
    container = start(["sh", "-c", waiting("/tmp/go.sh", "bash ")], SWAPPED)
    container.copy_in(
        "/tmp/go.sh",
        "#!/bin/bash\n"
        "source /etc/confluent/docker/bash-config\n"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9093,BROKER://localhost:9092\n"
        "echo Starting Kafka KRaft mode\n"
        "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
        """echo 'kafka-storage format --ignore-formatted -t "$(kafka-storage random-uuid)" """
        "-c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure\n"
        "echo '' > /etc/confluent/docker/ensure\n"
        "/etc/confluent/docker/configure\n"
        "/etc/confluent/docker/launch",
    )
    container.wait_for(RUNNING)
    round_trip(container, "localhost:9093")


def test_node_and_the_old_java_module_with_zookeeper(start: Start) -> None:
    env = {
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_BROKER_ID": "1",
        "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
    }
    container = start(["sh", "-c", waiting("/tmp/testcontainers_start.sh")], env)
    container.copy_in(
        "/tmp/testcontainers_start.sh",
        "#!/bin/bash\n"
        "export KAFKA_ADVERTISED_LISTENERS=BROKER://localhost:9092,PLAINTEXT://localhost:9093\n"
        "echo '' > /etc/confluent/docker/ensure \n"
        "echo 'clientPort=2181' > /tmp/zookeeper.properties\n"
        "zookeeper-server-start /tmp/zookeeper.properties &\n"
        "/etc/confluent/docker/run \n",
    )
    container.wait_for(r".*\[KafkaServer id=\d+\] started.*")
    round_trip(container, "localhost:9093")


def test_dotnet(start: Start) -> None:
    """The list of advertised listeners ends in a comma there."""
    env = {**JAVA_ENV, "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094", "KAFKA_BROKER_ID": "1"}
    container = start(["/bin/sh", "-c", waiting("/testcontainers.sh")], env)
    container.copy_in(
        "/testcontainers.sh",
        "#!/bin/bash\n"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://127.0.0.1:9093,\n"
        "exec /etc/kafka/docker/run\n",
    )
    container.wait_for(RUNNING)
    round_trip(container)


def test_without_any_setting_on_a_read_only_root(start: Start) -> None:
    container = start(["/etc/kafka/docker/run"], {}, read_only=True)
    container.wait_for(RUNNING)
    round_trip(container)
    assert container.stop() == 0


def test_a_mounted_file_and_variables_over_it(start: Start, image: Path) -> None:
    container = start(
        ["sh", "-c", waiting("/mnt/shared/config/server.properties", "exec /etc/kafka/docker/run # ")],
        {"KAFKA_NUM_PARTITIONS": "3"},
    )
    container.copy_in(
        "/mnt/shared/config/server.properties",
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
