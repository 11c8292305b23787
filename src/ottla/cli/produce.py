"""`ottla produce`: lines in, records out."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from ottla import system
from ottla.cli import terminal
from ottla.cli.common import (
    OK,
    CommandError,
    UsageError,
    add_connection,
    argument,
    connect,
    parse_time,
    run_async,
    subcommand,
)
from ottla.cli.lines import FORMATS, Line, LineError, from_json, from_plain, unescaped
from ottla.cli.schema_options import add_registry
from ottla.client.connection import UnknownTopic
from ottla.client.producer import Gatherer, Producer, partition_for
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.cli import schema_values
    from ottla.client import Client
    from ottla.client.producer import Gatherer
else:
    schema_values = lazy("ottla.cli.schema_values")

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_CHUNK_BYTES: Final = 1 << 18
_STICKY_RECORDS: Final = 1000
"""Records without a key go to one partition for this time. This makes larger batches and still uses all partitions."""


def add_parser(subparsers: Any) -> None:
    """Add `produce` to the command line."""
    parser = subcommand(
        subparsers,
        "produce",
        "write records, from lines of text or JSON",
        "Write one record for each line of the standard input, of a file, or of --value.",
        examples=(
            "ottla produce orders -v hello",
            "ottla produce orders --key-separator : < lines.txt       # key:value",
            "ottla consume orders --format json | ottla produce copy --format json",
            "ottla produce orders -k 42 -H trace=abc -p 1 -t 2026-01-31T12:00:00Z -v text",
            "ottla produce orders --schema order.avsc -v '{\"id\": 7}'   # Avro, by the schema registry",
            "ottla produce users -k 42 --null NULL -v NULL            # a tombstone",
        ),
    )
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="may be left out if JSON lines name it")
    source = parser.add_argument_group("input")
    source.add_argument("-v", "--value", action="append", metavar="TEXT", help="a line; repeatable")
    source.add_argument("-i", "--input", metavar="FILE", help="read lines from here (the standard input)")
    source.add_argument("-f", "--format", choices=FORMATS, help="the format of the lines (raw)")
    source.add_argument(
        "-s",
        "--key-separator",
        type=argument(unescaped),
        metavar="TEXT",
        help="split lines into key and value at this text (not for json); \\t, \\0 and \\x1f work",
    )
    source.add_argument("--null", metavar="TEXT", help="a key or value of this text is null (not for json)")
    source.add_argument("--skip-bad-lines", action="store_true", help="warn and continue instead of stopping")
    source.add_argument("--ignore-partitions", action="store_true", help="place JSON lines by key")
    source.add_argument("--ignore-timestamps", action="store_true", help="stamp JSON lines with the current time")
    record = parser.add_argument_group("records")
    record.add_argument("-k", "--key", metavar="TEXT", help="the key for lines without one")
    record.add_argument("-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    record.add_argument("-p", "--partition", type=int, metavar="N", help="for lines without one (chosen by key)")
    record.add_argument("-t", "--timestamp", metavar="TIME", help="for lines without one (now)")
    record.add_argument(
        "--schema",
        metavar="WHAT",
        help="write values with a schema registry, from JSON: a schema file (registered as TOPIC-value), an id, "
        "latest, SUBJECT or SUBJECT:VERSION",
    )
    record.add_argument("--key-schema", metavar="WHAT", help="the same for keys, as TOPIC-key")
    sending = parser.add_argument_group("sending")
    sending.add_argument("-z", "--compression", choices=tuple(CODECS), default="none", metavar="CODEC")
    sending.add_argument("-a", "--acks", choices=("all", "1", "0"), default="all", help="(all)")
    sending.add_argument("--no-idempotence", action="store_true", help="a retry may write twice")
    sending.add_argument("--batch-bytes", type=int, default=256 * 1024, metavar="N", help="largest batch (262144)")
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON (to read JSON lines, use --format json)"
    )
    add_connection(parser)
    add_registry(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_async(_produce(arguments))


async def _produce(arguments: argparse.Namespace) -> int:
    _check(arguments)
    acks = -1 if arguments.acks == "all" else int(arguments.acks)
    counts: dict[tuple[str, int], tuple[int, int]] = {}

    def on_sent(tp: tuple[str, int], count: int, last_offset: int) -> None:
        counts[tp] = (counts.get(tp, (0, 0))[0] + count, last_offset)

    async with connect(arguments) as client:
        producer = Producer(client, acks=acks, idempotent=not arguments.no_idempotence)
        gatherer = Gatherer(
            producer, codec=CODECS[arguments.compression], batch_bytes=arguments.batch_bytes, on_sent=on_sent
        )
        writer = _Writer(client, gatherer, arguments, lambda: sum(count for count, _ in counts.values()))
        try:
            await writer.run()
            await gatherer.flush()
        except BaseException:
            await gatherer.abandon()
            raise
    _report(arguments, counts)
    return OK


def _check(arguments: argparse.Namespace) -> None:
    arguments.has_default_format = arguments.format is None
    arguments.format = arguments.format or "raw"
    if arguments.topic is None and arguments.format != "json":
        raise UsageError("name the topic to write to")
    if arguments.format == "json" and (arguments.key_separator is not None or arguments.null is not None):
        raise UsageError("--key-separator and --null do not apply to JSON lines")
    if arguments.value is not None and arguments.input is not None:
        raise UsageError("give either --value or --input")


def _report(arguments: argparse.Namespace, counts: dict[tuple[str, int], tuple[int, int]]) -> None:
    if arguments.json:
        terminal.print_json(
            [
                {"topic": topic, "partition": partition, "records": count, "last_offset": last}
                for (topic, partition), (count, last) in sorted(counts.items())
            ]
        )
    elif sys.stderr.isatty():
        total = sum(count for count, _ in counts.values())
        topics = ", ".join(sorted({topic for topic, _ in counts})) or "nothing"
        terminal.note(f"wrote {terminal.counted(total, 'record')} to {topics}")


class _Writer:
    """Turns lines into records and places them."""

    def __init__(
        self, client: Client, gatherer: Gatherer, arguments: argparse.Namespace, sent: Callable[[], int]
    ) -> None:
        self._sent = sent
        self._client = client
        self._gatherer = gatherer
        self._arguments = arguments
        self._key = None if arguments.key is None else arguments.key.encode()
        self._headers = [_header(text) for text in arguments.header]
        self._timestamp: int | None = None
        if arguments.timestamp is not None:
            try:
                self._timestamp = parse_time(arguments.timestamp, _now_ms())
            except ValueError as error:
                raise UsageError(f"--timestamp: {error}") from None
        self._partitions: dict[str, list[int]] = {}
        self._keyless = 0
        self._parse = _parser(arguments)
        if arguments.schema is not None or arguments.key_schema is not None:
            parse, encoder = self._parse, schema_values.ValueEncoder(arguments)
            self._parse = lambda text: encoder.encode(parse(text))
            self._key = encoder.encode(Line(None, self._key)).key
        self._line_number = 0

    async def run(self) -> None:
        arguments = self._arguments
        if arguments.value is not None:
            for text in arguments.value:
                await self._write(text.encode("utf-8", "surrogateescape"))
            return
        fd, total = _open(arguments.input)
        # With typed input, a progress bar would only disturb.
        quiet = os.isatty(fd)
        try:
            with terminal.Progress("produce", total, unit="bytes", quiet=quiet) as progress:
                rest = b""
                async for chunk in chunks(fd):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        await self._write(line)
                    progress.advance(len(chunk))
                    if is_idle(fd):
                        await self._gatherer.flush()
                if rest:
                    await self._write(rest)
                await self._gatherer.flush()
        finally:
            if fd != 0:
                os.close(fd)

    async def _write(self, text: bytes) -> None:
        self._line_number += 1
        if self._line_number == 1 and self._arguments.has_default_format and _is_json_line(text):
            terminal.warn("line 1 looks like output of `ottla consume --json`; to read it as one, use `--format json`")
        if not text and self._arguments.format != "raw":
            return
        try:
            line = self._parse(text)
            topic = self._arguments.topic or line.topic
            if topic is None:
                raise LineError("the line names no topic, and the command line does not either")
            partition = await self._place(topic, line)
        except LineError as error:
            if not self._arguments.skip_bad_lines:
                await self._gatherer.flush()
                raise CommandError(f"line {self._line_number}: {error}; {self._before()}") from None
            terminal.warn(f"line {self._line_number} skipped: {error}")
            return
        timestamp = None if self._arguments.ignore_timestamps else line.timestamp
        if timestamp is None:
            timestamp = self._timestamp if self._timestamp is not None else _now_ms()
        key = self._key if line.key is None else line.key
        await self._gatherer.add((topic, partition), timestamp, key, line.value, line.headers + self._headers)

    def _before(self) -> str:
        """How much was written before the refused line, so that the user can write the rest without repeating it."""
        count = self._sent()
        return f"{terminal.counted(count, 'record')} before it {'was' if count == 1 else 'were'} written"

    async def _place(self, topic: str, line: Line) -> int:
        known = self._partitions.get(topic)
        if known is None:
            try:
                found = await self._client.topic(topic)
            except UnknownTopic as error:
                # The topic is not created: a mistyped name should be an error.
                raise CommandError(f"{error}; create it with `ottla topics create {topic}`") from None
            known = self._partitions[topic] = sorted(found.partitions)
        partition = line.partition if line.partition is not None else self._arguments.partition
        if partition is not None and not self._arguments.ignore_partitions:
            if partition not in known:
                raise LineError(f"topic '{topic}' has no partition {partition} (0 to {len(known) - 1})")
            return partition
        key = self._key if line.key is None else line.key
        if key is not None:
            return known[partition_for(key, len(known))]
        self._keyless += 1
        return known[self._keyless // _STICKY_RECORDS % len(known)]


def _parser(arguments: argparse.Namespace) -> Callable[[bytes], Line]:
    if arguments.format == "json":
        return from_json
    separator = arguments.key_separator
    null = None if arguments.null is None else arguments.null.encode()
    return lambda text: from_plain(text, arguments.format, separator, null)


def _is_json_line(text: bytes) -> bool:
    """Whether this is a record as `consume` prints it; written as text, it would be a wrong value."""
    if not text.startswith(b'{"topic": '):
        return False
    try:
        return from_json(text).partition is not None
    except LineError:
        return False


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--header takes NAME=VALUE, not '{text}'")
    return name, value.encode()


def _open(path: str | None) -> tuple[int, int | None]:
    """A file descriptor, and the size of the file if it is known."""
    if path is None or path == "-":
        fd = sys.stdin.fileno()
    else:
        try:
            fd = os.open(path, os.O_RDONLY | system.OPEN_FLAGS)
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from None
    return fd, os.fstat(fd).st_size or None


async def chunks(fd: int) -> AsyncIterator[bytes]:
    """The input as it arrives. Waiting for the keyboard does not delay sending."""
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(fd, _resolve, ready)
        except PermissionError:
            pass  # a file: always ready
        else:
            try:
                await ready
            finally:
                loop.remove_reader(fd)
        data = os.read(fd, _CHUNK_BYTES)
        if not data:
            return
        yield data
        await asyncio.sleep(0)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def is_idle(fd: int) -> bool:
    """Whether no more input is waiting. In that case the records so far should be sent."""
    return not select.select([fd], [], [], 0)[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
