"""A cluster in virtual time: no real waits, and every run is the same."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import ottla
from ottla.answers import Reply
from support.batches import batch
from support.requests import produce_request
from support.simulating.loop import SimLoop


@pytest.fixture
def run() -> Callable[..., Any]:
    """`run(scenario, brokers=3, …)` runs `scenario(cluster)` in virtual time."""

    def run(scenario: Callable[[Any], Coroutine[Any, Any, Any]], brokers: int = 3, **options: Any) -> Any:
        async def main() -> Any:
            loop: Any = asyncio.get_running_loop()
            async with ottla.Cluster(brokers, clock=loop, seed=1, **options) as cluster:
                return await scenario(cluster)

        with asyncio.Runner(loop_factory=SimLoop) as runner:
            return runner.run(main())

    return run


class Wire:
    """Requests to a broker as another broker sends them: all handlers, no sockets."""

    @staticmethod
    async def ask(cluster: Any, broker_id: int, request: Any, version: int) -> Any:
        answer = cluster.broker(broker_id).server.peer_server.serve(99, request, version)
        return await answer if isinstance(answer, Reply) else answer

    @classmethod
    async def produce(
        cls, cluster: Any, broker_id: int, *values: bytes, topic: str = "t", acks: int = -1, timeout_ms: int = 1000
    ) -> Any:
        """Returns one partition's response."""
        records = memoryview(batch(*values, timestamp=0))
        request = produce_request(topic, records, acks=acks, timeout_ms=timeout_ms)
        answer = await cls.ask(cluster, broker_id, request, 12)
        return answer.responses[0].partition_responses[0]


@pytest.fixture
def wire() -> type[Wire]:
    return Wire
