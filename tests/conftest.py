"""Options and brokers for every test: `--bootstrap` runs the tests on a broker other than Ottla."""

import os
import re
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from support.ports import free_ports
from support.processes import Broker, start_ottla
from support.running import RunBroker, run_to_end, running_broker

# Examples have no deadline: on a loaded machine one may take any time.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bootstrap",
        metavar="HOST:PORT|kafka",
        help="run the interop and Spark tests on this broker instead of an Ottla started for them; "
        "'kafka' starts an Apache Kafka",
    )
    parser.addoption(
        "--cluster",
        metavar="kafka|DIR",
        help="run the tests that compare clusters on an Apache Kafka of three brokers: one that is started for them, "
        "or the one that scripts/kafka-cluster-start runs in DIR",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    address = config.getoption("--bootstrap")
    return f"bootstrap: {address}" if address else None


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that all tests of this worker share: topics and groups need unique names."""
    address = request.config.getoption("--bootstrap")
    if address == "kafka":
        from support.kafka import Kafka

        # As for Ottla: tests write records with timestamps of years ago, and retention would remove them.
        kafka = Kafka(tmp_path_factory.mktemp("kafka"), "log.initial.task.delay.ms=86400000")
        yield Broker(*kafka.address, is_ottla=False, data=kafka.data)
        kafka.stop()
        return
    if address:
        host, _, port = address.rpartition(":")
        yield Broker(host, int(port), is_ottla=False)
        return
    started = start_ottla(tmp_path_factory.mktemp("broker") / "data", {})
    yield started
    if started.process is not None and started.process.poll() is not None:
        pytest.fail(f"the broker ended before the tests did; its log:\n{started.text()[-4000:]}")
    started.stop()


@pytest.fixture
def start_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Starts an Ottla with its own settings. With `--bootstrap` such a test is skipped, because it tests only Ottla."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("needs a broker of its own, and --bootstrap gives one that is shared")
    started: list[Broker] = []

    def start(data: Path | None = None, port: int | None = None, workers: int = 1, **settings: object) -> Broker:
        if port is None and workers == 1:
            (port,) = free_ports()  # a port that no client gets while a broker is killed and restarted
        named = {key.replace("_", "."): value for key, value in settings.items()}
        one = start_ottla(data or tmp_path / f"data-{len(started)}", named, port or 0, workers)
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes names that no other test, worker or run uses."""
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return lambda kind: f"{kind}-{stem}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def run_broker() -> RunBroker:
    """`async with run_broker(settings={…}) as running`: a broker on the test's event loop."""
    return running_broker


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine to its end, and fails if it leaves tasks behind."""
    return run_to_end
