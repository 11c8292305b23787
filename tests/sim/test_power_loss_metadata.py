"""The power fails while controllers take snapshots of the metadata, and while a registry writes `_schemas`."""

import asyncio
import json
import logging
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import KafkaError
from ottla.log.loader import open_log
from ottla.log.options import LogConfig
from ottla.raft.messages import TOPIC as METADATA_TOPIC
from ottla.raft.raft_log import OffsetAndEpoch, RaftLog
from ottla.records.batch import Record as KafkaRecord
from ottla.records.batch import build_batch
from ottla.registry.log import TOPIC as SCHEMAS_TOPIC
from ottla.registry.records import Record, StoredRecord
from ottla.registry.registry import Registry
from ottla.registry.rest.http import V1, Request
from ottla.wire.messages import CreateTopicsRequest
from support.crashing.history import Violation
from support.simulating.disk import SimDisk
from support.simulating.loop import Lost
from support.simulating.power import EVERY, WAYS, PowerCut
from support.simulating.quorum import snapshot_of, state_of
from support.simulating.world import batches_of, fetch, produce

ROUNDS = 6
EPOCH = 3
STRIDE = 1 if EVERY else 17


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("ottla").setLevel(logging.NOTSET)


# --- snapshots of the metadata ---------------------------------------------------------------------------------------


class Controller:
    """The log of a controller that is the only voter: flushed records are committed."""

    def __init__(self, disk: SimDisk, clock: ManualClock) -> None:
        config = LogConfig(delete=False, retention_ms=-1, refuse_damage=True, segment_bytes=600)
        self.log = RaftLog(disk, open_log(disk, METADATA_TOPIC, 0, config, clock))
        latest = self.log.snapshots.latest
        self.state = {} if latest is None else state_of(self.log.snapshots.read(latest))
        self.log.update_high_watermark(self.log.end_offset)
        for batch in self.log.committed(self.log.start_offset if latest is None else latest.offset):
            for record in batch.records():
                self.state[record.offset] = bytes(record.value or b"")

    def append(self, value: bytes) -> int:
        offset = self.log.end_offset
        self.log.append_as_leader([build_batch([KafkaRecord(0, 0, None, value)])], EPOCH)
        self.log.update_high_watermark(self.log.end_offset)
        self.state[offset] = value
        return offset

    def take_snapshot(self) -> None:
        self.log.snapshots.store(OffsetAndEpoch(self.log.end_offset, EPOCH), snapshot_of(self.state))
        self.log.clean()


def snapshots_until_power_fails(fails_before: int, way: int) -> int:
    """Write and take snapshots; cut the power; compare. Returns how many operations there were."""
    clock = ManualClock(1_700_000_000_000)
    disk, chance = SimDisk(clock), random.Random(way)
    controller = Controller(disk, clock)
    disk.sync_all()
    spent = 0
    survived: list[SimDisk] = []

    def check(operation: str, path: str) -> str | None:
        nonlocal spent
        spent += 1
        if spent == fails_before:
            survived.append(disk.after_power_loss(chance))
        return "the power is gone" if survived else None

    disk.check = check
    written: dict[int, bytes] = {}
    in_doubt: dict[int, bytes] = {}
    try:
        for number in range(ROUNDS):
            for step in range(4):
                value = b"%d.%d" % (number, step)
                in_doubt = {controller.log.end_offset: value}
                written[controller.append(value)] = value
            controller.take_snapshot()
    except KafkaError:
        assert survived
    again = Controller(survived[0] if survived else disk.after_power_loss(chance), clock)
    assert again.state in (written, written | in_doubt)
    again.append(b"it continues")
    again.take_snapshot()
    return spent


def test_the_power_may_fail_at_any_operation_of_snapshots() -> None:
    operations = snapshots_until_power_fails(0, 0)
    assert operations > 60
    for fails_before in range(1, operations):
        for way in range(WAYS):
            snapshots_until_power_fails(fails_before, 1000 * way + fails_before)


def test_a_snapshot_that_is_not_flushed_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = snapshots_until_power_fails(0, 0)
    write = SimDisk.write_atomic
    monkeypatch.setattr(SimDisk, "write_atomic", lambda disk, path, data, *, sync=False: write(disk, path, data))
    broken = 0
    for fails_before in range(1, operations):
        try:
            snapshots_until_power_fails(fails_before, fails_before)
        except (AssertionError, KafkaError):
            broken += 1
    assert broken


# --- the registry ----------------------------------------------------------------------------------------------------


