"""Network partitions: messages hang, as over TCP, until the network heals or the sender times out."""

import asyncio
from typing import Any

import pytest

from ottla.answers import Reply
from ottla.errors import RequestTimedOut
from ottla.multibroker.network import Network
from ottla.server.api import RequestContext
from ottla.server.peers import PeerConnection, Unreachable
from ottla.wire.messages import CreateTopicsRequest


def new_topic(name: str) -> CreateTopicsRequest:
    wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=3)
    return CreateTopicsRequest(topics=[wanted], timeout_ms=1000)


def now() -> float:
    return asyncio.get_running_loop().time()


def through(cluster: Any, broker_id: int, request: Any, version: int) -> "asyncio.Future[Any]":
    """A client's request to a broker, which passes it on to the controller."""
    node = cluster.broker(broker_id).server
    api = node.registry.apis[request.API_KEY]
    connection = PeerConnection(node.services, node.config.listeners[0], 99)
    return asyncio.ensure_future(api.handler(RequestContext(connection, request.API_KEY, version, 1, "c", 1), request))


def test_a_request_to_the_other_side_hangs_and_times_out(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.partition_network([1], [2, 3])
        began = now()
        with pytest.raises(RequestTimedOut):
            await through(cluster, 1, new_topic("t"), 7)
        assert 29.9 < now() - began < 30.5
        assert cluster.topics() == []

    run(scenario)


def test_a_request_arrives_if_the_network_heals_in_time(run: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.partition_network([1], [2, 3])
        asked = through(cluster, 1, new_topic("t"), 7)
        await asyncio.sleep(20)
        assert not asked.done()
        cluster.heal()
        assert (await asked).topics[0].error_code == 0
        assert cluster.topics() == ["t"]

    run(scenario)


def test_answers_hang_too(run: Any) -> None:
    """The other side serves the request, but its answer does not arrive."""

    async def scenario(cluster: Any) -> None:
        network: Network = cluster.nodes.network
        done: list[float] = []
        answer: Reply[None] = Reply()

        def serve() -> Reply[None]:
            done.append(now())
            return answer

        asked = network.call(1, 2, serve)
        await asyncio.sleep(0.1)
        cluster.partition_network([1], [2, 3])
        answer.resolve(None)
        began = now()
        with pytest.raises(Unreachable):
            await asked
        assert len(done) == 1 and 29.9 < now() - began < 30.5

    run(scenario)


def test_a_broker_that_dies_in_a_partition_gets_no_old_requests(run: Any) -> None:
    """A restarted broker does not get requests that were sent before the restart."""

    async def scenario(cluster: Any) -> None:
        network: Network = cluster.nodes.network
        served: list[int] = []
        cluster.partition_network([1], [2, 3])
        asked = network.call(1, 2, lambda: served.append(2))
        dying = network.call(1, 3, lambda: served.append(3))
        await asyncio.sleep(1)
        await cluster.kill(2)
        await asyncio.sleep(1)
        assert not asked.done, "the other side does not notice"
        await cluster.start(2)
        cluster.heal()
        with pytest.raises(Unreachable):
            await asked
        await dying
        assert served == [3]

    run(scenario)


def test_a_follower_fetches_as_soon_as_the_network_is_whole(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", assignments=[[1, 2, 3]], config={"min.insync.replicas": 2})
        await cluster.wait_in_sync()
        cluster.partition_network([1, "controller"], [2])
        await cluster.wait_until(lambda c: c.isr("t") == [1, 3])
        assert (await wire.produce(cluster, 1, b"a")).error_code == 0
        await asyncio.sleep(100)  # it timed out and retried three times
        cluster.heal()
        began = now()
        await cluster.wait_in_sync()
        assert now() - began < 2

    run(scenario)
