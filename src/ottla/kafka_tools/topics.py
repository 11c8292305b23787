"""kafka-topics."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from ottla.cli.common import CommandError
from ottla.client import Client
from ottla.client.admin import (
    ConfigEntry,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
)
from ottla.client.routing import Partition, Topic
from ottla.enums import ConfigResourceType, ConfigSource
from ottla.errors import KafkaError, TopicAlreadyExists
from ottla.kafka_tools.common import add_verbs, connect, finish, new_parser, parse_verb
from ottla.wire.primitives import uuid_to_base64

NEEDS = {"create": ("topic",), "alter": ("topic", "partitions"), "delete": ("topic",)}
# Which verbs an option is for, if not for all.
ONLY_FOR = {
    "config": ("create",),
    "replication_factor": ("create",),
    "if_not_exists": ("create",),
    "if_exists": ("alter", "delete", "describe"),
    "replica_assignment": ("create", "alter"),
    "partitions": ("create", "alter"),
    "topics_with_overrides": ("describe",),
}
FILTERS: dict[str, Callable[[Partition, int], bool]] = {
    "under-replicated-partitions": lambda part, _: len(part.isr) < len(part.replicas),
    "unavailable-partitions": lambda part, _: part.leader < 0,
    "under-min-isr-partitions": lambda part, needed: len(part.isr) < needed,
    "at-min-isr-partitions": lambda part, needed: len(part.isr) == needed,
}
"""Options that describe some partitions only, by their state and min.insync.replicas."""


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    add_verbs(
        parser,
        ("list", "create", "describe", "alter", "delete"),
        "Command must include exactly one action: --list, --describe, --create, --alter or --delete",
    )
    parser.add_argument("--topic")
    parser.add_argument("--topic-id")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--replication-factor", type=int)
    parser.add_argument("--replica-assignment")
    parser.add_argument("--config", action="append")
    parser.add_argument("--partition-size-limit-per-response", type=int)  # describing asks for all at once
    for flag in ("if-exists", "if-not-exists", "exclude-internal", "topics-with-overrides", *FILTERS):
        parser.add_argument(f"--{flag}", action="store_true")
    arguments = parse_verb(parser, words, NEEDS)
    for option, verbs in ONLY_FOR.items():
        if getattr(arguments, option) and arguments.verb not in verbs:
            parser.error(f'Option "[{arguments.verb}]" can\'t be used with option "[{option.replace("_", "-")}]"')
    return finish(_run(arguments), lambda text: f"Error while executing topic command : {text}", to_stdout=True)


async def _run(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        if arguments.verb == "create":
            await _create(client, arguments)
            return 0
        topics = await _named(client, arguments)
        if arguments.verb == "list":
            print("\n".join(sorted(topics)))
        elif arguments.verb == "describe":
            await _describe(client, topics, arguments)
        elif arguments.verb == "alter":
            _check(await create_partitions(client, dict.fromkeys(topics, arguments.partitions)))
        elif topics:
            _check(await delete_topics(client, sorted(topics)))
    return 0


async def _create(client: Client, arguments: argparse.Namespace) -> None:
    if "." in arguments.topic or "_" in arguments.topic:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
            " To avoid issues it is best to use either, but not both."
        )
    for option, word in (("partitions", "partitions"), ("replication_factor", "replication factor")):
        count = getattr(arguments, option)
        if count is not None and count < 1:
            raise CommandError(f"The {word} must be greater than 0")
    wanted = NewTopic(
        arguments.topic,
        arguments.partitions or -1,
        arguments.replication_factor or -1,
        dict(map(_setting, arguments.config or ())),
        _assignment(arguments.replica_assignment),
    )
    result = (await create_topics(client, [wanted]))[arguments.topic]
    if isinstance(result, TopicAlreadyExists) and arguments.if_not_exists:
        return
    _check({arguments.topic: result})
    print(f"Created topic {arguments.topic}.")


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise CommandError(
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
        )
    return key.strip(), value.strip()


def _assignment(text: str | None) -> dict[int, list[int]]:
    """`1:2,2:1` are two partitions with two replicas each."""
    try:
        return {} if text is None else {n: [*map(int, one.split(":"))] for n, one in enumerate(text.split(","))}
    except ValueError:
        raise CommandError(f"{text} is not a replica assignment") from None


async def _named(client: Client, arguments: argparse.Namespace) -> dict[str, Topic]:
    """Topics that --topic or --topic-id names, or all. --topic is a regular expression, as in Kafka."""
    known = (await client.metadata()).topics
    if arguments.exclude_internal:
        known = {name: topic for name, topic in known.items() if not topic.is_internal}
    if arguments.topic_id is not None and arguments.verb == "describe":
        found = {name: topic for name, topic in known.items() if uuid_to_base64(topic.topic_id) == arguments.topic_id}
        if not found and not arguments.if_exists:
            raise CommandError(f"TopicId '{arguments.topic_id}' does not exist as expected")
        return found
    if arguments.topic is None:
        return known
    try:
        pattern = re.compile(arguments.topic.strip("'\"").replace(",", "|"))
    except re.error as error:
        raise CommandError(f"{arguments.topic} is an invalid regex: {error}") from None
    found = {name: topic for name, topic in known.items() if pattern.fullmatch(name)}
    if not found and not arguments.if_exists and arguments.verb != "list":
        raise CommandError(f"Topic '{arguments.topic}' does not exist as expected")
    return found


async def _describe(client: Client, topics: dict[str, Topic], arguments: argparse.Namespace) -> None:
    names = sorted(topics)
    configs = await describe_configs(client, ConfigResourceType.TOPIC, names) if names else {}
    tests = [test for option, test in FILTERS.items() if getattr(arguments, option.replace("-", "_"))]
    for name in names:
        settings = configs[name]
        if isinstance(settings, KafkaError):
            raise settings
        overrides = [each for each in settings if each.source != ConfigSource.DEFAULT_CONFIG]
        if not tests and (overrides or not arguments.topics_with_overrides):
            _print_topic(topics[name], overrides)
        if arguments.topics_with_overrides:
            continue
        needed = next(int(each.value or 1) for each in settings if each.name == "min.insync.replicas")
        for number, part in sorted(topics[name].partitions.items()):
            if all(test(part, needed) for test in tests):
                leader = "none" if part.leader < 0 else part.leader
                print(
                    f"\tTopic: {name}\tPartition: {number}\tLeader: {leader}\tReplicas: {_joined(part.replicas)}"
                    f"\tIsr: {_joined(part.isr)}\tElr: \tLastKnownElr: "
                )


def _print_topic(topic: Topic, overrides: list[ConfigEntry]) -> None:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    print(
        f"Topic: {topic.name}\tTopicId: {uuid_to_base64(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {replicas}\tConfigs: {','.join(f'{each.name}={each.value}' for each in overrides)}"
    )


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _check(results: dict[str, object]) -> None:
    for result in results.values():
        if isinstance(result, KafkaError):
            raise result
