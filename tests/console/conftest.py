"""A broker with a console."""

from collections.abc import Iterator

import pytest

import ottla
from ottla.console.server import ConsoleServer
from support.console import Console, served


@pytest.fixture(params=["own", "outside"])
def console(request: pytest.FixtureRequest) -> Iterator[Console]:
    """The broker's own console, which calls it in process, and one that connects to it over the network."""
    if request.param == "own":
        with ottla.serve(console=0) as broker:
            yield Console(broker.console_url, broker)
        return
    with (
        ottla.serve() as broker,
        served(lambda: ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0)) as url,
    ):
        yield Console(url, broker)


@pytest.fixture
def own_console() -> Iterator[Console]:
    with ottla.serve(console=0, clock="virtual") as broker:
        yield Console(broker.console_url, broker)
