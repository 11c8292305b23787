"""Fixtures for the tests with real clients; the helpers are in `lib/interop`."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests are imported by path, without packages, so the shared helpers come from a folder of their own.
sys.path.insert(0, str(Path(__file__).parent / "lib"))

from interop.drivers import CLIENTS, Client, Driver
from interop.wire import Wire


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
    """A client process of the test's own, which it may kill."""
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
    """Further raw connections."""
    opened: list[Wire] = []

    def open_one(**options: Any) -> Wire:
        opened.append(Wire(broker.address, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def topic(wire: Wire, unique: Callable[[str], str]) -> str:
    """A fresh topic of one partition."""
    return wire.make(unique("t"))


@pytest.fixture
def make_topic(wire: Wire, unique: Callable[[str], str]) -> Callable[..., str]:
    return lambda partitions=1, **configs: wire.make(unique("t"), partitions, **configs)
