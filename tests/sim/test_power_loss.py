"""The power fails before the N-th operation of the disk: produce, roll, commit, transactions, compaction, topics made
and deleted, users changed. Unflushed data is partly lost, or becomes zeros.

With every write flushed (`--fsync`), all acknowledged records exist after the next start. Without it, a broker starts,
its logs are complete up to some point, and only changes that concern security must survive. By default some of the Ns
are tried, `OTTLA_EVERY_OPERATION=1` tries each, with several ways in which the unflushed writes survive.
"""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from ottla.wire.messages import (
    AlterUserScramCredentialsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeUserScramCredentialsRequest,
)
from support.crashing.history import Violation
from support.simulating.loop import Lost, SimClient
from support.simulating.power import EVERY, WAYS, PowerCut
from support.simulating.world import (
    COMPACTED,
    PARTITIONS,
    Committer,
    KeyedProducer,
    Producer,
    Transactor,
    check_files,
)

STEPS = 8
STRIDE = 1 if EVERY else 37
COMPACTED_WITHIN_S = 0.3
"""In virtual time, like everything else here."""


class PowerFailure(PowerCut):
    def __init__(self, fails_before: int, fsync: bool, way: int) -> None:
        super().__init__(fails_before, fsync, way)
        self.must_keep_all = fsync
        self.users: list[str] = []
        """The users whose creation was acknowledged."""
        self.clients = [Producer(self, 0), Producer(self, 1), Committer(self), Transactor(self), KeyedProducer(self)]

    async def work(self) -> None:
        for number in range(STEPS):
            for client in self.clients:
                if self.survived is not None:
                    break
                try:
                    client.connection = client.connection or self.connect()
                    await client.step(client.connection)
                except Lost:
                    client.disconnect()
            await self._administrate(number)
        for client in self.clients:
            client.disconnect()
        await asyncio.sleep(COMPACTED_WITHIN_S)

    async def _administrate(self, number: int) -> None:
        """Creates a user, and creates and deletes a topic."""
        if self.survived is not None:
            return
        client = self.connect()
        try:
            user = f"user-{number}"
            upsert = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"x" * 32
            )
            answer = await client.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsert]), 0)
            if answer.results[0].error_code == 0:
                self.users.append(user)
            wanted = CreateTopicsRequest.CreatableTopic(name="brief", num_partitions=2, replication_factor=1)
            await client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
            if number % 2:
                await client.call(DeleteTopicsRequest(topic_names=["brief"], timeout_ms=1000), 5)
        except Lost:
            pass
        client.disconnect()

    async def check_what_is_left(self) -> None:
        if self.must_keep_all:
            await self._check_everything()
        client = self.connect()
        for topic in ("t", "x"):
            for index in range(PARTITIONS):
                self._check_prefix(topic, index, await self.read_all(client, topic, index))
                check_files(self.broker.replicas.leader(topic, index).log)
        check_files(self.broker.replicas.leader(COMPACTED, 0).log, compacted=True)
        await self._check_users(client)
        client.disconnect()

    def _check_prefix(self, topic: str, index: int, records: list[tuple[int, bytes]]) -> None:
        """No unknown records, no duplicates, and no records out of order."""
        known = [write.value for write in self.history.writes if write.place == (topic, index)]
        values = [value for _, value in records]
        if len(set(values)) != len(values) or not set(values) <= set(known):
            raise Violation(f"{topic}-{index} holds {values}")
        by_producer: dict[str, list[int]] = {}
        for write in self.history.writes:
            if write.place == (topic, index) and write.value in values:
                by_producer.setdefault(write.producer, []).append(values.index(write.value))
        if any(places != sorted(places) for places in by_producer.values()):
            raise Violation(f"{topic}-{index} is out of order: {values}")

    async def _check_users(self, client: SimClient) -> None:
        """A change that security depends on is on the disk before it is answered, flushed or not."""
        answer = await client.call(DescribeUserScramCredentialsRequest(users=None), 0)
        missing = set(self.users) - {result.user for result in answer.results}
        if missing:
            raise Violation(f"users are lost: {sorted(missing)}")


def play(fails_before: int, fsync: bool, way: int = 0) -> PowerFailure:
    scenario = PowerFailure(fails_before, fsync, way)
    scenario.play()
    return scenario


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("ottla").setLevel(logging.NOTSET)


@pytest.mark.parametrize("fsync", [False, True], ids=["cached", "flushed"])
def test_the_power_may_fail_at_any_operation(fsync: bool) -> None:
    unharmed = play(0, fsync)
    assert unharmed.spent > 200
    assert len(unharmed.users) == STEPS
    for fails_before in range(1, unharmed.spent, STRIDE):
        for way in range(WAYS):
            play(fails_before, fsync, way + fails_before)


def test_the_check_notices_what_is_lost() -> None:
    """Without a flush, acknowledged records may be lost: with the checks for a flushed log, the same runs fail."""
    broken = 0
    for fails_before in range(100, 700, 60):
        scenario = PowerFailure(fails_before, fsync=False, way=fails_before)
        scenario.must_keep_all = True
        try:
            scenario.play()
        except Violation:
            broken += 1
            scenario.abandon()
    assert broken
