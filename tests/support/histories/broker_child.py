"""A broker in its own process whose clock jumps and whose disk slows down on a signal.

    python -m support.histories.broker_child DATA PORT    prints the address

SIGUSR1: the clock jumps ten minutes ahead, or back again; SIGUSR2: each write takes 5 ms longer, or the usual time
again.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

import ottla
from ottla.clock import SystemClock

JUMP_MS = 600_000
SLOW_S = 0.005


class JumpingClock(SystemClock):
    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + JumpingClock.ahead_ms


class Slowness:
    is_on = False

    @staticmethod
    def check(operation: str, path: str) -> None:
        if Slowness.is_on and operation in ("append", "fsync"):
            time.sleep(SLOW_S)


async def main() -> None:
    data, port = sys.argv[1:]
    broker = ottla.Broker(data=data, port=int(port), settings={"offsets.topic.num.partitions": 4}, preset="dev")
    broker._clock = JumpingClock()
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def jump() -> None:
        JumpingClock.ahead_ms = JUMP_MS - JumpingClock.ahead_ms

    def slow() -> None:
        Slowness.is_on = not Slowness.is_on

    loop.add_signal_handler(signal.SIGUSR1, jump)
    loop.add_signal_handler(signal.SIGUSR2, slow)
    loop.add_signal_handler(signal.SIGTERM, done.set)
    async with broker:
        if broker.disk_faults is not None:
            broker.disk_faults.check = Slowness.check
        print(broker.bootstrap, flush=True)
        await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
