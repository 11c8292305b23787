"""A tour through replication: the high watermark and the ISR, with three replicas."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ottla.console.tours.tour import Stage, Step, Tour
from ottla.errors import KafkaError

_LOOK: Final = {"kind": "replicas", "topic": "payments", "partition": 0}


async def _make(stage: Stage) -> None:
    await stage.create("payments", 1, min_insync_replicas="1")
    for number in range(5):
        await stage.produce("payments", None, f"payment {number}")
    await stage.sandbox.settle()
    stage.note("5 records, written with acks=all")


async def _partition(stage: Stage) -> Any:
    return (await stage.client.topic("payments")).partitions[0]


async def _pause(stage: Stage) -> None:
    found = await _partition(stage)
    follower = next(each for each in found.replicas if each != found.leader)
    stage.kept["follower"] = follower
    await stage.sandbox.steer("/cluster/pause", {"broker": follower})
    stage.note(f"Broker {follower} is paused: it keeps its connections and answers nothing")
    # With acks=all the answer waits for the follower, so the tour does not wait for it.
    stage.kept["waiting"] = [
        asyncio.get_running_loop().create_task(_write(stage, f"payment {number}")) for number in range(5, 8)
    ]
    await stage.sandbox.settle()
    stage.note("3 more records: the leader has them, and their producers wait for the answer")


async def _write(stage: Stage, value: str) -> None:
    try:
        await stage.produce("payments", None, value)
    except (KafkaError, ConnectionError):
        stage.note(f"{value} was refused")


async def _shrink(stage: Stage) -> None:
    for _ in range(30):
        await stage.sandbox.advance(seconds=2)
        if stage.kept["follower"] not in (await _partition(stage)).isr:
            break
    await asyncio.wait(stage.kept["waiting"], timeout=5)
    found = await _partition(stage)
    stage.note(f"The clock was advanced past replica.lag.time.max.ms; in sync now: {sorted(found.isr)}")


async def _fail_over(stage: Stage) -> None:
    before = await _partition(stage)
    await stage.sandbox.steer("/cluster/kill", {"broker": before.leader})
    stage.kept["killed"] = before.leader
    for _ in range(30):
        await stage.sandbox.advance(seconds=1)
        found = await _partition(stage)
        if found.leader not in (-1, before.leader):
            break
    stage.note(f"Broker {before.leader} was killed; broker {found.leader} leads, leader epoch {found.leader_epoch}")


async def _recover(stage: Stage) -> None:
    await stage.sandbox.steer("/cluster/resume", {"broker": stage.kept["follower"]})
    await stage.sandbox.steer("/cluster/start", {"broker": stage.kept["killed"]})
    for _ in range(30):
        await stage.sandbox.advance(seconds=1)
        found = await _partition(stage)
        if len(found.isr) == len(found.replicas):
            break
    stage.note(f"Both brokers are back and have caught up; in sync: {sorted(found.isr)}")


REPLICAS: Final = Tour(
    "replicas",
    "High watermark and in-sync replicas",
    "What happens to three replicas if one stalls and another dies.",
    (
        Step(
            "Three replicas",
            "The topic `payments` has one partition with three replicas. Each bar is the log of one of them. LEO is "
            "the log end offset: the next record goes there. HW is the high watermark: everything before it is on "
            "all replicas that are in sync, and consumers may read it.\n\nAll three are in sync, which means in the "
            "ISR.",
            _make,
            (_LOOK,),
        ),
        Step(
            "A follower stalls",
            "One follower stopped fetching. The leader took three more records, so its LEO is ahead. But the high "
            "watermark does not move: the stalled follower is still in the ISR, and does not have these records.\n\n"
            "Consumers do not see them yet. The producers asked for `acks=all`, and wait.",
            _pause,
            (_LOOK,),
        ),
        Step(
            "The ISR shrinks",
            "A follower that has not caught up for `replica.lag.time.max.ms` is taken out of the ISR. Now the high "
            "watermark depends on the other two only. It moved, and the producers got their answers.\n\nThat is the "
            "trade: the partition is available again, and one copy poorer. `min.insync.replicas` says how few are "
            "still enough.",
            _shrink,
            (_LOOK,),
        ),
        Step(
            "The leader dies",
            "Now the leader was killed. The controller noticed that its session was over and chose a new leader from "
            "the ISR. Nothing committed was lost: every replica in the ISR has everything below the high watermark.\n\n"
            "The leader epoch went up by one. Replicas use it to find out where their logs differ, and truncate "
            "them there.",
            _fail_over,
            (_LOOK,),
        ),
        Step(
            "Back in sync",
            "The stalled broker and the dead one are back. They asked the new leader where their logs agree, cut off "
            "what is not there, and fetched the rest. When a follower reaches the leader's high watermark, it "
            "returns to the ISR.",
            _recover,
            (_LOOK,),
        ),
    ),
)
