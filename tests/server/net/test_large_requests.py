"""Requests with very many elements: other clients are served meanwhile, and too many elements close the connection."""

import asyncio
from typing import Any

import pytest

from ottla.server.net.connections import BYTES_PER_ELEMENT
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    OffsetFetchRequest,
)
from ottla.wire.messages.metadata import ApiVersionsRequest
from ottla.wire.schema import Message
from support.waiting import wait_for_async

MANY = 20_000


@pytest.mark.parametrize(
    ("request_", "version", "answers"),
    [
        (DescribeGroupsRequest(groups=[""] * MANY), 5, "groups"),
        (ConsumerGroupDescribeRequest(group_ids=[str(n) for n in range(MANY)]), 1, "groups"),
        (FindCoordinatorRequest(coordinator_keys=[str(n) for n in range(MANY)]), 4, "coordinators"),
        (DeleteGroupsRequest(groups_names=[str(n) for n in range(MANY)]), 2, "results"),
        (DescribeTransactionsRequest(transactional_ids=[str(n) for n in range(MANY)]), 0, "transaction_states"),
        (
            OffsetFetchRequest(
                groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=str(n), topics=None) for n in range(MANY)]
            ),
            8,
            "groups",
        ),
    ],
)
def test_others_are_served_while_a_long_request_is_in_progress(
    run: Any, run_broker: Any, request_: Message, version: int, answers: str
) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client, other = await running.connect(), await running.connect()
            await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            order: list[str] = []

            async def note(name: str, answer: Any) -> Any:
                received = await answer
                order.append(name)
                return received

            client.send(request_, version)
            await client.writer.drain()
            long = asyncio.create_task(note("long", client.receive()))
            connections = running.broker.connections
            await wait_for_async(lambda: any(one._pending for one in connections), "the long request", pause_s=0)
            await asyncio.wait_for(note("short", other.call(ApiVersionsRequest(), 0)), 20)
            assert len(getattr(await long, answers)) == MANY
            assert order == ["short", "long"]

    run(main())


def test_more_elements_than_the_bound_close_the_connection(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings={"socket.request.max.bytes": 100 * BYTES_PER_ELEMENT}) as running:
            client = await running.connect()
            response = await client.call(FindCoordinatorRequest(coordinator_keys=["k"] * 100), 4)
            assert len(response.coordinators) == 100
            client.send(FindCoordinatorRequest(coordinator_keys=["k"] * 101), 4)
            assert await client.is_closed()

    run(main())
