"""The pages for monitoring a broker: `/metrics` for Prometheus, `/health` and `/ready` for probes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.http.endpoint import App, HttpEndpoint
from ottla.http.requests import HttpAnswer, app_of, pages, text
from ottla.server.metrics import Metrics, MetricsPage

if TYPE_CHECKING:
    from ottla.server.broker import Broker


def metrics_endpoint(broker: Broker, host: str, port: int) -> HttpEndpoint:
    """The pages of one broker; its requests are counted from now on."""
    metrics = Metrics(broker)
    broker.registry.instrument(metrics.instrument)
    return HttpEndpoint(host, port, monitoring_app(metrics.page, lambda: broker.is_running))


def monitoring_app(
    metrics: Callable[[], MetricsPage | Awaitable[MetricsPage]], is_ready: Callable[[], bool]
) -> Callable[[], App]:
    """`/health` answers while the process lives, `/ready` while clients are served."""

    async def metrics_page() -> HttpAnswer:
        found = metrics()
        page = found if isinstance(found, MetricsPage) else await found
        return HttpAnswer(200, page.content_type, page.body)

    def health() -> HttpAnswer:
        return text(200, "ok")

    def ready() -> HttpAnswer:
        return text(200, "ready") if is_ready() else text(503, "not ready")

    return app_of(pages({"/metrics": metrics_page, "/health": health, "/ready": ready}))
