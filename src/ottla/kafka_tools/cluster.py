"""kafka-cluster, kafka-get-offsets and kafka-broker-api-versions; health checks call the last one."""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable

from ottla.cli.common import CommandError
from ottla.client import Client
from ottla.client.connection import Connection
from ottla.client.offsets import list_offsets
from ottla.enums import OffsetTimestamp
from ottla.errors import error_for
from ottla.kafka_tools.common import connect, finish, new_parser
from ottla.wire.messages import API_NAMES, UnregisterBrokerRequest

PLACES = {
    "latest": OffsetTimestamp.LATEST,
    "earliest": OffsetTimestamp.EARLIEST,
    "max-timestamp": OffsetTimestamp.MAX_TIMESTAMP,
    "earliest-local": OffsetTimestamp.EARLIEST_LOCAL,
    "latest-tiered": OffsetTimestamp.LATEST_TIERED,
    "earliest-pending-upload": OffsetTimestamp.EARLIEST_PENDING_UPLOAD,
}


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    work: dict[str, Callable[[Client, argparse.Namespace], Awaitable[None]]] = {
        "kafka-cluster": _cluster,
        "kafka-get-offsets": _offsets,
        "kafka-broker-api-versions": _api_versions,
    }
    if name == "kafka-cluster":
        parser.add_argument("verb", choices=("cluster-id", "list-endpoints", "unregister"))
        parser.add_argument("--config", "-c", dest="command_config")
        parser.add_argument("--id", "-i", type=int)
        parser.add_argument("--include-fenced-brokers", action="store_true")
    elif name == "kafka-get-offsets":
        parser.add_argument("--topic")
        parser.add_argument("--partitions")
        parser.add_argument("--topic-partitions")
        parser.add_argument("--exclude-internal-topics", action="store_true")
        parser.add_argument("--time", default="latest")
    arguments = parser.parse_args(words)
    if name == "kafka-cluster" and arguments.verb == "unregister" and arguments.id is None:
        parser.error("argument --id/-i is required")

    async def main() -> int:
        async with connect(arguments) as client:
            await work[name](client, arguments)
        return 0

    prefix = "Error occurred: " if name == "kafka-get-offsets" else "Error: "
    return finish(main(), lambda text: prefix + text)


async def _cluster(client: Client, arguments: argparse.Namespace) -> None:
    if arguments.verb == "cluster-id":
        print(f"Cluster ID: {(await client.metadata([])).cluster_id}")
        return
    if arguments.verb == "unregister":
        response = await client.ask_controller(UnregisterBrokerRequest(broker_id=arguments.id))
        if response.error_code:
            raise error_for(response.error_code, response.error_message or None)
        print(f"Broker {arguments.id} is no longer registered.")
        return
    nodes = (await client.metadata([])).nodes.values()
    width = max(len("HOST"), *(len(node.host) for node in nodes))
    print(f"{'ID':<10} {'HOST':<{width}} {'PORT':<10} {'RACK':<10} {'STATE':<10} {'ENDPOINT_TYPE':<15}".rstrip())
    for node in nodes:
        rack = "null" if node.rack is None else node.rack
        print(f"{node.node_id:<10} {node.host:<{width}} {node.port:<10} {rack:<10} {'unfenced':<10} broker")


async def _offsets(client: Client, arguments: argparse.Namespace) -> None:
    if arguments.topic_partitions is not None and (arguments.topic or arguments.partitions):
        raise CommandError("--topic-partitions cannot be used with --topic or --partitions")
    place = _place(arguments.time)
    passes = _filter(arguments)
    wanted = sorted(
        (name, number)
        for name, topic in (await client.metadata()).topics.items()
        for number in topic.partitions
        if passes(name, number) and not (arguments.exclude_internal_topics and topic.is_internal)
    )
    if not wanted:
        raise CommandError("Could not match any topic-partitions with the specified filters")
    for (name, number), at in sorted((await list_offsets(client, dict.fromkeys(wanted, place))).items()):
        if at.offset >= 0:
            print(f"{name}:{number}:{at.offset}")


def _place(text: str) -> int:
    if text in PLACES:
        return PLACES[text]
    try:
        return int(text)
    except ValueError:
        names = " / ".join(f"{int(number)} or {name}" for name, number in PLACES.items())
        raise CommandError(
            f"Malformed time argument {text}. Please use {names}, or a specified long format timestamp"
        ) from None


def _filter(arguments: argparse.Namespace) -> Callable[[str, int], bool]:
    """Which partitions: --topic is a regular expression; --topic-partitions has items like `orders.*:0-3`."""
    try:
        if arguments.topic_partitions is None:
            topic = re.compile(arguments.topic or ".*")
            numbers = None if arguments.partitions is None else {int(each) for each in arguments.partitions.split(",")}
            return lambda name, number: topic.fullmatch(name) is not None and (numbers is None or number in numbers)
        rules = [_rule(item) for item in arguments.topic_partitions.split(",")]
    except re.error as error:
        raise CommandError(f"invalid regular expression: {error}") from None
    except ValueError:
        raise CommandError(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{arguments.partitions}"
        ) from None
    return lambda name, number: any(topic.fullmatch(name) and number in numbers for topic, numbers in rules)


def _rule(item: str) -> tuple[re.Pattern[str], range]:
    """`topic`, `topic:3`, `topic:1-4` (without the 4), `topic:1-`, `topic:-4`; without a topic, each one."""
    topic, _, numbers = item.partition(":")
    found = re.fullmatch(r"(\d*)(-?)(\d*)", numbers)
    if found is None:
        raise CommandError(f"Invalid rule: {item}")
    first = int(found[1] or 0)
    if found[1] and not found[2]:
        return re.compile(topic or ".*"), range(first, first + 1)
    return re.compile(topic or ".*"), range(first, int(found[3]) if found[3] else 1 << 31)


async def _api_versions(client: Client, _: argparse.Namespace) -> None:
    for node in (await client.metadata([])).nodes.values():
        connection = await client.connection(node.node_id)
        assert isinstance(
            connection, Connection
        )  # a connection over the network: it has already asked for the versions
        rack = "null" if node.rack is None else node.rack
        print(f"{node.host}:{node.port} (id: {node.node_id} rack: {rack} isFenced: false) -> (")
        lines = [
            f"\t{API_NAMES.get(key, 'UNKNOWN')}({key}): {low if low == high else f'{low} to {high}'} [usable: {high}]"
            for key, (low, high) in sorted(connection.versions.items())
        ]
        print(",\n".join(lines) + "\n)")
