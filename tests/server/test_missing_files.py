"""A broker on a folder with missing files: what clients and the log show."""

from pathlib import Path
from typing import Any

import pytest

from ottla.errors import KafkaStorageError
from ottla.log.files import PosixDisk
from support.batches import batches_of


def segments(root: Path) -> list[Path]:
    return sorted((root / "t-0").glob("*.log"))


async def fill(run_broker: Any, root: Path) -> list[int]:
    """Two topics, stopped cleanly; t has segments of three records each."""
    async with run_broker(disk=PosixDisk(root)) as running:
        client = await running.connect()
        await client.create_topic("t")
        await client.create_topic("other")
        await client.produce("other", b"o")
        log = running.broker.replicas.leader("t", 0).log
        for number in range(12):
            await client.produce("t", b"%d" % number)
            if number % 3 == 2:
                log.roll()
    return [int(path.stem) for path in segments(root)]


async def fetched(client: Any, topic: str, offset: int) -> Any:
    return (await client.fetch(topic, offset)).responses[0].partitions[0]


def test_reads_stop_at_a_missing_segment(
    run: Any, run_broker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        bases = await fill(run_broker, tmp_path)
        assert bases[:3] == [0, 3, 6]
        for path in (tmp_path / "t-0").glob(f"{3:020d}.*"):
            if path.suffix != ".snapshot":
                path.unlink()
        async with run_broker(disk=PosixDisk(tmp_path)) as running:
            assert "t-0: offsets 3 to 5 are missing" in caplog.text, "logged at the start, before any request"
            client = await running.connect()
            assert len(batches_of(await fetched(client, "t", 0))) == 3
            assert (await fetched(client, "t", 3)).error_code == KafkaStorageError.code
            assert (await fetched(client, "t", 6)).error_code == 0
            assert (await fetched(client, "other", 0)).error_code == 0

    run(main())


def test_a_folder_for_a_file_takes_one_partition_offline(
    run: Any, run_broker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        await fill(run_broker, tmp_path)
        newest = segments(tmp_path)[-1]
        newest.unlink()
        newest.mkdir()
        async with run_broker(disk=PosixDisk(tmp_path)) as running:
            assert f"{newest.name} is a folder" in caplog.text
            client = await running.connect()
            assert (await fetched(client, "t", 0)).error_code == KafkaStorageError.code
            assert (await client.produce("t", b"x")).error_code == KafkaStorageError.code
            assert (await client.produce("other", b"x")).error_code == 0

    run(main())
