"""Damage to each file of a data folder is repaired or reported: never a silent loss, and never a start without a hint.

Each row of the table damages a folder that a broker left, after a clean stop or a kill, and lists what must exist after
the next start: `ALL`, `TAIL` (the records of the last batch are gone, and a log line reports it), or `REFUSED`.
"""

import asyncio
import contextlib
import io
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.config import Config
from ottla.errors import KafkaError
from ottla.log.files import PosixDisk
from ottla.records.batch import Record, batches, build_batch
from ottla.server.broker import Broker
from ottla.wire.messages import (
    CreateTopicsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
)
from support.simulating.loop import SimLoop
from support.simulating.world import Committer, World, fetch, produce

RECORDS = 40
ALL, TAIL, REFUSED = "all", "tail", "refused"
ABORTED_TOO = "aborted too"
"""As in Kafka: only the index shows that a transaction was aborted, so only `ottla verify` notices."""
T = "t-0"
METADATA = "__cluster_metadata-0"


class Folder(World):
    """A broker on a real folder, with every kind of file."""

    def __init__(self, path: Path) -> None:
        super().__init__(0)
        self.path = path

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        overrides = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
            "log.index.interval.bytes": 100,
        }
        self.broker = Broker(Config.load(overrides=overrides, preset="dev"), disk=PosixDisk(self.path), clock=loop)
        await self.broker.start()

    async def fill(self) -> None:
        client = self.connect()
        config = CreateTopicsRequest.CreatableTopicConfig(name="internal.segment.bytes", value="1000")
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])
        made = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        assert made.topics[0].error_code == 0
        plain = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        for kind, key in ((1, "tx"), (0, "g")):
            await client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
        for number in range(RECORDS):
            if number == 3:
                await self._abort(client)
            records = build_batch(
                [Record(0, self.loop.now_ms(), None, b"value-%d" % number + b"." * 50)],
                producer_id=plain.producer_id,
                producer_epoch=plain.producer_epoch,
                base_sequence=number,
            )
            assert (await produce(client, "t", 0, records)).error_code == 0
        entry = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=17, committed_metadata=""
        )
        asked = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[entry])
        await client.call(OffsetCommitRequest(group_id="g", topics=[asked]), 9)
        client.disconnect()

    async def _abort(self, client: Any) -> None:
        made = await client.call(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 5)
        identity = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        records = build_batch([Record(0, 1, None, b"aborted")], base_sequence=0, transactional=True, **identity)
        assert (await produce(client, "t", 0, records, transactional_id="tx")).error_code == 0
        ended = await client.call(EndTxnRequest(transactional_id="tx", committed=False, **identity), 5)
        assert ended.error_code == 0

    async def values(self) -> list[bytes]:
        """What a reader of committed records gets, without the aborted record."""
        client = self.connect()
        found = [value.rstrip(b".") for _, value in await self.read_all(client, "t", 0, isolation=1)]
        assert await Committer.committed(client, "g", "t", 0) == 17
        # and it continues: the next record is read at its offset
        end = self.broker.replicas.leader("t", 0).log.log_end_offset
        answer = await produce(client, "t", 0, build_batch([Record(0, 1, None, b"more")]))
        assert (answer.error_code, answer.base_offset) == (0, end)
        again = await fetch(client, "t", 0, end)
        assert [bytes(r.value or b"") for b in batches(bytes(again.records)) for r in b.records()] == [b"more"]
        client.disconnect()
        return found


def virtual(main: Any) -> Any:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(main)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for how in ("stopped", "killed"):
        path = made[how] = tmp_path_factory.mktemp(how) / "data"

        async def build(path: Path = path, how: str = how) -> None:
            folder = Folder(path)
            await folder.open()
            await folder.fill()
            if how == "stopped":
                await folder.broker.stop()
            else:
                folder.broker.kill()

        virtual(build())
    return made


# -- damage ------------------------------------------------------------------------------------------------------------


def segments(folder: Path) -> list[Path]:
    return sorted((folder / T).glob("*.log"))


