"""One Spark for all tests of a process, and a broker to read from: an Ottla, or with `--bootstrap` any other.

Files are read from the folder of that Ottla; for a broker of `--bootstrap`, $OTTLA_TEST_DATA may name its log dir.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.waiting import wait_for

if find_spec("numpy") is None or find_spec("pyarrow") is None or find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]  # scripts/test installs them; scripts/test fast does not

WAIT_S = 120
# These JVMs live for seconds or minutes, and would spend half of their CPU time on optimising code that soon ends.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, JVM_OPTIONS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local Spark with the official connector and `format("ottla")`."""
    import ottla.spark

    folder = tmp_path_factory.mktemp("spark")
    before = Path.cwd()
    os.chdir(folder)  # Spark leaves folders where it is started
    try:
        made = ottla.spark.session(
            master="local[2]",
            app_name="ottla-tests",
            config={
                "spark.sql.shuffle.partitions": 2,
                "spark.default.parallelism": 2,
                "spark.local.dir": str(folder / "local"),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.driver.memory": "1g",
                "spark.sql.streaming.numRecentProgressUpdates": 20,
                "spark.sql.streaming.pollingDelay": "10ms",
                "spark.log.level": "ERROR",
            },
        )
    finally:
        os.chdir(before)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def data_folder(broker: Any) -> Path:
    """The log dir of the broker, for tests that read files."""
    if broker.data is not None:
        return Path(broker.data)
    named = os.environ.get("OTTLA_TEST_DATA")
    if not named:
        pytest.skip("$OTTLA_TEST_DATA does not name the log dir of the broker of --bootstrap")
    return Path(named)


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    """Waits for a condition, and returns its result: `until(lambda: query.lastProgress)`."""

    def wait(condition: Callable[[], Any], what: object = "the condition", timeout_s: float = WAIT_S) -> Any:
        return wait_for(condition, what, timeout_s)

    return wait


@pytest.fixture
def kill_after(until: Callable[..., Any], tmp_path: Path) -> Callable[..., None]:
    """`kill_after(command, condition, chance)`: runs a command, and ends it with SIGKILL at some moment after the
    condition holds."""

    def run(command: list[str], condition: Callable[[], bool], chance: random.Random) -> None:
        path = tmp_path / "killed.log"
        with path.open("wb") as log:
            child = subprocess.Popen(
                command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            try:
                until(lambda: condition() or child.poll() is not None, "the condition", 900)
                assert child.poll() is None, path.read_text()
                # The position in the next batch is random.
                until(lambda: chance.random() < 0.1, "luck")
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait(60)

    return run


@pytest.fixture(scope="session")
def finish() -> Callable[[Any], list[int]]:
    """Starts a stream, waits for its end, and returns the sizes of its micro-batches that had records."""

    def run(writer: Any) -> list[int]:
        for left in (4, 3, 2, 1, 0):
            query = writer.start()
            try:
                assert query.awaitTermination(300), "the stream did not end"
            except Exception as error:
                # Spark gives a Python process ten seconds to start, which a starved machine does not keep. Nothing of
                # the query has happened by then.
                if "failed to connect back" in str(error) and left:
                    continue
                raise
            return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        raise AssertionError

    return run


@pytest.fixture(scope="session")
def admin(broker: Any) -> Any:
    """A confluent admin client of the broker."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def make_topic(admin: Any, unique: Callable[[str], str]) -> Callable[..., str]:
    """`make_topic(partitions=3, **configs)`: creates a topic with a unique name, and returns the name."""
    from confluent_kafka.admin import NewTopic

    def make(partitions: int = 1, name: str | None = None, **configs: Any) -> str:
        topic = name or unique("t")
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(60)
        return topic

    return make


@pytest.fixture
def send(broker: Any) -> Callable[..., None]:
    """`send(topic, [(key, value), …], partition=0, headers=…, **client_settings)`; all records are acknowledged when it
    returns."""
    from confluent_kafka import Producer

    def go(topic: str, records: Any, partition: int = 0, timestamp: int = 0, headers: Any = None, **more: Any) -> None:
        settings = {key.replace("_", "."): value for key, value in more.items()}
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, **settings})
        failures: list[Any] = []
        for key, value in records:
            while True:
                try:
                    producer.produce(
                        topic,
                        key=key,
                        value=value,
                        partition=partition,
                        timestamp=timestamp,
                        headers=headers,
                        on_delivery=lambda error, _: failures.append(error) if error else None,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        assert not failures, failures[0]

    return go


@pytest.fixture(scope="session")
def compiled_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """For $PYSPARK_PYTHON of a Spark that is not local: a Python that need not compile PySpark whenever it starts.

    A session of a local master has it anyway; under this name other sessions keep it, too.
    """
    from ottla.spark.interpreter import starter

    folder = tmp_path_factory.mktemp("python")
    made = starter(folder)
    assert made is not None
    return str(Path(made).rename(folder / "python"))


@pytest.fixture(scope="session")
def spark_master(tmp_path_factory: pytest.TempPathFactory, until: Callable[..., Any]) -> Iterator[str]:
    """The address of a standalone Spark cluster: a master and a worker, each in its own process."""
    import pyspark

    home, folder = Path(pyspark.__file__).parent, tmp_path_factory.mktemp("spark-cluster")
    (folder / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions {JVM_OPTIONS}\n")
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, pattern: str, *arguments: str) -> re.Match[str]:
        """Starts a part of the cluster, and waits for the log line that shows that it is ready."""
        log = folder / f"{name.rpartition('.')[2]}.log"
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with log.open("wb") as sink:
            running.append(
                subprocess.Popen(command, env=environment, cwd=folder, stdout=sink, stderr=subprocess.STDOUT)
            )
        child = running[-1]

        def found() -> re.Match[str] | None:
            assert child.poll() is None, log.read_text()
            return re.search(pattern, log.read_text())

        match: re.Match[str] = until(found, f"'{pattern}' of {name}", 240)
        return match

    patch = pytest.MonkeyPatch()
    patch.setenv("SPARK_CONF_DIR", str(folder))  # for the drivers, which choose the options of their executors
    try:
        local = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = start("master.Master", r"Starting Spark master at (spark://\S+)", *local)[1]
        room = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
        start("worker.Worker", "Successfully registered with master", *local, *room, master)
        yield master
    finally:
        patch.undo()
        for child in reversed(running):
            child.terminate()
            child.wait(60)
