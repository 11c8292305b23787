"""Runs the image without a container engine: its root file system, assembled as in the Dockerfile, runs in separate
namespaces. This machine's /usr replaces the base image.

A `Contract` describes how a test library uses a Kafka image: the command that waits for a script, the script that the
library copies in, and the log line that it waits for. docs/testcontainers.md lists the sources.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")
ENTRY_POINT: Final = "/etc/kafka/docker/run"
BASE_PYTHON: Final = Path("/usr/bin/python3")
RUNNING: Final = r".*Transitioning from RECOVERY to RUNNING.*"


@dataclass(frozen=True, slots=True)
class Contract:
    """How one test library starts a broker."""

    env: dict[str, str]
    script_path: str = ""  # without one, the image's entry point runs
    script: str = ""
    shell: str = ""  # runs the script; empty if the script is executable
    started: str = RUNNING
    address: str = "localhost:9092"

    @property
    def command(self) -> list[str]:
        path = self.script_path
        if not path:
            return [ENTRY_POINT]
        return ["sh", "-c", f"while [ ! -f {path} ]; do sleep 0.1; done; {self.shell}{path}"]


_KRAFT: Final = {
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
_SWAPPED: Final = {  # clients use port 9093, as in the modules for Confluent's image
    **_KRAFT,
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
    "KAFKA_BROKER_ID": "1",
}
_JAVA_SCRIPT: Final = (
    "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://localhost:9093\n{run} \n"
)
CONTRACTS: Final[dict[str, Contract]] = {
    "java": Contract(_KRAFT, "/tmp/testcontainers_start.sh", _JAVA_SCRIPT.format(run="/etc/kafka/docker/run")),
    "confluent": Contract(_KRAFT, "/tmp/testcontainers_start.sh", _JAVA_SCRIPT.format(run="/etc/confluent/docker/run")),
    # With KRaft. sh runs the script, which calls the steps one by one.
    "python": Contract(
        _SWAPPED,
        "/tc-start.sh",
        "#!/bin/bash\n"
        "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
        "echo 'kafka-storage format --ignore-formatted -t MkU3OEVBNTcwNTJENDM2Qk -c /etc/kafka/kafka.properties'"
        " >> /etc/confluent/docker/configure\n"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9093,BROKER://127.0.0.1:9092\n"
        ". /etc/confluent/docker/bash-config\n"
        "/etc/confluent/docker/configure\n"
        "/etc/confluent/docker/launch\n",
        shell="sh ",
        started=r".*Kafka Server started.*",
        address="localhost:9093",
    ),
    # The module copies its script to /usr/sbin. Here /usr is this machine's, so the script goes to another folder.
    "go": Contract(
        _SWAPPED,
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
        shell="bash ",
        address="localhost:9093",
    ),
    # With ZooKeeper, like the old module for Java.
    "node": Contract(
        {
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
            "KAFKA_BROKER_ID": "1",
            "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
        },
        "/tmp/testcontainers_start.sh",
        "#!/bin/bash\n"
        "export KAFKA_ADVERTISED_LISTENERS=BROKER://localhost:9092,PLAINTEXT://localhost:9093\n"
        "echo '' > /etc/confluent/docker/ensure \n"
        "echo 'clientPort=2181' > /tmp/zookeeper.properties\n"
        "zookeeper-server-start /tmp/zookeeper.properties &\n"
        "/etc/confluent/docker/run \n",
        started=r".*\[KafkaServer id=\d+\] started.*",
        address="localhost:9093",
    ),
    # This module's list of advertised listeners ends with a comma.
    "dotnet": Contract(
        {
            **_KRAFT,
            "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
            "KAFKA_BROKER_ID": "1",
        },
        "/testcontainers.sh",
        "#!/bin/bash\n"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://127.0.0.1:9093,\n"
        "exec /etc/kafka/docker/run\n",
    ),
}


def can_run() -> bool:
    """Whether we can create namespaces, and this machine's Python can replace the base image's."""
    if os.name != "posix" or os.geteuid() != 0 or not BASE_PYTHON.exists():
        return False
    if not all(map(shutil.which, ("unshare", "nsenter", "chroot", "ip"))):
        return False
    probe = ["unshare", "-m", "-n", "sh", "-c", "ip link set lo up && mount -t tmpfs none /mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def assemble(checkout: Path, root: Path) -> None:
    """Build what the Dockerfile's first stage builds."""
    subprocess.run([checkout / "scripts" / "image-root", root, BASE_PYTHON], check=True)


