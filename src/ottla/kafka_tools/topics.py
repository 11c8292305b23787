"""kafka-topics."""

from __future__ import annotations

import argparse
import re

from ottla.cli.common import CommandError, parse_settings
from ottla.client import Client
from ottla.client.admin import NewTopic, create_partitions, create_topics, delete_topics, describe_configs
from ottla.client.routing import Topic
from ottla.enums import ConfigResourceType
from ottla.errors import KafkaError, TopicAlreadyExists
from ottla.kafka_tools.common import connect, finish, new_parser
from ottla.wire.primitives import uuid_to_base64

SET_BY_SOMEBODY = (1, 2, 3, 4, 6)
"""Sources of settings other than the default."""


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    verb = parser.add_mutually_exclusive_group(required=True)
    for option in ("list", "create", "describe", "alter", "delete"):
        verb.add_argument(f"--{option}", dest="verb", action="store_const", const=option)
    parser.add_argument("--topic")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--replication-factor", type=int)
    parser.add_argument("--config", action="append", default=[])
    for flag in ("if-exists", "if-not-exists", "exclude-internal"):
        parser.add_argument(f"--{flag}", action="store_true")
    arguments = parser.parse_args(words)
    if arguments.verb in ("create", "alter", "delete") and arguments.topic is None:
        parser.error('Missing required argument "[topic]"')
    if arguments.verb == "alter" and arguments.partitions is None:
        parser.error('Missing required argument "[partitions]"')
    return finish(_run(arguments), lambda text: f"Error while executing topic command : {text}")


async def _run(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        if arguments.verb == "create":
            await _create(client, arguments)
            return 0
        topics = await _named(client, arguments)
        if arguments.verb == "list":
            for name in sorted(topics):
                print(name)
        elif arguments.verb == "describe":
            for name in sorted(topics):
                await _describe(client, topics[name])
        elif arguments.verb == "alter":
            _check(await create_partitions(client, dict.fromkeys(topics, arguments.partitions)))
        elif topics:
            _check(await delete_topics(client, sorted(topics)))
    return 0


async def _create(client: Client, arguments: argparse.Namespace) -> None:
    wanted = NewTopic(
        arguments.topic,
        arguments.partitions or -1,
        arguments.replication_factor or -1,
        parse_settings(arguments.config),
    )
    result = (await create_topics(client, [wanted]))[arguments.topic]
    if isinstance(result, TopicAlreadyExists) and arguments.if_not_exists:
        return
    _check({arguments.topic: result})
    print(f"Created topic {arguments.topic}.")


async def _named(client: Client, arguments: argparse.Namespace) -> dict[str, Topic]:
    """Topics that --topic names: a regular expression, as in Kafka, or all of them without it."""
    known = (await client.metadata()).topics
    if arguments.exclude_internal:
        known = {name: topic for name, topic in known.items() if not topic.is_internal}
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


async def _describe(client: Client, topic: Topic) -> None:
    configs = (await describe_configs(client, ConfigResourceType.TOPIC, [topic.name]))[topic.name]
    if isinstance(configs, KafkaError):
        raise configs
    shown = ",".join(f"{entry.name}={entry.value}" for entry in configs if entry.source in SET_BY_SOMEBODY)
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    print(
        f"Topic: {topic.name}\tTopicId: {uuid_to_base64(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {replicas}\tConfigs: {shown}"
    )
    for number in sorted(topic.partitions):
        part = topic.partitions[number]
        leader = "none" if part.leader < 0 else part.leader
        print(
            f"\tTopic: {topic.name}\tPartition: {number}\tLeader: {leader}\tReplicas: {_joined(part.replicas)}"
            f"\tIsr: {_joined(part.isr)}\tElr: \tLastKnownElr: "
        )


def _joined(numbers: object) -> str:
    return ",".join(map(str, numbers)) if isinstance(numbers, (list, tuple)) else str(numbers)


def _check(results: dict[str, object]) -> None:
    for result in results.values():
        if isinstance(result, KafkaError):
            raise result
