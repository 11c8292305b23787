"""Tens of thousands of odd frames: the broker refuses them, one by one, and continues serving.

`OTTLA_FUZZ_FRAMES=1000000` sends a million; `OTTLA_FUZZ_SEED` chooses others.
"""

import asyncio
import gc

from support.fuzzing.frames import ENDS_THE_TARGET, SLOW, FrameMaker
from support.fuzzing.target import ASK_EVERY, Target
from support.simulating.loop import SimLoop


def test_the_broker_serves_after_mutated_frames(frame_count: int, fuzz_seed: int) -> None:
    async def run() -> Target:
        target = Target()
        await target.start()
        try:
            left_out = SLOW | ENDS_THE_TARGET
            requests = [api.request for key, api in sorted(target.broker.registry.apis.items()) if key not in left_out]
            maker = FrameMaker(fuzz_seed, requests, target.topic_ids())
            for number in range(frame_count):
                await target.throw(maker.frame())
                assert not target.complaints.unexpected, describe(target, number)
                assert not target.unhandled, (number, target.unhandled[0])
                if number % ASK_EVERY == 0:
                    await target.make_topics()
                    assert await target.serves()
            assert await target.serves()
            assert len(target.broker.connections) <= 2
        finally:
            await target.stop()
        return target

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        target = runner.run(run())
    assert target.closed > frame_count / 10  # it is hostile input
    gc.collect()


def describe(target: Target, number: int) -> str:
    record = target.complaints.unexpected[0]
    assert record.exc_info is not None
    return f"frame {number}: {record.getMessage()}: {record.exc_info[1]!r}"
