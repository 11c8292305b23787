"""Produce throughput: record sizes, batch sizes, codecs and connections."""

from __future__ import annotations

from ottla.bench import pages
from ottla.bench.lines.topics import per_gb, topic
from ottla.bench.load import drive
from ottla.bench.model import Bar, Figure, Line, Run, Size, at_least, at_most, register
from ottla.bench.targets import Target

LIMIT_BYTES = 640_000_000  # below the size of a segment, so that no run rolls
LIMIT_SECONDS = 5.0


def _run(record_bytes: int, batch_bytes: int, codec: str, connections: int) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        limit_bytes = size.pick(LIMIT_BYTES, 32_000_000)
        with topic(target, connections) as name:
            pages.touch(limit_bytes)
            return per_gb(
                drive(
                    target,
                    "produce",
                    topic=name,
                    connections=connections,
                    record_bytes=record_bytes,
                    batch_bytes=batch_bytes,
                    codec=codec,
                    limit_bytes=limit_bytes,
                    limit_seconds=size.pick(LIMIT_SECONDS, 1.0),
                )
            )

    return run


def _add(
    record_bytes: int, batch_kb: int, codec: str, connections: int, speed: Bar | None = None, cpu: Bar | None = None
) -> None:
    record = "1 KB" if record_bytes == 1024 else f"{record_bytes} B"
    name = f"produce-{record.lower().replace(' ', '').removesuffix('b')}-{batch_kb}k-{codec}-{connections}"
    shape = f"{record} records, {batch_kb} KB batches, {codec}"
    register(
        Line(
            name,
            f"produce, {shape}, {connections} connection{'s'[: connections - 1]}",
            (
                Figure("mb_s", "MB/s", True, (speed,) if speed else ()),
                Figure("cpu_gb", "CPU s/GB", False, (cpu,) if cpu else ()),
            ),
            _run(record_bytes, batch_kb * 1024, codec, connections),
        )
    )


_add(1024, 64, "none", 1)
_add(1024, 64, "none", 4, at_least(2), at_most(0.4))
_add(1024, 512, "none", 1, at_least(2), at_most(0.4))
_add(1024, 512, "none", 4)
_add(1024, 64, "lz4", 1)
_add(1024, 64, "lz4", 4, at_least(3), at_most(0.4))
_add(1024, 512, "lz4", 1)
_add(1024, 512, "lz4", 4)
_add(100, 64, "none", 1, at_least(1.3))
_add(100, 64, "none", 4, at_least(1.3), at_most(0.4))
_add(100, 512, "none", 1)
_add(100, 512, "none", 4)
_add(100, 64, "lz4", 1)
_add(100, 64, "lz4", 4)
