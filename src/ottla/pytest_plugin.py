"""The pytest plugin: one broker per session, topics and groups for each test, and a report when a test fails.

Most tests need `kafka`; `schema_registry` is its registry, and `ottla_broker` creates brokers with other options. See
docs/embedding.md. `kafka_cluster` is a cluster for one test, and `ottla_cluster` creates clusters with other options;
see docs/cluster.md.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.embedded import options as options_module
    from ottla.embedded import registry_handle
    from ottla.embedded import report as report_module
    from ottla.multibroker import cluster as cluster_module
    from ottla.multibroker import cluster_report
    from ottla.multibroker.cluster import Cluster
    from ottla.testing import namespace, over_http, plain_kafka, threaded
    from ottla.testing.namespace import AnyBroker, Kafka
    from ottla.testing.threaded import ServedBroker
else:
    cluster_module = lazy("ottla.multibroker.cluster")
    cluster_report = lazy("ottla.multibroker.cluster_report")
    namespace = lazy("ottla.testing.namespace")
    options_module = lazy("ottla.embedded.options")
    over_http = lazy("ottla.testing.over_http")
    plain_kafka = lazy("ottla.testing.plain_kafka")
    registry_handle = lazy("ottla.embedded.registry_handle")
    report_module = lazy("ottla.embedded.report")
    threaded = lazy("ottla.testing.threaded")

_SHARED = pytest.StashKey["ServedBroker"]()
_USED = pytest.StashKey["list[_Used]"]()


class _Used(NamedTuple):
    """A broker or a cluster that a test used, for the report if it fails."""

    title: str
    what: object
    report: Callable[[], str]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ottla", "a Kafka broker for tests")
    group.addoption(
        "--ottla-bootstrap", metavar="HOST:PORT", help="run the tests on this Kafka cluster instead of Ottla"
    )
    group.addoption(
        "--ottla-registry", metavar="URL", help="with --ottla-bootstrap: the schema registry of that cluster"
    )
    group.addoption(
        "--ottla-shared",
        action="store_true",
        help="with pytest-xdist: one broker for all workers instead of one for each",
    )
    parser.addini("ottla_preset", "the preset of the session's broker: test, dev or kafka", default="test")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ottla(**options): a fresh broker for this test's `kafka`, with options such as partitions=3, clock='virtual'",
    )
    config.addinivalue_line(
        "markers",
        "ottla_cluster(**options): options of this test's `kafka_cluster`, such as brokers=5, settings={…}",
    )
    if not config.getoption("ottla_shared") or hasattr(config, "workerinput"):
        return
    if not getattr(config.option, "numprocesses", None):
        return  # without workers, the session's broker is shared by all tests
    broker = threaded.serve(preset=config.getini("ottla_preset"), control=0, registry=0)
    broker.start()
    config.stash[_SHARED] = broker
    config.pluginmanager.register(_Workers(broker), "ottla-workers")


def pytest_unconfigure(config: pytest.Config) -> None:
    broker = config.stash.get(_SHARED, None)
    if broker is not None:
        broker.stop()


class _Workers:
    """Sends the address of the shared broker to xdist's workers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._addresses = (broker.bootstrap, broker.control_url, broker.registry_url)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["ottla_shared"] = self._addresses


@pytest.fixture(scope="session")
def ottla_options() -> dict[str, Any]:
    """Options of the session's broker; override this fixture in a conftest.py to set them."""
    return {}


@pytest.fixture(scope="session")
def ottla_session(request: pytest.FixtureRequest, ottla_options: dict[str, Any]) -> Iterator[AnyBroker]:
    """The broker that the tests of this process share. Use `kafka` in tests: it cleans up."""
    config = request.config
    bootstrap = config.getoption("ottla_bootstrap")
    shared = getattr(config, "workerinput", {}).get("ottla_shared")
    if bootstrap:
        yield _external(bootstrap, config.getoption("ottla_registry"))
    elif shared is not None:
        yield over_http.RemoteBroker(*shared)
    else:
        with threaded.serve(**{"preset": config.getini("ottla_preset"), **ottla_options}) as broker:
            yield broker


def _external(bootstrap: str, registry_url: str | None) -> plain_kafka.ExternalBroker:
    return plain_kafka.ExternalBroker(bootstrap, registry_url)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[namespace.Kafka]:
    """A broker, with names that only this test uses: `kafka.bootstrap`, `kafka.topic()`, `kafka.group()`.

    In a unittest.TestCase, `@pytest.mark.usefixtures("kafka")` sets `self.kafka`.
    """
    options = _marked(request, "ottla")
    if options is not None:
        suite = {"preset": request.config.getini("ottla_preset"), **request.getfixturevalue("ottla_options")}
        broker: AnyBroker = request.getfixturevalue("ottla_broker")(**_merged(suite, options))
    else:
        broker = request.getfixturevalue("ottla_session")
    kafka = namespace.Kafka(broker, request.node.name)
    _note(request, kafka)
    if isinstance(request.instance, unittest.TestCase):
        request.instance.kafka = kafka  # type: ignore[attr-defined]
    yield kafka
    kafka.close()


