"""The N-th operation of the disk fails, once or from then on, in a scenario of everything: create, produce, roll,
commit, compact, a transaction, stop, start. For any N, all acknowledged changes are kept.

By default some values of N are tested; `OTTLA_EVERY_OPERATION=1` tests all.
"""

import asyncio
import logging
import os
from collections.abc import Iterator

import pytest

from ottla.errors import KafkaError
from support.simulating.disk import SimDisk
from support.simulating.loop import Lost, SimLoop
from support.simulating.world import COMPACTED, Committer, KeyedProducer, Producer, Transactor, World

STEPS = 12
COMPACTED_WITHIN_S = 0.3
"""In virtual time, like everything else here."""
STRIDE = 1 if os.environ.get("OTTLA_EVERY_OPERATION") else 199


class Scenario(World):
    """The same steps each time; only the disk differs."""

    def __init__(self, fail_at: int, forever: bool, fsync: bool) -> None:
        super().__init__(7)
        self.fsync = fsync
        self.fail_at = fail_at
        self.forever = forever
        self.spent = 0
        self.compacted_to = 0

    def fails(self, operation: str, path: str) -> str | None:
        self.spent += 1
        if self.spent == self.fail_at or (self.forever and self.spent > self.fail_at):
            return "Input/output error"
        return None

    async def act(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        loop.set_exception_handler(self._unhandled)
        self.disk = SimDisk(loop)
        self.clients = [Producer(self, 0), Producer(self, 1), Committer(self), Transactor(self), KeyedProducer(self)]
        await self._start()
        await self._work()
        for how in ("stop", "kill"):
            self.disk.check = self.fails
            if how == "stop":
                await self.broker.stop()
            else:
                self.broker.kill()
            self.disk = self.disk.after_kill()
            await self._restart()
            await self._work()
        self.disk.check = None
        await self._check_everything()
        self.compacted_to = self.broker.housekeeper.cleaner.clean_offsets.get((COMPACTED, 0), 0)
        await self.broker.stop()
        assert not self.unhandled, self.unhandled[0]

    async def _restart(self) -> None:
        """A start that fails reports the reason. With the disk repaired, the next one works."""
        self.disk.check = self.fails
        try:
            await self._start()
        except KafkaError as error:
            self.note(f"no start: {error}")
            self.disk.check = None
            self.disk = self.disk.after_kill()
            await self._start()
        self.disk.check = None
        await self._check_everything()

    async def _work(self) -> None:
        self.disk.check = self.fails
        for _ in range(STEPS):
            for client in self.clients:
                try:
                    client.connection = client.connection or self.connect()
                    await client.step(client.connection)
                except Lost:
                    client.disconnect()
            self._check_offsets()
        for client in self.clients:
            client.disconnect()
        await asyncio.sleep(COMPACTED_WITHIN_S)


def play(fail_at: int, forever: bool, fsync: bool) -> Scenario:
    scenario = Scenario(fail_at, forever, fsync)
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        try:
            runner.run(scenario.act())
        except BaseException as error:
            error.add_note(f"operation {fail_at} failed; {'all' if forever else 'none'} after it; fsync={fsync}")
            raise
    return scenario


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("ottla").setLevel(logging.NOTSET)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fsync", [False, True], ids=["cached", "flushed"])
def test_any_disk_operation_may_fail(forever: bool, fsync: bool) -> None:
    unharmed = play(0, False, fsync)
    total = unharmed.spent
    assert total > 200
    assert unharmed.compacted_to > 0
    for fail_at in range(1 + (forever + 2 * fsync) % STRIDE, total, STRIDE * (2 if fsync else 1)):
        play(fail_at, forever, fsync)
