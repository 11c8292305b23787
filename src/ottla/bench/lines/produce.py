"""Produce throughput: record sizes, batch sizes, codecs and connections."""

from __future__ import annotations

from ottla.bench import pages
from ottla.bench.lines.topics import per_gb, topic
from ottla.bench.load import drive
from ottla.bench.model import Bar, Figure, Line, Run, Size, at_least, at_most, register
from ottla.bench.targets import Target

LIMIT_BYTES = 640_000_000  # less than a segment, so that no run rolls one
LIMIT_SECONDS = 5.0


def _run(
    record_bytes: int, batch_bytes: int, codec: str, connections: int, *, growing: bool = False, **configs: str
) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        limit_bytes = size.pick(LIMIT_BYTES, 32_000_000)
        with topic(target, connections, **configs) as name, pages.used(limit_bytes if growing else 0):
            if not growing:
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


def _add_variant(name: str, title: str, run: Run, *speed: Bar) -> None:
    figures = (Figure("mb_s", "MB/s", True, speed), Figure("cpu_gb", "CPU s/GB", False))
    register(Line(f"produce-{name}", f"produce, {title}", figures, run))


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

# The lines above reuse pages that were just freed. Here the system must find other pages, as in a long run.
_GROWING = "1 KB records, {} KB batches, none, {}, while the page cache grows"
_add_variant(
    "growing-64k-4", _GROWING.format(64, "4 connections"), _run(1024, 65536, "none", 4, growing=True), at_least(2)
)
_add_variant(
    "growing-512k-1", _GROWING.format(512, "1 connection"), _run(1024, 524288, "none", 1, growing=True), at_least(2)
)

_SHAPE = "1 KB records, 64 KB batches, none, 4 connections, "
_add_variant(
    "append-time", _SHAPE + "LogAppendTime", _run(1024, 65536, "none", 4, message_timestamp_type="LogAppendTime")
)
_add_variant("recompressed", _SHAPE + "to a topic with lz4", _run(1024, 65536, "none", 4, compression_type="lz4"))
