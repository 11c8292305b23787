"""kafka-console-consumer: records become lines of the standard output."""

from __future__ import annotations

import argparse
import asyncio
import sys

from ottla.cli.common import CommandError, parse_settings
from ottla.client import Client
from ottla.client.fetcher import Fetcher, visible
from ottla.client.offsets import Committed, bounds, commit, committed
from ottla.client.routing import TopicPartition
from ottla.enums import IsolationLevel
from ottla.kafka_tools.common import connect, finish, new_parser
from ottla.records.batch import Record


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group")
    parser.add_argument("--from-beginning", action="store_true")
    parser.add_argument("--max-messages", type=int)
    parser.add_argument("--timeout-ms", type=int)
    parser.add_argument("--partition", type=int)
    parser.add_argument("--offset")
    parser.add_argument("--isolation-level", choices=("read_committed", "read_uncommitted"), default="read_uncommitted")
    for option in ("--property", "--formatter-property", "--consumer-property", "--command-property"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("--consumer.config", dest="consumer_config")
    for ignored in ("--formatter", "--key-deserializer", "--value-deserializer"):
        parser.add_argument(ignored)
    for flag in ("--skip-message-on-error", "--enable-systest-events"):
        parser.add_argument(flag, action="store_true")
    arguments = parser.parse_args(words)
    if arguments.offset is not None and arguments.partition is None:
        parser.error("The partition is required when offset is specified.")
    arguments.command_config = arguments.command_config or arguments.consumer_config
    consumer = parse_settings([*arguments.consumer_property, *arguments.command_property])
    arguments.group = arguments.group or consumer.get("group.id")
    arguments.from_beginning |= consumer.get("auto.offset.reset") == "earliest"
    printed = [0]
    try:
        return finish(_run(arguments, printed), lambda text: f"Error processing message, terminating: {text}")
    finally:
        sys.stdout.flush()
        print(f"Processed a total of {printed[0]} messages", file=sys.stderr)


async def _run(arguments: argparse.Namespace, printed: list[int]) -> int:
    line = Line(parse_settings([*arguments.property, *arguments.formatter_property]))
    level = (
        IsolationLevel.READ_COMMITTED
        if arguments.isolation_level == "read_committed"
        else IsolationLevel.READ_UNCOMMITTED
    )
    limit = arguments.max_messages
    idle_s = None if arguments.timeout_ms is None else arguments.timeout_ms / 1000
    async with connect(arguments) as client:
        starts = await _starts(client, arguments)
        positions: dict[TopicPartition, int] = {}
        fetcher = Fetcher(client, dict(starts), isolation=level)
        try:
            while limit is None or printed[0] < limit:
                for fetched in await asyncio.wait_for(fetcher.poll(), idle_s):
                    for batch in visible(fetched.batches, fetched.aborted):
                        for record in batch.records():
                            if record.offset < starts[fetched.tp] or (limit is not None and printed[0] >= limit):
                                continue
                            sys.stdout.buffer.write(line.of(fetched.tp[1], record))
                            printed[0] += 1
                            positions[fetched.tp] = record.offset + 1
                sys.stdout.buffer.flush()
        except TimeoutError:
            print("no record came within --timeout-ms", file=sys.stderr)
        finally:
            await fetcher.close()
            if arguments.group is not None and positions:
                await commit(client, arguments.group, {tp: Committed(at) for tp, at in positions.items()})
    return 0


async def _starts(client: Client, arguments: argparse.Namespace) -> dict[TopicPartition, int]:
    topic = await client.topic(arguments.topic)
    numbers = sorted(topic.partitions) if arguments.partition is None else [arguments.partition]
    if missing := [number for number in numbers if number not in topic.partitions]:
        raise CommandError(f"topic {arguments.topic} has no partition {missing[0]}")
    edges = await bounds(client, [(arguments.topic, number) for number in numbers])
    if arguments.offset is not None and arguments.offset not in ("earliest", "latest"):
        if not arguments.offset.isdecimal():
            raise CommandError(f"--offset takes earliest, latest or a number, not {arguments.offset}")
        return {tp: min(max(int(arguments.offset), start), end) for tp, (start, end) in edges.items()}
    first = arguments.from_beginning or arguments.offset == "earliest"
    found = {tp: start if first else end for tp, (start, end) in edges.items()}
    if arguments.group is not None:
        for tp, at in (await committed(client, arguments.group, edges)).items():
            found[tp] = max(at.offset, edges[tp][0])
    return found


class Line:
    """How a record is printed, by the properties of Kafka's DefaultMessageFormatter."""

    def __init__(self, properties: dict[str, str]) -> None:
        def on(name: str, default: str = "false") -> bool:
            return properties.get(f"print.{name}", default).lower() == "true"

        self._timestamp, self._partition, self._offset = on("timestamp"), on("partition"), on("offset")
        self._headers, self._key, self._value = on("headers"), on("key"), on("value", "true")
        self._between = properties.get("key.separator", "\t").encode()
        self._headers_between = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._end = properties.get("line.separator", "\n").encode()

    def of(self, partition: int, record: Record) -> bytes:
        parts: list[bytes] = []
        if self._timestamp:
            parts.append(f"CreateTime:{record.timestamp}".encode())
        if self._partition:
            parts.append(f"Partition:{partition}".encode())
        if self._offset:
            parts.append(f"Offset:{record.offset}".encode())
        if self._headers:
            shown = [b"%s:%s" % (name.encode(), self._text(value)) for name, value in record.headers]
            parts.append(self._headers_between.join(shown) or b"NO_HEADERS")
        if self._key:
            parts.append(self._text(record.key))
        if self._value:
            parts.append(self._text(record.value))
        return self._between.join(parts) + self._end

    def _text(self, data: bytes | None) -> bytes:
        return self._null if data is None else bytes(data)
