"""A broker that loses power before the N-th operation of its disk, and what the next start finds."""

import asyncio
import os
import random

from support.simulating.disk import SimDisk
from support.simulating.loop import SimLoop
from support.simulating.world import World

EVERY = bool(os.environ.get("OTTLA_EVERY_OPERATION"))
WAYS = 4 if EVERY else 1
"""The number of ways in which unflushed bytes survive."""


class PowerCut(World):
    """The same steps each time, until the power loss."""

    def __init__(self, fails_before: int, fsync: bool, way: int) -> None:
        super().__init__(7)
        self.fsync = fsync
        self.fails_before = fails_before
        self.spent = 0
        self.survived: SimDisk | None = None
        self.way = random.Random(way)

    def check_power(self, operation: str, path: str) -> str | None:
        self.spent += 1
        if self.survived is None and self.spent == self.fails_before:
            self.survived = self.disk.after_power_loss(self.way)
        return "the power is gone" if self.survived is not None else None

    async def act(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        loop.set_exception_handler(self._unhandled)
        self.disk = SimDisk(loop)
        await self._start()
        self.disk.check = self.check_power
        await self.work()
        if self.survived is None:
            self.survived = self.disk.after_power_loss(self.way)
        self.broker.kill()
        self.disk = self.survived
        await self._start()
        await self.check_what_is_left()
        await self.broker.stop()

    async def work(self) -> None:
        """The steps until the power loss. After it, no request is answered."""
        raise NotImplementedError

    async def check_what_is_left(self) -> None:
        """Runs after the next start."""
        raise NotImplementedError

    def play(self) -> None:
        with asyncio.Runner(loop_factory=SimLoop) as runner:
            try:
                runner.run(self.act())
            except BaseException as error:
                error.add_note(f"power lost before operation {self.fails_before}, fsync={self.fsync}")
                raise
