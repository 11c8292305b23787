"""Streams groups outside their coordinator: disabled, after a restart, and in tests that embed the broker."""

from typing import Any

import pytest

from ottla.embedded import actions
from ottla.embedded.groups import _members as members_of
from ottla.embedded.groups import remove_group
from ottla.errors import GroupIdNotFound, UnsupportedVersion
from ottla.log.files import MemoryDisk
from ottla.wire.messages import FindCoordinatorRequest, StreamsGroupDescribeRequest, UpdateFeaturesRequest
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Beat
from support.streams import joining

NODE = {"node.id": 1, "group.streams.initial.rebalance.delay.ms": 0, "group.streams.assignment.interval.ms": 0}


async def served(client: Any) -> None:
    found = await client.call(FindCoordinatorRequest(coordinator_keys=["app"]), 4)
    assert found.coordinators[0].error_code == 0


async def described(client: Any) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=["app"], include_authorized_operations=False)
    return (await client.call(request, 0)).groups[0]


@pytest.mark.parametrize("how", ["feature", "setting"])
def test_streams_groups_can_be_disabled(run: Any, run_broker: Any, how: str) -> None:
    async def main() -> None:
        off = {"group.coordinator.rebalance.protocols": "classic,consumer"} if how == "setting" else {}
        async with run_broker(settings={**NODE, **off}) as running:
            client = await running.connect()
            if how == "feature":
                update = UpdateFeaturesRequest.FeatureUpdateKey(
                    feature="streams.version", max_version_level=0, upgrade_type=2
                )
                answer = await client.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
                assert answer.error_code == 0
            refused = await client.call(joining("app", "t"), 0)
            assert (refused.error_code, refused.error_message) == (UnsupportedVersion.code, None)
            assert (await described(client)).error_code == UnsupportedVersion.code

    run(main())


def test_a_group_survives_a_restart(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with run_broker(disk=disk, settings=NODE) as running:
            client = await running.connect()
            await served(client)
            await client.create_topic("t", partitions=2)
            first = await client.call(joining("app", "t", "app-store"), 0)
            assert [each.status_code for each in first.status] == [3]
            beat = Beat(group_id="app", member_id="m", member_epoch=first.member_epoch)
            second = await client.call(beat, 0)
            assert [(each.subtopology_id, each.partitions) for each in second.active_tasks] == [("0", [0, 1])]
            before = await described(client)
        async with run_broker(disk=disk, settings=NODE) as running:
            client = await running.connect()
            after = await described(client)
            assert (after.group_state, after.members) == ("Stable", before.members)
            assert (after.group_epoch, after.assignment_epoch) == (before.group_epoch, before.assignment_epoch)
            beat = Beat(group_id="app", member_id="m", member_epoch=second.member_epoch)
            third = await client.call(beat, 0)
            assert (third.error_code, third.member_epoch, third.active_tasks) == (0, second.member_epoch, None)
            # The sizes of internal topics are not in the log; they appear with the next record.
            assert {each.partitions for each in after.topology.subtopologies[0].state_changelog_topics} == {0}
            moved = await client.call(
                Beat(group_id="app", member_id="m", member_epoch=second.member_epoch, rack_id="r"), 0
            )
            assert moved.error_code == 0
            assert (await described(client)).topology == before.topology

    run(main())


def test_groups_are_inspected_and_rebalanced_by_the_testing_api(run: Any, run_broker: Any) -> None:
    """The embedded broker's handles: rebalance, evict a member, forget the group."""

    async def main() -> None:
        async with run_broker(settings=NODE) as running:
            client = await running.connect()
            await served(client)
            await client.create_topic("t", partitions=2)
            joined = await client.call(joining("app", "t"), 0)
            server = running.broker
            (member,) = members_of(server, "app")
            assert (member.member_id, member.client_id, member.assignment) == ("m", "test", (("t", 0), ("t", 1)))
            actions.rebalance(server, "app")
            again = await client.call(Beat(group_id="app", member_id="m", member_epoch=joined.member_epoch), 0)
            assert again.member_epoch == joined.member_epoch + 1
            assert actions.evict(server, "app", "m") == "m"
            assert (await described(client)).group_state == "Empty"
            await client.call(joining("app", "t"), 0)
            remove_group(server, "app")
            assert (await described(client)).error_code == GroupIdNotFound.code

    run(main())
