"""Streams groups of a cluster: internal topics, and a coordinator that is gone."""

import asyncio
from typing import Any

from ottla.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, InvalidRequest, NotCoordinator
from ottla.wire.messages import FindCoordinatorRequest, StreamsGroupDescribeRequest
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Beat
from support.streams import joining

SETTINGS = {"group.streams.initial.rebalance.delay.ms": 0, "group.streams.assignment.interval.ms": 0}

NOT_NOW = (NotCoordinator.code, CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code)


def test_a_group_survives_its_coordinator(run: Any, wire: Any) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.create_topic("t", 4)

        async def home(asked: int) -> int:
            for _ in range(200):
                answer = await wire.ask(cluster, asked, FindCoordinatorRequest(coordinator_keys=["app"]), 4)
                if answer.coordinators[0].error_code == 0:
                    return int(answer.coordinators[0].node_id)
                await asyncio.sleep(0.1)
            raise AssertionError(answer)

        async def beaten(request: Beat) -> Any:
            """The first answer that is not an error, from the current coordinator."""
            for _ in range(300):
                answer = await wire.ask(cluster, coordinator, request, 0)
                if answer.error_code not in NOT_NOW:
                    return answer
                await asyncio.sleep(0.1)
            raise AssertionError("nobody is the coordinator")

        coordinator = await home(1)
        answer = await beaten(joining("app", "t", "app-store", factor=3))
        while not answer.active_tasks:
            await asyncio.sleep(0.1)
            answer = await beaten(Beat(group_id="app", member_id="m", member_epoch=answer.member_epoch))
        assert answer.active_tasks[0].partitions == [0, 1, 2, 3]
        (changelog,) = {
            len(p.replicas) for p in cluster.broker(1).server.metadata.topics["app-store"].partitions.values()
        }
        assert changelog == 3
        elsewhere = next(number for number in (1, 2, 3) if number != coordinator)
        assert (
            await wire.ask(cluster, elsewhere, joining("app", "t", "app-store", factor=3), 0)
        ).error_code == NotCoordinator.code
        nameless = await wire.ask(cluster, elsewhere, Beat(group_id="app", member_id=""), 0)
        assert nameless.error_code == InvalidRequest.code  # wherever it is asked
        await cluster.kill(coordinator)
        old = coordinator
        for _ in range(300):
            coordinator = await home(elsewhere)
            if coordinator != old:
                break
            await asyncio.sleep(0.1)
        again = await beaten(Beat(group_id="app", member_id="m", member_epoch=answer.member_epoch))
        assert (again.member_epoch, again.active_tasks) == (answer.member_epoch, None)
        request = StreamsGroupDescribeRequest(group_ids=["app"], include_authorized_operations=False)
        found = (await wire.ask(cluster, coordinator, request, 0)).groups[0]
        assert (found.error_code, found.group_state) == (0, "Stable")

    run(scenario, settings=SETTINGS)
