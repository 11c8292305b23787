"""Prometheus metrics: request rates and latencies by API and version, bytes, log sizes, group lag, connections, errors.

Requests are counted by wrapping a route's handler and encoder when metrics are switched on; without them the dispatch
path is unchanged. State (sizes, offsets, lag) is read when the page is scraped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.answers import Reply
from ottla.errors import name_of
from ottla.lazy_imports import import_late, lazy
from ottla.server.state_metrics import BrokerState, HighWatermarks
from ottla.wire.schema import Message, Struct

if TYPE_CHECKING:
    import prometheus_client
    from prometheus_client import core as prometheus_core

    from ottla.server.api import RequestContext, Route
    from ottla.server.broker import Broker
else:
    prometheus_client = lazy("prometheus_client")
    prometheus_core = lazy("prometheus_client.core")

_LATENCY_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)

Family = tuple[str, str, str, list[tuple[str, dict[str, str], float]]]
"""A metric: its name, help, type, and the samples with their labels."""

MISSING = "metrics need the package prometheus_client: pip install 'ottla[metrics]'"


class MetricsPage(NamedTuple):
    """The page that a scraper reads."""

    content_type: str
    body: bytes


def need_prometheus() -> None:
    """RuntimeError if the package is not installed."""
    try:
        import_late("prometheus_client")
    except ImportError as missing:
        raise RuntimeError(MISSING) from missing


class Metrics:
    """The counters of one broker, and the page that shows them."""

    def __init__(self, broker: Broker) -> None:
        need_prometheus()
        self._broker = broker
        self._registry = prometheus_client.CollectorRegistry()
        labels = ("api", "version")
        self._requests = prometheus_client.Counter(
            "ottla_requests", "Requests served.", labels, registry=self._registry
        )
        self._errors = prometheus_client.Counter(
            "ottla_request_errors",
            "Errors in answers: of a whole request, or of each topic, partition, group … in it.",
            ("api", "error"),
            registry=self._registry,
        )
        self._latency = prometheus_client.Histogram(
            "ottla_request_seconds",
            "Time from the decoded request to its answer, including waits.",
            labels,
            buckets=_LATENCY_BUCKETS_S,
            registry=self._registry,
        )
        self._bytes_in = prometheus_client.Counter(
            "ottla_request_bytes", "Bytes of requests.", ("api",), registry=self._registry
        )
        self._bytes_out = prometheus_client.Counter(
            "ottla_response_bytes", "Bytes of responses.", ("api",), registry=self._registry
        )
        self._state = BrokerState(broker)
        self._registry.register(self._state)

    def instrument(self, route: Route, version: int) -> None:
        """Count the requests of a route."""
        name = route.api.name
        handler, encode, response_type = route.handler, route.encode, route.response_type
        requests = self._requests.labels(name, version)
        latency = self._latency.labels(name, version)
        find_errors = error_finder(response_type)
        bytes_in, bytes_out = self._bytes_in.labels(name), self._bytes_out.labels(name)
        clock = time.perf_counter

        def counted(ctx: RequestContext, request: Any) -> Any:
            requests.inc()
            bytes_in.inc(ctx.request_bytes)
            started = clock()
            result = handler(ctx, request)
            if result is None or result.__class__ is response_type:
                latency.observe(clock() - started)
                return result
            assert isinstance(result, Reply)
            result.when_done(lambda _: latency.observe(clock() - started))
            return result

        def measured(response: Message, parts: list[Any]) -> None:
            for code in find_errors(response):
                self._errors.labels(name, name_of(code)).inc()
            encode(response, parts)
            bytes_out.inc(sum(map(len, parts)))

        route.handler, route.encode = counted, measured

    def page(self) -> MetricsPage:
        return page_of(self._registry)

    def families(self, high_watermarks: HighWatermarks = MappingProxyType({})) -> list[Family]:
        """The metrics in a form that can be sent to another process; empty if the broker is down.

        The high watermarks are those of partitions that other brokers lead, for the lag of groups.
        """
        self._state.elsewhere = high_watermarks
        return [
            (
                metric.name,
                metric.documentation,
                metric.type,
                [(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples],
            )
            for metric in (self._registry.collect() if self._broker.is_running else ())
        ]


class Gathered:
    """The metrics of several brokers in one registry, with a label for the broker."""

    def __init__(self, label: str, by_broker: Mapping[int, list[Family]]) -> None:
        self._label = label
        self._by_broker = by_broker

    def collect(self) -> Iterator[Any]:
        merged: dict[str, prometheus_core.Metric] = {}
        for number, families in sorted(self._by_broker.items()):
            for name, documentation, kind, samples in families:
                metric = merged.get(name)
                if metric is None:
                    metric = merged[name] = prometheus_core.Metric(name, documentation, kind)
                for sample, labels, value in samples:
                    metric.add_sample(sample, {self._label: str(number), **labels}, value)
        return iter(merged.values())


def page_of(registry: Any) -> MetricsPage:
    """The page of any object with a `collect` method."""
    return MetricsPage(prometheus_client.CONTENT_TYPE_LATEST, prometheus_client.generate_latest(registry))


def error_finder(message: type[Message]) -> Callable[[Any], list[int]]:
    """A function that lists all error codes in a response."""
    plan = _error_plan(message)

    def find(response: Any) -> list[int]:
        found: list[int] = []
        if plan is not None:
            _collect(response, plan, found)
        return found

    return find


class _ErrorPlan(NamedTuple):
    """Where the error codes of a struct are: in the struct itself, and below these fields."""

    kind: type[Struct]
    has_code: bool
    below: tuple[tuple[str, bool, _ErrorPlan], ...]
    """Field, whether it is an array, and the plan of what is in it."""


def _error_plan(kind: type[Struct]) -> _ErrorPlan | None:
    below = []
    for field in kind.FIELDS:
        item = field.struct
        if item is not None:
            plan = _error_plan(item)
            if plan is not None:
                below.append((field.name, field.kind == "array", plan))
    has_code = any(field.name == "error_code" for field in kind.FIELDS)
    return _ErrorPlan(kind, has_code, tuple(below)) if has_code or below else None


def _collect(struct: Any, plan: _ErrorPlan, found: list[int]) -> None:
    if plan.has_code and struct.error_code:
        found.append(struct.error_code)
    for name, is_array, below in plan.below:
        value = getattr(struct, name)
        for item in () if value is None else value if is_array else (value,):
            # Parts may be encoded bytes; those belong to answers without errors.
            if item.__class__ is below.kind:
                _collect(item, below, found)


class MetricsOfSeveral:
    """The counters of several brokers in one process: one page with a label for the broker on every line."""

    def __init__(self) -> None:
        need_prometheus()
        self._metrics: dict[int, Metrics] = {}

    def attach(self, broker: Broker) -> None:
        """Count from now on; a restarted broker begins at zero, like a new process."""
        before = self._metrics.get(broker.node_id)
        if before is not None:
            broker.registry.stop_instrumenting(before.instrument)
        metrics = self._metrics[broker.node_id] = Metrics(broker)
        broker.registry.instrument(metrics.instrument)

    def page(self) -> MetricsPage:
        return page_of(Gathered("broker", {number: metrics.families() for number, metrics in self._metrics.items()}))