@pytest.fixture
def schema_registry(kafka: namespace.Kafka) -> registry_handle.RegistryHandle:
    """The schema registry of this test's broker: `schema_registry.url`, `.register(…)`, `.expect_compatible(…)`.

    It starts when it is first used. Subjects that a test registers are removed after the test.
    """
    return kafka.registry


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Callable[..., ServedBroker]]:
    """Creates brokers with their own options: `ottla_broker(partitions=3, preset="kafka")`; stopped after the test."""
    if request.config.getoption("ottla_bootstrap"):
        pytest.skip("makes its own broker, but --ottla-bootstrap names an existing one")
    started: list[ServedBroker] = []

    def start(**options: Any) -> ServedBroker:
        broker = threaded.serve(**options)
        broker.start()
        started.append(broker)
        _note(request, namespace.Kafka(broker, request.node.name))
        return broker

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> Iterator[Callable[..., cluster_module.Cluster]]:
    """Creates clusters, with the options of `ottla.Cluster`: `ottla_cluster(brokers=5)`; stopped after the test.

    A cluster runs in its own thread, so that it serves synchronous and asynchronous tests.
    """
    if request.config.getoption("ottla_bootstrap"):
        pytest.skip("makes its own cluster, but --ottla-bootstrap names an existing one")
    with ExitStack() as running:

        def start(*brokers: int, **options: Any) -> cluster_module.Cluster:
            cluster = running.enter_context(
                cluster_module.Cluster(*brokers, **{"preset": request.config.getini("ottla_preset"), **options})
            )
            used = _Used(
                f"Kafka cluster at {cluster.bootstrap}", cluster, lambda: cluster_report.cluster_report(cluster)
            )
            request.node.stash.setdefault(_USED, []).append(used)
            return cluster

        yield start


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, ottla_cluster: Callable[..., Cluster]) -> Cluster:
    """Three brokers for this test alone; `@pytest.mark.ottla_cluster(…)` sets options.

    In a unittest.TestCase, `@pytest.mark.usefixtures("kafka_cluster")` sets `self.kafka_cluster`.
    """
    cluster = ottla_cluster(**(_marked(request, "ottla_cluster") or {}))
    if isinstance(request.instance, unittest.TestCase):
        request.instance.kafka_cluster = cluster  # type: ignore[attr-defined]
    return cluster


def _marked(request: pytest.FixtureRequest, name: str) -> dict[str, Any] | None:
    marker = request.node.get_closest_marker(name)
    if marker is None:
        return None
    if marker.args:
        pytest.fail(f"@pytest.mark.{name} takes options by name, such as partitions=3", pytrace=False)
    if name == "ottla":
        try:
            options_module.check_names(marker.kwargs)
        except TypeError as error:
            pytest.fail(f"@pytest.mark.{name}: {error}", pytrace=False)
    return dict(marker.kwargs)


def _merged(suite: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge options: those of the test override those of the suite, and settings are merged key by key."""
    merged = {**suite, **own}
    if suite.get("settings") and own.get("settings"):
        merged["settings"] = {**suite["settings"], **own["settings"]}
    return merged


def _note(request: pytest.FixtureRequest, kafka: Kafka) -> None:
    used = _Used(f"Kafka at {kafka.prefix}", kafka._broker, kafka.report)
    request.node.stash.setdefault(_USED, []).append(used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _skipped_elsewhere())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _skipped_elsewhere())


def _skipped_elsewhere() -> Generator[None, object, object]:
    """Skip a test that needs Ottla if it runs on another broker."""
    try:
        return (yield)
    except RuntimeError as error:
        if isinstance(error, plain_kafka.NeedsOttla):
            pytest.skip(str(error))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed:
        seen: set[int] = set()
        for used in item.stash.get(_USED, []):
            if id(used.what) not in seen and (text := _text_of(used)):
                report.sections.append((used.title, text))
            seen.add(id(used.what))
    return report


def _text_of(used: _Used) -> str:
    try:
        return used.report()
    except Exception as error:  # the test's own failure must be visible, regardless of the broker's state
        return f"the state of the broker cannot be read: {error!r}"
