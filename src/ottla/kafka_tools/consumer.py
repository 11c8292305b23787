"""kafka-console-consumer: records become lines of the standard output."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from ottla.cli.common import CommandError, parse_settings
from ottla.cli.consume_group import MemberReader
from ottla.client import Client
from ottla.client.connection import ConnectionLost
from ottla.client.fetcher import Fetcher, visible
from ottla.client.group_member import member_of
from ottla.client.offsets import bounds
from ottla.client.routing import TopicPartition
from ottla.enums import IsolationLevel
from ottla.errors import KafkaError, UnknownTopicOrPartition
from ottla.kafka_tools.common import connect, finish, new_parser, read_properties
from ottla.kafka_tools.formatter import FORMATTERS
from ottla.records.batch import Record
from ottla.system import on_signal

IDLE_S = 0.1
LEVELS = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
DEPRECATED = {"property": "formatter-property", "consumer-property": "command-property"}


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    parser.add_argument("--topic")
    parser.add_argument("--include")
    parser.add_argument("--group")
    parser.add_argument("--from-beginning", action="store_true")
    parser.add_argument("--max-messages", type=int)
    parser.add_argument("--timeout-ms", type=int)
    parser.add_argument("--partition", type=int)
    parser.add_argument("--offset")
    parser.add_argument("--isolation-level", choices=tuple(LEVELS), default="read_uncommitted")
    for option in ("--property", "--formatter-property", "--consumer-property", "--command-property"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("--consumer.config", dest="consumer_config")
    parser.add_argument("--formatter-config")
    parser.add_argument("--formatter", choices=tuple(FORMATTERS), default=next(iter(FORMATTERS)))
    parser.add_argument("--key-deserializer")
    parser.add_argument("--value-deserializer")
    for flag in ("--skip-message-on-error", "--enable-systest-events"):
        parser.add_argument(flag, action="store_true")
    arguments = parser.parse_args(words)
    for old, new in DEPRECATED.items():
        if getattr(arguments, old.replace("-", "_")):
            print(f"Option --{old} is deprecated and will be removed in a future version. Use --{new} instead.")
    if (arguments.topic is None) == (arguments.include is None):
        parser.error("Exactly one of the following arguments is required: [topic], [include]")
    if arguments.partition is not None and arguments.topic is None:
        parser.error("The topic is required when partition is specified.")
    if arguments.offset is not None and arguments.partition is None:
        parser.error("The partition is required when offset is specified.")
    if arguments.offset is not None and arguments.from_beginning:
        parser.error("Options from-beginning and offset cannot be specified together.")
    if arguments.offset is not None and not re.fullmatch(r"earliest|latest|\d+", arguments.offset.lower()):
        parser.error(
            f"The provided offset value '{arguments.offset}' is incorrect. Valid values are 'earliest', 'latest', "
            "or a non-negative long."
        )
    if arguments.group is not None and arguments.partition is not None:
        parser.error("Options group and partition cannot be specified together.")
    arguments.command_config = arguments.command_config or arguments.consumer_config
    reading = _Reading(arguments.max_messages, arguments.timeout_ms)
    try:
        return finish(_run(arguments, reading), lambda text: f"Error processing message, terminating: {text}")
    finally:
        sys.stdout.flush()
        print(f"Processed a total of {reading.count} messages", file=sys.stderr)


class _Reading:
    """Prints records until there are enough of them, or none came for a while."""

    def __init__(self, limit: int | None, timeout_ms: int | None) -> None:
        self.count = 0
        self._limit = limit
        self.left_s = None if timeout_ms is None else timeout_ms / 1000
        self.timeout: asyncio.Timeout
        self.line: Callable[[TopicPartition, Record], bytes]

    @property
    def is_full(self) -> bool:
        return self._limit is not None and self.count >= self._limit

    def show(self, tp: TopicPartition, record: Record) -> None:
        sys.stdout.buffer.write(self.line(tp, record))
        self.count += 1
        if self.left_s is not None and not self.timeout.expired():
            self.timeout.reschedule(asyncio.get_running_loop().time() + self.left_s)


async def _run(arguments: argparse.Namespace, reading: _Reading) -> int:
    task = asyncio.current_task()
    assert task is not None
    on_signal(asyncio.get_running_loop(), signal.SIGTERM, task.cancel)  # a member leaves its group, as on Ctrl-C
    given = {
        **read_properties(arguments.formatter_config),
        **parse_settings([*arguments.property, *arguments.formatter_property]),
    }
    for kind in ("key", "value"):
        if name := getattr(arguments, f"{kind}_deserializer"):
            given[f"{kind}.deserializer"] = name
    reading.line = FORMATTERS[arguments.formatter](given)
    settings = {
        **read_properties(arguments.command_config),
        **parse_settings([*arguments.consumer_property, *arguments.command_property]),
    }
    named = {each for each in (arguments.group, settings.get("group.id")) if each is not None}
    if len(named) > 1:
        raise CommandError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: {', '.join(repr(each) for each in sorted(named))}"
        )
    from_end = not arguments.from_beginning and settings.get("auto.offset.reset") != "earliest"
    level = LEVELS[arguments.isolation_level]
    try:
        async with asyncio.timeout(reading.left_s) as reading.timeout, connect(arguments) as client:
            topics = await _topics(client, arguments)
            if named and arguments.partition is None:
                protocol = settings.get("group.protocol", "classic").lower()
                await _read_as_member(client, named.pop(), topics, protocol, reading, level, from_end)
            else:
                await _read_alone(client, await _starts(client, arguments, topics, from_end), reading, level)
    except TimeoutError:
        print(
            "ERROR Error processing message, terminating consumer process: no record in --timeout-ms", file=sys.stderr
        )
    return 0


async def _topics(client: Client, arguments: argparse.Namespace) -> list[str]:
    """The topics to read. As in Kafka, one that does not exist is created, or waited for."""
    if arguments.topic is not None:
        while True:
            try:
                return [(await client.topic_or_new(arguments.topic)).name]
            except UnknownTopicOrPartition:
                continue
    try:
        pattern = re.compile(arguments.include.replace(",", "|"))
    except re.error as error:
        raise CommandError(f"{arguments.include} is an invalid regex: {error}") from None
    known = (await client.metadata()).topics
    return sorted(name for name, topic in known.items() if pattern.fullmatch(name) and not topic.is_internal)


async def _read_as_member(
    client: Client, group: str, topics: list[str], protocol: str, reading: _Reading, level: int, from_end: bool
) -> None:
    member = member_of(client, group, topics, protocol=protocol)
    reader = MemberReader(client, group, member, reading, isolation=level, from_end=from_end, tell=lambda _: None)
    try:
        while not reading.is_full:
            await reader.rebalance()
            while not reading.is_full and not member.must_join.is_set():
                await reader.read()
    finally:
        with suppress(KafkaError, ConnectionLost):  # what is not committed is read again
            await reader.close()
        await member.leave()


async def _read_alone(client: Client, starts: dict[TopicPartition, int], reading: _Reading, level: int) -> None:
    fetcher = Fetcher(client, dict(starts), isolation=level)
    try:
        while not reading.is_full:
            if not starts:
                await asyncio.sleep(IDLE_S)
            for fetched in await fetcher.poll():
                for batch in visible(fetched.batches, fetched.aborted):
                    for record in batch.records():
                        if record.offset >= starts[fetched.tp] and not reading.is_full:
                            reading.show(fetched.tp, record)
            sys.stdout.buffer.flush()
    finally:
        await fetcher.close()


async def _starts(
    client: Client, arguments: argparse.Namespace, topics: list[str], from_end: bool
) -> dict[TopicPartition, int]:
    partitions = [
        (name, number)
        for name in topics
        for number in client.known.topics[name].partitions
        if arguments.partition in (None, number)
    ]
    edges = await bounds(client, partitions)
    place = (arguments.offset or ("latest" if from_end else "earliest")).lower()
    if place in ("earliest", "latest"):
        return {tp: start if place == "earliest" else end for tp, (start, end) in edges.items()}
    return {tp: min(max(int(place), start), end) for tp, (start, end) in edges.items()}
