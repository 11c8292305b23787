"""kafka-console-producer: lines of the standard input become records."""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import NamedTuple

from ottla.cli.common import CommandError, parse_settings
from ottla.cli.produce import CODECS, chunks, is_idle
from ottla.client import Client
from ottla.client.producer import Gatherer, Producer, partition_for
from ottla.errors import KafkaError
from ottla.kafka_tools.common import connect, finish, new_parser, read_properties

Headers = list[tuple[str, bytes | None]]
READERS = (None, "org.apache.kafka.tools.LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader")
BATCH_BYTES = 16_384


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    parser.add_argument("--topic")
    for option in ("--property", "--reader-property", "--producer-property", "--command-property"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("--producer.config", dest="producer_config")
    parser.add_argument("--reader-config")
    parser.add_argument("--line-reader", choices=READERS[1:])
    parser.add_argument("--compression-codec", nargs="?", const="gzip")
    parser.add_argument("--request-required-acks")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--batch-size", type=int, default=BATCH_BYTES)
    # The client has its own limits for these.
    for option in ("max-block-ms", "max-memory-bytes", "max-partition-memory-bytes", "message-send-max-retries"):
        parser.add_argument(f"--{option}", type=int)
    for option in ("metadata-expiry-ms", "request-timeout-ms", "retry-backoff-ms", "socket-buffer-size", "timeout"):
        parser.add_argument(f"--{option}", type=int)
    arguments = parser.parse_args(words)
    for old, new in (("property", "reader-property"), ("producer-property", "command-property")):
        if getattr(arguments, old.replace("-", "_")):
            print(f"Warning: --{old} is deprecated and will be removed in a future version. Use --{new} instead.")
    if arguments.topic is None:
        parser.error('Missing required argument "[topic]"')
    arguments.command_config = arguments.command_config or arguments.producer_config
    return finish(_run(arguments), lambda text: f"org.apache.kafka.common.KafkaException: {text}")


async def _run(arguments: argparse.Namespace) -> int:
    lines = LineReader(
        {
            **read_properties(arguments.reader_config),
            **parse_settings([*arguments.property, *arguments.reader_property]),
        }
    )
    settings = {
        **read_properties(arguments.command_config),
        **parse_settings([*arguments.producer_property, *arguments.command_property]),
    }
    acks = arguments.request_required_acks or settings.get("acks", "all")
    codec = arguments.compression_codec or settings.get("compression.type", "none")
    if acks not in ("all", "-1", "0", "1") or codec not in CODECS:
        raise CommandError(f"acks={acks} with compression.type={codec} cannot be used")
    async with connect(arguments) as client:
        producer = Producer(client, acks=-1 if acks == "all" else int(acks))
        gatherer = Gatherer(producer, codec=CODECS[codec], batch_bytes=arguments.batch_size)
        writer = _Writer(client, gatherer, arguments.topic, flush_each=arguments.sync)
        try:
            await _send_lines(lines, writer)
        finally:
            await writer.flush()
    return 0


async def _send_lines(lines: LineReader, writer: _Writer) -> None:
    fd = sys.stdin.fileno()
    prompt = sys.stdin.isatty()
    rest = b""
    if prompt:
        print(">", end="", flush=True)
    async for chunk in chunks(fd):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            await writer.add(lines.read(line.removesuffix(b"\r")))
        if is_idle(fd):
            await writer.flush()
            if prompt:
                print(">", end="", flush=True)
    if rest:
        await writer.add(lines.read(rest))


class Parsed(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


class LineReader:
    """A line as a record, by the properties of Kafka's LineMessageReader: [headers TAB][key TAB]value."""

    def __init__(self, properties: dict[str, str]) -> None:
        def on(name: str) -> bool:
            return properties.get(name, "false").strip().lower() == "true"

        self._has_key, self._has_headers = on("parse.key"), on("parse.headers")
        self._ignores_errors = on("ignore.error")
        self._key_end = properties.get("key.separator", "\t").encode()
        self._headers_end = properties.get("headers.delimiter", "\t").encode()
        self._between_headers = properties.get("headers.separator", ",").encode()
        self._name_end = properties.get("headers.key.separator", ":").encode()
        null = properties.get("null.marker")
        self._null = None if null is None else null.encode()
        self._number = 0

    def read(self, line: bytes) -> Parsed:
        self._number += 1
        headers: Headers = []
        key = None
        if self._has_headers:
            text, line = self._cut(line, self._headers_end, "headers delimiter")
            if text is not None and text != self._null:
                headers = [self._header(pair) for pair in text.split(self._between_headers)]
        if self._has_key:
            key, line = self._cut(line, self._key_end, "key separator")
        return Parsed(self._unless_null(key), self._unless_null(line), headers)

    def _cut(self, line: bytes, end: bytes, what: str) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(end)
        if found:
            return before, after
        if self._ignores_errors:
            return None, line
        raise CommandError(f"No {what} found on line number {self._number}: '{line.decode(errors='replace')}'")

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self._name_end)
        if not found and not self._ignores_errors:
            raise CommandError(
                f"No header key separator found in pair '{pair.decode(errors='replace')}' on line number {self._number}"
            )
        return name.decode(), self._unless_null(value) if found else None

    def _unless_null(self, data: bytes | None) -> bytes | None:
        return None if data == self._null else data


class _Writer:
    """Places records. As in Kafka's tool, a record that is refused is a line on standard error, and not the end."""

    def __init__(self, client: Client, gatherer: Gatherer, topic: str, *, flush_each: bool) -> None:
        self._client = client
        self._gatherer = gatherer
        self._topic = topic
        self._flush_each = flush_each
        self._partitions: list[int] = []
        self._turn = random.randrange(1 << 31)

    async def add(self, record: Parsed) -> None:
        try:
            if not self._partitions:
                self._partitions = sorted((await self._client.topic_or_new(self._topic)).partitions)
            number = self._turn if record.key is None else partition_for(record.key, len(self._partitions))
            tp = (self._topic, self._partitions[number % len(self._partitions)])
            await self._gatherer.add(tp, time.time_ns() // 1_000_000, record.key, record.value, record.headers)
        except KafkaError as error:
            self._refused(error)
        if self._flush_each:
            await self.flush()

    async def flush(self) -> None:
        self._turn += 1  # records without a key stay together in a batch, and the next batch goes elsewhere
        try:
            await self._gatherer.flush()
        except KafkaError as error:
            self._refused(error)

    def _refused(self, error: KafkaError) -> None:
        print(f"ERROR Error when sending message to topic {self._topic}: {error.message}", file=sys.stderr)