class BrokerLog:
    """`_schemas` through a connection without a network."""

    def __init__(self, world: "RegistryPowerCut") -> None:
        self._world = world

    async def append(self, records: Sequence[Record]) -> list[StoredRecord]:
        batch = build_batch([KafkaRecord(n, 0, record.key, record.value) for n, record in enumerate(records)])
        client = self._world.connect()
        try:
            answer = await produce(client, SCHEMAS_TOPIC, 0, batch)
        except Lost as error:
            raise OSError("the broker is gone") from error
        finally:
            client.disconnect()
        if answer.error_code:
            raise OSError(f"error {answer.error_code}")
        return [StoredRecord(answer.base_offset + n, 0, *record) for n, record in enumerate(records)]

    async def read(self, offset: int) -> list[StoredRecord]:
        client = self._world.connect()
        found: list[StoredRecord] = []
        try:
            while data := batches_of(await fetch(client, SCHEMAS_TOPIC, 0, offset)):
                for record in (record for batch in data for record in batch.records()):
                    found.append(StoredRecord(record.offset, 0, bytes(record.key or b""), record.value))
                offset = data[-1].next_offset
        except Lost as error:
            raise OSError("the broker is gone") from error
        finally:
            client.disconnect()
        return found


class RegistryPowerCut(PowerCut):
    """Schemas are registered and deleted, and settings changed, while the topic is compacted."""

    def __init__(self, fails_before: int, fsync: bool, way: int) -> None:
        super().__init__(fails_before, fsync, way)
        self.must_keep_all = fsync
        self.registered: dict[tuple[str, int], int] = {}
        """Ids by subject and field, as far as they were acknowledged."""
        self.deleted: set[str] = set()
        self.asked: set[tuple[str, int]] = set()

    async def work(self) -> None:
        try:
            await self._make_topic()
        except Lost:
            return
        registry = Registry(BrokerLog(self))
        await registry.start()
        await self._ask(registry, "PUT", "/config", {"compatibility": "NONE"})
        for number in range(12):
            if self.survived is not None:
                return
            await self._write(registry, f"s{number % 3}", number)
            if number % 4 == 3:
                subject = f"brief{number}"
                await self._write(registry, subject, number)
                for permanent in ("false", "true"):
                    if await self._ask(registry, "DELETE", f"/subjects/{subject}", None, permanent=[permanent]):
                        self.deleted.add(subject)
            await asyncio.sleep(0.05)

    async def _make_topic(self) -> None:
        """As a registry does when it starts."""
        client = self.connect()
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "2000"}
        configs = [CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=SCHEMAS_TOPIC, num_partitions=1, replication_factor=1, configs=configs
        )
        try:
            await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        finally:
            client.disconnect()

    async def _write(self, registry: Registry, subject: str, number: int) -> None:
        self.asked.add((subject, number))
        answer = await self._ask(registry, "POST", f"/subjects/{subject}/versions", {"schema": schema(number)})
        if answer is not None:
            self.registered[subject, number] = answer["id"]

    async def _ask(self, registry: Registry, method: str, path: str, body: Any, **query: Sequence[str]) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        answer = await registry.handle(Request(method, path, query, content, V1, V1))
        assert answer.status in (200, 404, 500), answer
        return answer.body if answer.status == 200 else None

    async def check_what_is_left(self) -> None:
        await self._make_topic()
        registry = Registry(BrokerLog(self))
        await registry.start()
        assert registry.skipped == []
        found: dict[tuple[str, int], int] = {}
        for subject, number in self.asked:
            answer = await self._ask(registry, "POST", f"/subjects/{subject}", {"schema": schema(number)})
            if answer is not None:
                found[subject, number] = answer["id"]
        by_schema: dict[int, set[int]] = {}
        for (_, number), id_ in found.items():
            by_schema.setdefault(number, set()).add(id_)
        ids = [id_ for of_one in by_schema.values() for id_ in of_one]
        assert len(ids) == len(set(ids)), f"one id for two schemas: {found}"
        assert all(self.registered.get(place, id_) == id_ for place, id_ in found.items()), "an id has changed"
        if self.must_keep_all:
            missing = {place for place in self.registered if place[0] not in self.deleted} - found.keys()
            # A deletion that was not acknowledged may have happened.
            if not all(subject.startswith("brief") for subject, _ in missing):
                raise Violation(f"schemas are lost: {missing}")
        await self._write(registry, "afterwards", 99)
        assert ("afterwards", 99) in self.registered


def schema(number: int) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": f"f{number}", "type": "int"}]})


@pytest.mark.parametrize("fsync", [False, True], ids=["cached", "flushed"])
def test_the_power_may_fail_at_any_operation_of_a_registry(fsync: bool) -> None:
    unharmed = RegistryPowerCut(0, fsync, 0)
    unharmed.play()
    assert len(unharmed.registered) == 16
    for fails_before in range(1, unharmed.spent, STRIDE):
        for way in range(WAYS):
            RegistryPowerCut(fails_before, fsync, 1000 * way + fails_before).play()


def test_the_check_notices_lost_schemas() -> None:
    """With the checks for a flushed log, a registry without flushes loses schemas."""
    broken = 0
    for fails_before in range(200, 300, 10):
        scenario = RegistryPowerCut(fails_before, fsync=False, way=fails_before)
        scenario.must_keep_all = True
        try:
            scenario.play()
        except Violation:
            broken += 1
            scenario.abandon()
    assert broken
