"""kafka-cluster, kafka-get-offsets and kafka-broker-api-versions; health checks call the last one."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from ottla.client import Client
from ottla.client.connection import Connection
from ottla.client.offsets import bounds, list_offsets
from ottla.kafka_tools.common import connect, finish, new_parser
from ottla.wire.messages import API_NAMES


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    work: dict[str, Callable[[Client, argparse.Namespace], Awaitable[None]]] = {
        "kafka-cluster": _cluster_id,
        "kafka-get-offsets": _offsets,
        "kafka-broker-api-versions": _api_versions,
    }
    if name == "kafka-cluster":
        parser.add_argument("verb", choices=("cluster-id",))
        parser.add_argument("--config", dest="command_config")
    elif name == "kafka-get-offsets":
        parser.add_argument("--topic")
        parser.add_argument("--partitions")
        parser.add_argument("--time", default="-1")

    async def main(arguments: argparse.Namespace) -> int:
        async with connect(arguments) as client:
            await work[name](client, arguments)
        return 0

    return finish(main(parser.parse_args(words)), lambda text: f"Error: {text}")


async def _cluster_id(client: Client, _: argparse.Namespace) -> None:
    print(f"Cluster ID: {(await client.metadata([])).cluster_id}")


async def _offsets(client: Client, arguments: argparse.Namespace) -> None:
    topics = (await client.metadata()).topics
    numbers = None if arguments.partitions is None else {int(text) for text in arguments.partitions.split(",")}
    wanted = sorted(
        (name, number)
        for name, topic in topics.items()
        for number in topic.partitions
        if arguments.topic in (None, name) and (numbers is None or number in numbers)
    )
    place = {"latest": -1, "earliest": -2}.get(arguments.time) or int(arguments.time)
    if place in (-1, -2):
        found = {tp: edges[0 if place == -2 else 1] for tp, edges in (await bounds(client, wanted)).items()}
    else:
        found = {tp: at.offset for tp, at in (await list_offsets(client, dict.fromkeys(wanted, place))).items()}
    for (name, number), offset in found.items():
        print(f"{name}:{number}:{offset if offset >= 0 else ''}")


async def _api_versions(client: Client, _: argparse.Namespace) -> None:
    for node in (await client.metadata([])).nodes.values():
        connection = await client.connection(node.node_id)
        assert isinstance(
            connection, Connection
        )  # a connection over the network: it has already asked for the versions
        rack = "null" if node.rack is None else node.rack
        print(f"{node.host}:{node.port} (id: {node.node_id} rack: {rack} isFenced: false) -> (")
        lines = [
            f"\t{API_NAMES.get(key, 'UNKNOWN')}({key}): {low} to {high} [usable: {high}]"
            for key, (low, high) in sorted(connection.versions.items())
        ]
        print(",\n".join(lines) + "\n)")
