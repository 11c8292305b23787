"""Fixtures for the tests with real clients; the helpers are in `support.interop`."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.interop.clusters import Clustered, KafkaCluster, OttlaCluster
from support.interop.drivers import CLIENTS, Client, Driver
from support.wire import Wire


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def _drivers(broker: Any) -> Iterator[Callable[[Client], Driver]]:
    running: dict[str, Driver] = {}

    def get(client: Client) -> Driver:
        if client.name not in running:
            running[client.name] = Driver(client, broker.bootstrap)
        return running[client.name]

    yield get
    for driver in running.values():
        driver.close()


@pytest.fixture
def driver(request: pytest.FixtureRequest, _drivers: Callable[[Client], Driver]) -> Driver:
    """The client under test, from `@pytest.mark.parametrize("driver", clients(...), indirect=True)`."""
    return _drivers(request.param)


@pytest.fixture
def drive(_drivers: Callable[[Client], Driver]) -> Callable[[str], Driver]:
    """A client by name, shared by the tests of this worker."""
    return lambda name: _drivers(CLIENTS[name])


@pytest.fixture
def spawn(broker: Any) -> Iterator[Callable[[str | Client], Driver]]:
    """A separate client process, which the test may kill."""
    made: list[Driver] = []

    def start(client: str | Client) -> Driver:
        one = Driver(CLIENTS[client] if isinstance(client, str) else client, broker.bootstrap)
        made.append(one)
        return one

    yield start
    for one in made:
        one.kill()


@pytest.fixture
def wire(broker: Any) -> Iterator[Wire]:
    with Wire(broker.address) as connection:
        yield connection


@pytest.fixture
def connect(broker: Any) -> Iterator[Callable[..., Wire]]:
    """Opens additional raw connections."""
    opened: list[Wire] = []

    def open_one(**options: Any) -> Wire:
        opened.append(Wire(broker.address, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def topic(wire: Wire, unique: Callable[[str], str]) -> str:
    """A new topic with one partition."""
    return wire.create_topic(unique("t"))


@pytest.fixture
def make_topic(wire: Wire, unique: Callable[[str], str]) -> Callable[..., str]:
    return lambda partitions=1, **configs: wire.create_topic(unique("t"), partitions, **configs)


@pytest.fixture(scope="session")
def _cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    where = request.config.getoption("--cluster")
    if where is None:
        one: Clustered = OttlaCluster()
    else:
        one = KafkaCluster(tmp_path_factory.mktemp("kafka") if where == "kafka" else Path(where).resolve())
    yield one
    one.close()


@pytest.fixture(scope="session")
def _quorum(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    where = request.config.getoption("--cluster")
    if where is None:
        one: Clustered = OttlaCluster(controllers=3)
    else:
        folder = tmp_path_factory.mktemp("quorum") if where == "kafka" else Path(where).resolve()
        one = KafkaCluster(folder, controllers=3)
    yield one
    one.close()


@pytest.fixture
def quorum(_quorum: Clustered) -> Iterator[Clustered]:
    """The same with three controllers; `--cluster FOLDER` must be the folder of such a cluster."""
    yield _quorum
    _quorum.mend()


@pytest.fixture
def cluster(_cluster: Clustered) -> Iterator[Clustered]:
    """Three brokers that all tests of this worker share; after each test all of them run."""
    yield _cluster
    _cluster.mend()


@pytest.fixture
def check() -> Iterator[Callable[[object, object], None]]:
    """`check(found, expected)` continues after a difference, so a comparison shows all differences at once."""
    differences: list[str] = []

    def compare(found: object, expected: object) -> None:
        if found != expected:
            line = sys._getframe(1).f_lineno
            differences.append(f"line {line}: {found!r} where {expected!r} is expected")

    yield compare
    assert not differences, "\n".join(["", *differences])
