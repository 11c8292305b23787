"""A browser, a broker and its console."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page

import ottla
from ottla.console.server import ConsoleServer
from ottla.testing import ServedBroker
from support.browser import chromium
from support.console import served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Playwright keeps an event loop in this thread, so it must end before tests of other modules run theirs."""
    with chromium() as found:
        yield found


@pytest.fixture
def broker() -> Iterator[ServedBroker]:
    with ottla.serve(console=0, clock="virtual") as found:
        yield found


@pytest.fixture
def console_url(broker: ServedBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The broker's own console; with the mark `outside`, one that connects to it over the network."""
    if request.node.get_closest_marker("outside") is None:
        yield broker.console_url
        return
    with served(lambda: ConsoleServer(lambda: broker.bootstrap, "127.0.0.1", 0)) as url:
        yield url


OpenPage = Callable[..., Page]


@contextmanager
def opened(browser: Browser, url: str) -> Iterator[OpenPage]:
    """Opens paths of the console at this address. A script error or a refused resource fails the test."""
    contexts = []
    problems: list[str] = []

    def open_(path: str, **options: object) -> Page:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if "Content Security" in line.text else None)
        page.on("dialog", lambda dialog: problems.append(f"a script opened a dialog: {dialog.message}"))
        page.goto(url + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture
def open_page(browser: Browser, console_url: str) -> Iterator[OpenPage]:
    with opened(browser, console_url) as open_:
        yield open_


@pytest.fixture
def open_cluster_page(browser: Browser) -> Iterator[tuple[ottla.Cluster, OpenPage]]:
    """A cluster of three brokers with its console."""
    with ottla.Cluster(3, console=0) as cluster, opened(browser, cluster.console_url) as open_:
        yield cluster, open_


SLOW_ELECTIONS = {"controller.quorum.election.timeout.ms": 1000, "controller.quorum.fetch.timeout.ms": 2000}
"""A busy machine does not depose a leader."""


@pytest.fixture
def open_quorum_page(browser: Browser) -> Iterator[tuple[ottla.Cluster, OpenPage]]:
    """A cluster of three brokers and three controllers with its console."""
    with (
        ottla.Cluster(3, controllers=3, console=0, settings=SLOW_ELECTIONS) as cluster,
        opened(browser, cluster.console_url) as open_,
    ):
        yield cluster, open_