def last(folder: Path) -> Path:
    """The newest segment of t-0 that is not empty."""
    return [path for path in segments(folder) if path.stat().st_size][-1]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(bytes(data))


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def add(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def remove(*patterns: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        found = [path for pattern in patterns for path in folder.glob(pattern)]
        assert found, patterns
        for path in found:
            path.unlink()

    return damage


def overwrite(pattern: str, data: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        found = list(folder.glob(pattern))
        assert found, pattern
        for path in found:
            path.write_bytes(data)

    return damage


def half_compaction(folder: Path) -> None:
    """The cleaner was writing, and had not replaced any file yet."""
    for kind in ("log", "index", "timeindex"):
        (folder / T / f"{0:020d}.{kind}.cleaned").write_bytes(b"half of something")


def half_swap(folder: Path) -> None:
    """Killed between the two renames: the new segment is complete, and the old one still exists."""
    first = segments(folder)[0]
    for kind in ("log", "index", "timeindex", "txnindex"):
        source = first.with_suffix("." + kind)
        if source.exists():
            shutil.copy(source, source.with_name(source.name + ".swap"))


def half_deletion(folder: Path) -> None:
    first = segments(folder)[0]
    shutil.copy(first, first.with_name(first.name + ".deleted"))


def half_roll(folder: Path) -> None:
    """The new segment has its first file, and nothing else."""
    newest = last(folder)
    data = newest.read_bytes()
    end = max(batch.next_offset for batch in batches(data))
    (folder / T / f"{end:020d}.log").touch()


def deleted_topic(folder: Path) -> None:
    """The rest of a topic whose deletion was interrupted by a crash."""
    shutil.copytree(folder / T, folder / "gone-0")


TABLE: dict[str, tuple[Callable[[Path], None], str, str]] = {
    # damage, after a stop, after a kill
    "no damage": (lambda folder: None, ALL, ALL),
    "garbage behind the end": (lambda f: add(last(f), b"\x99" * 77), ALL, ALL),
    "zeros behind the end": (lambda f: add(last(f), bytes(4096)), ALL, ALL),
    "half a batch behind the end": (lambda f: add(last(f), last(f).read_bytes()[:70]), ALL, ALL),
    "last byte missing": (lambda f: cut(last(f), 1), TAIL, TAIL),
    "last batch header torn": (lambda f: cut(last(f), 100), TAIL, TAIL),
    "index missing": (remove(T + "/*.index"), ALL, ALL),
    "index garbage": (overwrite(T + "/*.index", b"\xff" * 37), ALL, ALL),
    "index empty": (overwrite(T + "/*.index", b""), ALL, ALL),
    "index misleading": (overwrite(T + "/*.index", b"\0\0\0\1\0\0\1\1" * 3), ALL, ALL),
    "time index missing": (remove(T + "/*.timeindex"), ALL, ALL),
    "time index garbage": (overwrite(T + "/*.timeindex", b"\x81" * 41), ALL, ALL),
    "transaction index missing": (remove(T + "/*.txnindex"), ABORTED_TOO, ALL),
    "transaction index garbage": (overwrite(T + "/*.txnindex", b"\x07" * 50), ALL, ALL),
    "snapshots missing": (remove(T + "/*.snapshot"), ALL, ALL),
    "snapshots garbage": (overwrite(T + "/*.snapshot", b"\1\2\3"), ALL, ALL),
    "epochs missing": (remove(T + "/leader-epoch-checkpoint"), ALL, ALL),
    "epochs garbage": (overwrite(T + "/leader-epoch-checkpoint", b"\xffnot\n"), ALL, ALL),
    "topic id missing": (remove(T + "/partition.metadata"), ALL, ALL),
    "topic id garbage": (overwrite(T + "/partition.metadata", b"\xff\xfe"), ALL, ALL),
    "topic id empty": (overwrite(T + "/partition.metadata", b""), ALL, ALL),
    "checkpoints missing": (remove("*-offset-checkpoint"), ALL, ALL),
    "checkpoints garbage": (overwrite("*-offset-checkpoint", b"0\n1\nt zero \xff"), ALL, ALL),
    "checkpoints empty": (overwrite("*-offset-checkpoint", b""), ALL, ALL),
    "identity garbage": (overwrite("meta.properties", b"\xff\xfe\n"), REFUSED, REFUSED),
    "identity empty": (overwrite("meta.properties", b""), REFUSED, REFUSED),
    "identity missing": (remove("meta.properties"), REFUSED, REFUSED),
    "quorum state missing": (remove(METADATA + "/quorum-state"), ALL, ALL),
    "quorum state garbage": (overwrite(METADATA + "/quorum-state", b"{"), ALL, ALL),
    "quorum state not an object": (overwrite(METADATA + "/quorum-state", b"[1]"), ALL, ALL),
    "bootstrap snapshot missing": (remove("bootstrap.checkpoint"), ALL, ALL),
    "bootstrap snapshot garbage": (overwrite("bootstrap.checkpoint", b"\xff"), ALL, ALL),
    "metadata index missing": (remove(METADATA + "/*.index"), ALL, ALL),
    "metadata garbage behind the end": (lambda f: add(f / METADATA / f"{0:020d}.log", b"\x13" * 30), ALL, ALL),
    "metadata flipped bit": (lambda f: flip(f / METADATA / f"{0:020d}.log", 400), REFUSED, REFUSED),
    "half a compaction": (half_compaction, ALL, ALL),
    "half a swap": (half_swap, ALL, ALL),
    "half a deletion": (half_deletion, ALL, ALL),
    "half a roll": (half_roll, ALL, ALL),
    "a temporary file": (lambda f: (f / T / "leader-epoch-checkpoint.tmp").write_bytes(b"x") and None, ALL, ALL),
    "an orphaned index": (lambda f: (f / T / f"{777:020d}.index").write_bytes(b"x") and None, ALL, ALL),
    "a deleted topic": (deleted_topic, ALL, ALL),
    "a log that is not a segment": (lambda f: (f / T / "notes.log").write_text("hello") and None, ALL, ALL),
    "a log with a short name": (lambda f: (f / T / "7.log").write_text("hello") and None, ALL, ALL),
    "a foreign file": (lambda f: (f / "notes.txt").write_text("hello") and None, ALL, ALL),
    "a foreign folder": (lambda f: (f / "lost+found").mkdir(), ALL, ALL),
}
HARMLESS = {
    "no damage",
    "checkpoints missing",
    "checkpoints empty",
    "bootstrap snapshot missing",
    "quorum state missing",
    "topic id missing",
    "half a roll",
    "half a deletion",
    "a log that is not a segment",
    "a log with a short name",
    "a foreign file",
    "a foreign folder",
    "a deleted topic",
    "index empty",
    "epochs missing",
    "snapshots missing",
}
"""What `ottla verify` need not mention: it is rebuilt without a loss, or is never used."""


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """Lines of the broker's log from WARNING on."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("ottla").addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger("ottla").removeHandler(handler)


def start_on(path: Path) -> list[bytes]:
    async def look() -> list[bytes]:
        folder = Folder(path)
        await folder.open()
        try:
            return await folder.values()
        finally:
            await folder.broker.stop()

    found: list[bytes] = virtual(look())
    return found


EXPECTED = [b"value-%d" % number for number in range(RECORDS)]


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("what", TABLE)
def test_damage_of_each_file_is_repaired_or_reported(
    what: str, how: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    damage, after_stop, after_kill = TABLE[what]
    expected = after_stop if how == "stopped" else after_kill
    path = tmp_path / "data"
    shutil.copytree(folders[how], path)
    if how == "stopped" or not what.startswith(("checkpoints", "snapshots")):
        damage(path)  # a killed broker may not have written them yet
    if how == "stopped" and what not in HARMLESS:
        verify_finds(path)
    with collected() as lines:
        if expected == REFUSED:
            with pytest.raises(KafkaError) as caught:
                start_on(path)
            message = str(caught.value)
            assert any(word in message for word in ("meta.properties", METADATA)), message
            assert any(hint in message for hint in ("ottla verify", "restore", "empty folder", "backup")), message
            return
        found = start_on(path)
    if expected == ABORTED_TOO:
        found.remove(b"aborted")
        assert found == EXPECTED
        return
    if expected == ALL:
        assert found == EXPECTED
    else:
        assert found == EXPECTED[: len(found)]
        assert len(found) >= RECORDS - 1
        assert any(T in line and ("cut" in line or "no batch" in line) for line in lines), lines
    assert start_on(path)[: len(found)] == found, "the next start finds the same"


def verify_finds(path: Path) -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main(["verify", str(path), "--quiet"])
    assert code != 0, f"ottla verify found nothing:\n{output.getvalue()}"


def test_verify_finds_a_flipped_bit_in_an_old_segment(folders: dict[str, Path], tmp_path: Path) -> None:
    """As in Kafka: clients check the CRC. The rest of the log is not touched."""
    path = tmp_path / "data"
    shutil.copytree(folders["stopped"], path)
    victim = segments(path)[2]
    flip(victim, victim.stat().st_size - 20)
    verify_finds(path)

    async def look() -> int:
        folder = Folder(path)
        await folder.open()
        client = folder.connect()
        broken, offset = 0, 0
        while data := list(batches(bytes((await fetch(client, "t", 0, offset)).records))):
            broken += sum(not one.crc_ok() for one in data)
            offset = data[-1].next_offset
        end = folder.broker.replicas.leader("t", 0).log.log_end_offset
        client.disconnect()
        await folder.broker.stop()
        assert offset == end == RECORDS + 2
        return broken

    assert virtual(look()) == 1


def test_a_batch_torn_at_any_byte_is_cut(folders: dict[str, Path], tmp_path: Path) -> None:
    """With a whole broker, in steps of several bytes; `tests/log` tests every single byte."""
    source = folders["killed"]
    size = last(source).stat().st_size
    start = max(batch.position for batch in batches(last(source).read_bytes()))
    for number, keep in enumerate(range(start, size, 9)):
        path = tmp_path / str(number)
        shutil.copytree(source, path)
        last(path).write_bytes(last(path).read_bytes()[:keep])
        found = start_on(path)
        assert found == EXPECTED[:-1], keep


def emptied(folder: Path) -> None:
    for path in (folder / T).iterdir():
        if path.name != "partition.metadata":
            path.unlink()


def newest_segment_removed(folder: Path) -> None:
    """The partition's own files do not show it."""
    doomed = segments(folder)[-1]
    for path in (folder / T).glob(f"{doomed.stem}.*"):
        path.unlink()
    for path in (folder / T).glob("*.snapshot"):
        if int(path.stem) > int(doomed.stem):
            path.unlink()


@pytest.mark.parametrize(
    ("damage", "left", "said"),
    [
        (lambda folder: shutil.rmtree(folder / T), 0, "t-0 has no folder, but had records up to offset 42"),
        (emptied, 0, "t-0: the log ends at offset 0, but went up to 42"),
        (newest_segment_removed, 34, "t-0: the log ends at offset 36, but went up to 42"),
    ],
    ids=["folder", "files", "newest segment"],
)
def test_removed_bytes_are_logged(
    damage: Callable[[Path], None], left: int, said: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "data"
    shutil.copytree(folders["stopped"], path)
    damage(path)
    with collected() as lines:
        assert start_on(path) == EXPECTED[:left]
    assert [line for line in lines if line.startswith(said) and "backup" in line], lines


def test_a_folder_without_its_metadata_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "data"
    shutil.copytree(folders["stopped"], path)
    shutil.rmtree(path / METADATA)

    async def start() -> None:
        folder = Folder(path)
        await folder.open()
        await folder.broker.stop()

    with collected() as lines:
        virtual(start())
    assert "__cluster_metadata-0 knows no topic" in lines[0] and "backup" in lines[0], lines
    assert list(path.glob("t-0.*-stray"))
