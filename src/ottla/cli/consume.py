"""`ottla consume`: records in, lines out."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.cli import consume_group, terminal
from ottla.cli.common import (
    OK,
    CommandError,
    UsageError,
    add_connection,
    argument,
    connect,
    matching,
    parse_numbers,
    parse_time,
    run_async,
    subcommand,
    words_go_to,
)
from ottla.cli.lines import ENCODERS, FORMATS, compile_template, to_json, to_plain, unescaped
from ottla.cli.printable import escaped_lines
from ottla.cli.schema_options import add_registry
from ottla.client.fetcher import Fetcher, visible
from ottla.client.offsets import Committed, bounds, commit, committed, list_offsets
from ottla.console.filters import RecordFilter
from ottla.console.operations import BadRequest
from ottla.enums import IsolationLevel, OffsetTimestamp
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.cli import schema_values
    from ottla.client import Client
    from ottla.client.fetcher import Fetched
    from ottla.records.record import Record
else:
    schema_values = lazy("ottla.cli.schema_values")

TopicPartition = tuple[str, int]
Printer = Callable[..., bytes]
_COMMIT_EVERY_S: Final = 5.0
_FILTERS: Final = ("key", "value", "header", "json")
_JSON_LINE_BYTES: Final = 80


class Where(NamedTuple):
    """A position in a partition: its start or end, an offset, a count from the end, or a time."""

    kind: str
    number: int = 0


def parse_where(text: str) -> Where:
    """`earliest`, `latest`, `42`, `-10` (the last ten), `@TIME`."""
    if text in ("earliest", "latest"):
        return Where(text)
    if text.startswith("@"):
        return Where("time", parse_time(text[1:], time.time_ns() // 1_000_000))
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a position: use earliest, latest, an offset, -N or @TIME") from None
    return Where("offset", number) if number >= 0 and not text.startswith("-") else Where("back", -number)


def add_parser(subparsers: Any) -> None:
    """Add `consume` to the command line."""
    parser = subcommand(
        subparsers,
        "consume",
        "read records, as lines of text or JSON",
        "Print the records of topics: the existing ones, and with --follow also new ones.",
        examples=(
            "ottla consume orders",
            "ottla consume orders --from -10 --follow                 # the last ten, then new ones",
            "ottla consume orders -p 0,2 --from @2026-01-31T12:00:00Z --until @-1h",
            "ottla consume orders --format json > orders.jsonl        # complete records",
            "ottla consume orders --filter key=42 --filter 'json=total>=7'",
            "ottla consume orders --decode                            # Avro, JSON Schema and Protobuf as JSON",
            "ottla consume orders --template '%p %o %k=%v\\n' -n 5",
            "ottla consume orders --group billing --join              # in two terminals: they share the partitions",
            "ottla consume jobs --share workers                       # a share group: record by record",
        ),
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="names or shell patterns")
    parser.add_argument("-p", "--partitions", type=argument(parse_numbers), metavar="0,2,5-7", help="only these")
    place = argument(parse_where)
    parser.add_argument(
        "--from",
        dest="start",
        type=place,
        default=None,
        metavar="WHERE",
        help="earliest (default), latest, an offset, -N for the last N of each partition, or @TIME",
    )
    parser.add_argument("--until", type=place, metavar="WHERE", help="stop before this offset or @TIME (latest)")
    parser.add_argument("-F", "--follow", action="store_true", help="wait for new records until interrupted")
    parser.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="PART=WANTED",
        dest="filters",
        help="only records with this text in key=, value= or header=NAME=, or with json=PATH >= 7; repeatable",
    )
    parser.add_argument("-n", "--count", type=int, metavar="N", help="stop after N records")
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether records of open and aborted transactions are shown (read_committed)",
    )
    consume_group.add_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "-f",
        "--format",
        choices=(*FORMATS, "pretty"),
        help="raw values, JSON lines for produce, hex, base64, or pretty (raw; pretty on a terminal)",
    )
    output.add_argument("--json", action="store_const", const="json", dest="format", help="same as --format json")
    output.add_argument(
        "-s",
        "--key-separator",
        type=argument(unescaped),
        metavar="TEXT",
        help="print the key, this text, and the value; \\t, \\n, \\0 and \\x1f are understood",
    )
    output.add_argument("--null", default="", metavar="TEXT", help="how null is printed (nothing)")
    output.add_argument(
        "--template",
        metavar="TEXT",
        help="%%t %%p %%o %%T %%k %%v %%h: topic, partition, offset, time, key, value, headers",
    )
    output.add_argument(
        "--decode",
        action="store_true",
        help="print keys and values that were written with a schema registry as JSON; schemas come from --registry, or "
        "from the cluster's topic _schemas",
    )
    add_connection(parser)
    add_registry(parser)
    words_go_to(parser, "topics")


def run(arguments: argparse.Namespace) -> int:
    return run_async(_consume(arguments))


async def _consume(arguments: argparse.Namespace) -> int:
    isolation = (
        IsolationLevel.READ_COMMITTED if arguments.isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    )
    consume_group.check_options(arguments)
    printer = _printer(arguments)
    passes = record_filter(arguments.filters)
    async with AsyncExitStack() as stack:
        if arguments.decode:
            decoder = stack.enter_context(closing(schema_values.ValueDecoder(arguments)))
            printer = decoder.printer(printer, arguments.format == "json" and arguments.template is None)
        client = await stack.enter_async_context(connect(arguments))
        if arguments.join or arguments.share is not None:
            return await consume_group.consume_as_member(client, arguments, printer, passes, isolation)
        partitions = await _partitions(client, arguments)
        starts = await _starts(client, arguments, partitions)
        ends = await _ends(client, arguments, partitions, isolation)
        left = {tp: start for tp, start in starts.items() if ends is None or start < ends[tp]}
        reader = _Reader(client, arguments, printer, passes, ends, starts)
        fetcher = Fetcher(client, left, isolation=isolation, on_gap=_warn_gap)
        total = None if ends is None else sum(ends[tp] - starts[tp] for tp in left)
        if arguments.count is not None:
            total = min(total or arguments.count, arguments.count)
        try:
            # A progress bar on the terminal that shows the records would only be in the way.
            quiet = arguments.follow or sys.stdout.isatty()
            with terminal.Progress("consume", total, unit="records", quiet=quiet) as progress:
                reader.progress = progress
                while fetcher.positions and not reader.is_full:
                    for fetched in await fetcher.poll():
                        reader.take(fetched)
                    if ends is not None:
                        for tp in [tp for tp, at in fetcher.positions.items() if at >= ends[tp]]:
                            del fetcher.positions[tp]
                    sys.stdout.buffer.flush()
                    await reader.commit_now_and_then()
        finally:
            await fetcher.close()
            await reader.commit()
    return OK


def record_filter(texts: Sequence[str]) -> Callable[[Record], bool]:
    """Whether a record passes all filters. Several filters of one kind must all match."""
    found = []
    for text in texts:
        part, equals, wanted = text.partition("=")
        if not equals or not wanted or part not in _FILTERS:
            raise UsageError(f"--filter takes {', '.join(f'{each}=…' for each in _FILTERS)}, not '{text}'")
        try:
            found.append(RecordFilter(**{part: wanted}))
        except BadRequest as error:
            raise UsageError(f"--filter {error}") from None
    return lambda record: all(each.matches(record) for each in found)


def _warn_gap(tp: TopicPartition, position: int, start: int) -> None:
    terminal.warn(f"{tp[0]}-{tp[1]}: records {position} to {start - 1} no longer exist; continuing at {start}")


class _Reader:
    """Prints the requested records, and remembers the position for the group."""

    def __init__(
        self,
        client: Client,
        arguments: argparse.Namespace,
        printer: Printer,
        passes: Callable[[Record], bool],
        ends: dict[TopicPartition, int] | None,
        starts: dict[TopicPartition, int],
    ) -> None:
        self._client = client
        self._group: str | None = arguments.group
        self._printer = printer
        self._passes = passes
        self._ends = ends
        self._starts = starts
        self._left: int | None = arguments.count
        self._printed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self.progress: terminal.Progress | None = None

    @property
    def is_full(self) -> bool:
        return self._left is not None and self._left <= 0

    def take(self, fetched: Fetched) -> None:
        topic, partition = tp = fetched.tp
        end = None if self._ends is None else self._ends[tp]
        write = sys.stdout.buffer.write
        count = 0
        for batch in visible(fetched.batches, fetched.aborted):
            for record in batch.records():
                if record.offset < self._starts[tp]:
                    continue
                if self.is_full or (end is not None and record.offset >= end):
                    break
                self._printed[tp] = record.offset + 1
                if not self._passes(record):
                    continue
                write(
                    self._printer(
                        topic, partition, record.offset, record.timestamp, record.key, record.value, record.headers
                    )
                )
                count += 1
                if self._left is not None:
                    self._left -= 1
        if not self.is_full and fetched.batches:  # markers and empty batches at the end count as read
            reached = fetched.batches[-1].next_offset
            self._printed[tp] = reached if end is None else min(reached, end)
        if self.progress is not None:
            self.progress.advance(count)

    async def commit_now_and_then(self) -> None:
        if self._group is not None and time.monotonic() - self._committed_at > _COMMIT_EVERY_S:
            await self.commit()

    async def commit(self) -> None:
        if self._group is not None and self._printed:
            sys.stdout.buffer.flush()
            await commit(self._client, self._group, {tp: Committed(at) for tp, at in self._printed.items()})
            self._printed = {}
        self._committed_at = time.monotonic()


async def _partitions(client: Client, arguments: argparse.Namespace) -> list[TopicPartition]:
    known = (await client.metadata()).topics
    names = matching(known, arguments.topics)
    if arguments.partitions is None:
        return [(name, index) for name in names for index in known[name].partitions]
    for name in names:
        missing = [index for index in arguments.partitions if index not in known[name].partitions]
        if missing:
            raise CommandError(f"topic '{name}' has no partition {missing[0]}")
    return [(name, index) for name in names for index in arguments.partitions]


async def _starts(
    client: Client, arguments: argparse.Namespace, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    starts = await _resolve(client, arguments.start or Where("earliest"), partitions)
    if arguments.group is not None and arguments.start is None:
        edges = await _resolve(client, Where("earliest"), partitions)
        for tp, found in (await committed(client, arguments.group, partitions)).items():
            starts[tp] = max(found.offset, edges[tp])
    return starts


async def _ends(
    client: Client, arguments: argparse.Namespace, partitions: Sequence[TopicPartition], isolation: int
) -> dict[TopicPartition, int] | None:
    """The offsets to stop at; None with --follow."""
    if arguments.follow:
        if arguments.until is not None:
            raise UsageError("--follow and --until cannot be combined: --follow never stops")
        return None
    latest = await list_offsets(client, dict.fromkeys(partitions, OffsetTimestamp.LATEST), isolation)
    ends = {tp: found.offset for tp, found in latest.items()}
    if arguments.until is not None:
        wanted = await _resolve(client, arguments.until, partitions)
        ends = {tp: min(end, wanted[tp]) for tp, end in ends.items()}
    return ends


async def _resolve(client: Client, where: Where, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    edges = await bounds(client, partitions)
    if where.kind == "earliest":
        return {tp: start for tp, (start, _) in edges.items()}
    if where.kind == "latest":
        return {tp: end for tp, (_, end) in edges.items()}
    if where.kind == "offset":
        return {tp: min(max(where.number, start), end) for tp, (start, end) in edges.items()}
    if where.kind == "back":
        return {tp: max(end - where.number, start) for tp, (start, end) in edges.items()}
    found = await list_offsets(client, dict.fromkeys(partitions, where.number))
    return {tp: edges[tp][1] if at.offset < 0 else at.offset for tp, at in found.items()}


# --- printing --------------------------------------------------------------------------------------------------------


def _printer(arguments: argparse.Namespace) -> Printer:
    null = arguments.null.encode()
    form = arguments.format or ("pretty" if sys.stdout.isatty() and arguments.key_separator is None else "raw")
    if arguments.template is not None:
        return compile_template(arguments.template, form if form in ENCODERS else "raw", null)
    if form == "json":
        return lambda *record: to_json(*record).encode() + b"\n"
    if form == "pretty":
        return _pretty
    separator = arguments.key_separator

    def plain(_t: str, _p: int, _o: int, _ts: int, key: bytes | None, value: bytes | None, _h: object) -> bytes:
        return to_plain(key, value, form, separator, null) + b"\n"

    return plain


def _pretty(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    place = terminal.paint(f"{topic}-{partition}@{offset} {terminal.human_time(timestamp)}", "dim")
    parts: list[str] = [place]
    if key is not None:
        parts.append(terminal.paint(_shown(key), "cyan"))
    if headers:
        named = " ".join(f"{name}={'null' if content is None else _shown(content)}" for name, content in headers)
        parts.append(terminal.paint(f"[{named}]", "yellow"))
    parts.append(terminal.paint("null", "dim") if value is None else _readable(value))
    return "  ".join(parts).encode() + b"\n"


def _readable(value: bytes) -> str:
    """JSON that is too long for a line is indented; anything else is shown unchanged."""
    if len(value) > _JSON_LINE_BYTES and value[:1] in b"{[":
        with suppress(ValueError, RecursionError):
            return escaped_lines("\n" + json.dumps(json.loads(value), indent=2, ensure_ascii=False))
    return _shown(value)


def _shown(data: bytes) -> str:
    """Text without characters that would move the cursor; bytes that are not text in hex."""
    try:
        return escaped_lines(data.decode())
    except UnicodeDecodeError:
        return "0x" + data.hex()