def unpack(image: Path, root: Path) -> None:
    """Create the root file system for one container, as the Dockerfile's second stage and an engine would."""
    subprocess.run(["cp", "-a", image, root], check=True)
    for name in ("var/lib/kafka", "etc/kafka", "etc/confluent", "bitnami"):
        subprocess.run(["chown", "-R", "1000:0", root / name], check=True)
    (root / "tmp").mkdir(mode=0o777, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    for folder in (root, *root.parents):  # the container's user must be able to enter
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    for name in ("usr", "proc", "dev", "var/lib/kafka/data"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    (root / "usr" / "local").rename(root.parent / "usr-local")  # this folder is mounted over this machine's /usr
    for left in (root / "usr").iterdir():
        left.rmdir()


class Container:
    """A process in an unpacked root file system, with its own network that only has loopback."""

    def __init__(
        self, root: Path, command: list[str], env: dict[str, str], *, read_only: bool = False, volume: str = ""
    ) -> None:
        self.root = root
        self.env = {"PATH": "/opt/kafka/bin:/usr/local/bin:/usr/bin:/bin", **env}
        self._log = root.parent / "log"
        setup = [
            "ip link set lo up",
            f"mount --bind {root} {root}",
            f"mount --bind /usr {root}/usr",
            f"mount --bind {root.parent}/usr-local {root}/usr/local",
            f"mount --bind /dev {root}/dev",
            f"mount -t proc proc {root}/proc",
        ]
        if volume:
            setup.append(f"mount -t tmpfs -o mode=1777 tmpfs {root}{volume}")
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

    def wait_for(self, pattern: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.log):
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the container does not say {pattern!r}:\n{self.log}")
            time.sleep(0.02)

    def copy_in(self, path: str, content: str) -> None:
        """Like `docker cp`: the file has a temporary name until it is complete."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(target.name + ".new")
        unfinished.write_text(content)
        unfinished.chmod(0o777)
        unfinished.rename(target)

    def inner(self) -> int:
        """The pid of the container's first process, outside of its namespace."""
        children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
        return int(children[0])

    def run(self, *command: str, given: str = "", code: int = 0) -> str:
        """Like `docker exec`."""
        enter = ["nsenter", "-t", str(self.inner()), "-m", "-n", "chroot", "--userspec=1000:0", str(self.root)]
        env = {**self.env, "PATH": f"{self.env['PATH']}:/usr/sbin:/sbin"}
        words = [*enter, *command]
        done = subprocess.run(words, input=given, env=env, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != code:
            raise RuntimeError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}\n{self.log}")
        return done.stdout

    def in_network(self, work: Callable[[], T]) -> T:
        """Call a function in this container's network."""

        def enter() -> T:
            # Only this thread switches; os.setns needs Python 3.12.
            libc = ctypes.CDLL(None, use_errno=True)
            with Path(f"/proc/{self.inner()}/ns/net").open() as network:
                if libc.setns(network.fileno(), 0):
                    raise OSError(ctypes.get_errno(), "cannot enter the container's network")
            return work()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(enter).result()

    def stop(self) -> int:
        """Like `docker stop`."""
        os.kill(self.inner(), signal.SIGTERM)
        return self.child.wait(60)

    def kill(self) -> None:
        # When the first process ends, all others end too. It changed its user, so --kill-child does not reach it.
        with suppress(FileNotFoundError, IndexError, ProcessLookupError):  # it has ended already
            os.kill(self.inner(), signal.SIGKILL)
        self.child.kill()
        self.child.wait()
