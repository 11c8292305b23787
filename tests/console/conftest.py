"""A broker with a console."""

from collections.abc import Iterator

import pytest

import ottla
from ottla.console.server import ConsoleServer
from support.console import Console, served


@pytest.fixture
def console() -> Iterator[Console]:
    with (
        ottla.serve() as broker,
        served(lambda: ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0)) as url,
    ):
        yield Console(url, broker)
