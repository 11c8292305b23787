"""What happens to a broker, or to a cluster, while clients work.

Kills, pauses, full and slow disks, clock jumps, network partitions and coordinators that move.
"""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import ottla

TESTS = Path(__file__).resolve().parents[2]
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
TOPIC = "history"
PARTITIONS = 4


class Target(Protocol):
    """A broker or a cluster under test."""

    @property
    def troubles(self) -> tuple[str, ...]: ...

    @property
    def bootstrap(self) -> str: ...

    def trouble(self, kind: str, chance: random.Random) -> None:
        """One fault, from start to end."""
        ...

    def close(self) -> None: ...


class OneBroker:
    """A process. All written data survives a kill, and the port stays the same."""

    troubles = ("kill", "pause", "full-disk", "clock-jump", "slow-disk")

    def __init__(self, data: Path) -> None:
        self._data = data
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.histories.broker_child", str(self._data), str(self._port)],
            cwd=TESTS,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the broker did not start; it ended with {self._process.wait()}"
        self._port = int(line.strip().rpartition(":")[2])

    def trouble(self, kind: str, chance: random.Random) -> None:
        process = self._process
        assert process is not None
        if kind == "kill":
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            self._start()
        elif kind == "pause":
            process.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.2, 1.5))
            process.send_signal(signal.SIGCONT)
        elif kind == "full-disk":
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            time.sleep(chance.uniform(0.2, 1.0))
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, UNLIMITED)
        else:
            toggle = signal.SIGUSR1 if kind == "clock-jump" else signal.SIGUSR2
            process.send_signal(toggle)
            time.sleep(chance.uniform(0.2, 1.0))
            process.send_signal(toggle)

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()


class ClusterOfThree:
    """Three brokers in this process: leaders and coordinators move when one is killed, or cut off."""

    troubles = ("kill", "network-cut", "coordinator-move", "restart")

    def __init__(self, data: Path) -> None:
        self._cluster = ottla.Cluster(
            3, data=str(data), settings={"offsets.topic.num.partitions": 4, "min.insync.replicas": 2}
        )
        self._cluster.__enter__()

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def trouble(self, kind: str, chance: random.Random) -> None:
        cluster: Any = self._cluster
        if kind == "network-cut":
            lonely = chance.randint(1, 3)
            cluster.partition_network([lonely], [other for other in (1, 2, 3) if other != lonely])
            time.sleep(chance.uniform(0.5, 2.0))
            cluster.heal()
            return
        if kind == "coordinator-move":
            # The broker that holds the state of transaction 0 is killed; another one loads it.
            victim = cluster.transaction_coordinator("history-0")
        else:
            victim = chance.randint(1, 3)
        if victim not in cluster.running():
            return
        (cluster.stop if kind == "restart" else cluster.kill)(victim)
        time.sleep(chance.uniform(0.2, 1.5))
        cluster.start(victim)

    def close(self) -> None:
        self._cluster.__exit__(None, None, None)


TARGETS: dict[str, Callable[[Path], Target]] = {"broker": OneBroker, "cluster": ClusterOfThree}
