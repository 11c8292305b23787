"""`ottla brokers`: the brokers of a cluster, with their leaders and replicas."""

from __future__ import annotations

import argparse
from typing import Any

from ottla.cli import terminal
from ottla.cli.common import OK, add_connection, add_json, connect, run_async, subcommand
from ottla.client.admin import partition_sizes, quorum_leader


def add_parser(subparsers: Any) -> None:
    """Add `brokers` to the command line."""
    parser = subcommand(
        subparsers,
        "brokers",
        "list the brokers with their addresses, leaders and replicas",
        examples=("ottla brokers", "ottla brokers --json", "ottla brokers -b kafka.example:9092"),
    )
    add_json(parser)
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    return run_async(_brokers(arguments))


async def _brokers(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        known = await client.metadata()
        sizes = await partition_sizes(client)
        controller = await quorum_leader(client)
        partitions = {(t.name, p.number): p for t in known.topics.values() for p in t.partitions.values()}
        rows: list[dict[str, Any]] = [
            {
                "id": node.node_id,
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "controller": node.node_id == controller,
                "leaders": sum(p.leader == node.node_id for p in partitions.values()),
                "replicas": sum(node.node_id in p.replicas for p in partitions.values()),
                "out_of_sync": sum(
                    node.node_id in p.replicas and node.node_id not in p.isr for p in partitions.values()
                ),
                "bytes_led": sum(size for tp, size in sizes.items() if partitions[tp].leader == node.node_id),
            }
            for node in sorted(known.nodes.values())
        ]
    if arguments.json:
        terminal.print_json({"cluster_id": known.cluster_id, "controller": controller, "brokers": rows})
        return OK
    cells = [
        (
            row["id"],
            row["address"],
            row["rack"],
            "yes" if row["controller"] else None,
            row["leaders"],
            row["replicas"],
            terminal.paint(row["out_of_sync"], "yellow") if row["out_of_sync"] else 0,
            terminal.human_bytes(row["bytes_led"]),
        )
        for row in rows
    ]
    head = ("BROKER", "ADDRESS", "RACK", "CONTROLLER", "LEADERS", "REPLICAS", "OUT OF SYNC", "SIZE")
    print(f"cluster {known.cluster_id}, controller {'unknown' if controller is None else controller}")
    print(terminal.table(head, cells, right=("BROKER", "LEADERS", "REPLICAS", "OUT OF SYNC", "SIZE")))
    return OK
