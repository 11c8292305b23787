"""`ottla topics`: create, list, describe, alter, delete."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli import terminal
from ottla.cli.common import (
    FAILED,
    OK,
    CommandError,
    UsageError,
    add_connection,
    add_json,
    argument,
    connect,
    is_internal,
    matching,
    parse_numbers,
    parse_settings,
    report_results,
    run_async,
    subcommand,
    verbs,
    words_go_to,
)
from ottla.client.admin import (
    OVERRIDES,
    NewTopic,
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    partition_sizes,
)
from ottla.client.offsets import bounds
from ottla.client.routing import named
from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition

if TYPE_CHECKING:
    from ottla.client.routing import Topic


def add_parser(subparsers: Any) -> None:
    """Add `topics` to the command line."""
    parser = subcommand(
        subparsers,
        "topics",
        "create, list, describe, alter and delete topics",
        examples=("ottla topics create orders -p 6", "ottla topics list --sizes", "ottla topics describe 'ord*'"),
    )
    kinds = verbs(parser)
    _add_create(kinds)
    _add_list(kinds)
    describe = subcommand(
        kinds,
        "describe",
        "show partitions, replicas, offsets and settings",
        examples=("ottla topics describe orders", "ottla topics describe --unhealthy"),
    )
    describe.add_argument("topics", nargs="*", metavar="TOPIC", help="names or shell patterns (all)")
    describe.add_argument("--unhealthy", action="store_true", help="only partitions that lack a leader or a replica")
    add_json(describe)
    add_connection(describe)
    words_go_to(describe, "topics")
    _add_alter(kinds)
    delete = subcommand(
        kinds,
        "delete",
        "delete topics with all their records",
        examples=("ottla topics delete orders", "ottla topics delete 'test-*' --yes"),
    )
    delete.add_argument("topics", nargs="+", metavar="TOPIC", help="names or shell patterns")
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    delete.add_argument("--internal", action="store_true", help="let patterns match the cluster's own topics too")
    delete.add_argument("--if-exists", action="store_true", help="ignore topics that do not exist")
    add_json(delete)
    add_connection(delete)
    words_go_to(delete, "topics")


def _add_create(kinds: Any) -> None:
    create = subcommand(
        kinds,
        "create",
        "create topics",
        examples=(
            "ottla topics create orders",
            "ottla topics create orders payments -p 6 -r 3",
            "ottla topics create users -c cleanup.policy=compact -c retention.ms=-1",
            "ottla topics create placed --assign 0:1,2 --assign 1:2,3",
        ),
    )
    create.add_argument("topics", nargs="+", metavar="TOPIC")
    create.add_argument(
        "-p", "--partitions", type=int, default=-1, metavar="N", help="number of partitions (the broker's default)"
    )
    create.add_argument("-r", "--replicas", type=int, default=-1, metavar="N", help="replicas (the broker's default)")
    create.add_argument(
        "-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the topic; repeatable"
    )
    create.add_argument(
        "--assign",
        action="append",
        default=[],
        metavar="P:BROKER,…",
        help="the brokers of a partition; repeat it for each partition",
    )
    create.add_argument("--if-not-exists", action="store_true", help="do nothing if the topic exists")
    create.add_argument("--dry-run", action="store_true", help="only let the broker check the request")
    add_json(create)
    add_connection(create)
    words_go_to(create, "topics")


def _add_list(kinds: Any) -> None:
    listing = subcommand(
        kinds,
        "list",
        "list topics",
        examples=("ottla topics list", "ottla topics list 'ord*' --sizes", "ottla topics list --json"),
    )
    listing.add_argument("patterns", nargs="*", metavar="PATTERN", help="names or shell patterns (all)")
    listing.add_argument("--internal", action="store_true", help="show the cluster's own topics as well")
    listing.add_argument("--sizes", action="store_true", help="show record counts and bytes (asks all brokers)")
    listing.add_argument("-q", "--names", action="store_true", help="names only, one per line")
    add_json(listing)
    add_connection(listing)
    words_go_to(listing, "patterns")


def _add_alter(kinds: Any) -> None:
    alter = subcommand(
        kinds,
        "alter",
        "add partitions, change settings, delete old records",
        examples=(
            "ottla topics alter orders --partitions 12",
            "ottla topics alter orders -c retention.ms=3600000 -d segment.bytes",
            "ottla topics alter orders --delete-records-before 0:1000 --delete-records-before 1:end",
        ),
    )
    alter.add_argument("topics", nargs="+", metavar="TOPIC", help="names or shell patterns")
    alter.add_argument("-p", "--partitions", type=int, metavar="N", help="the new, larger number of partitions")
    alter.add_argument("-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="set; repeatable")
    alter.add_argument(
        "-d", "--delete-config", action="append", default=[], metavar="KEY", help="reset a setting to its default"
    )
    alter.add_argument(
        "--delete-records-before",
        action="append",
        default=[],
        type=argument(_record_bound),
        metavar="P:OFFSET",
        help="remove records below an offset, or all with P:end; repeatable",
    )
    add_json(alter)
    add_connection(alter)
    words_go_to(alter, "topics")


def _record_bound(text: str) -> tuple[int, int]:
    partition, colon, offset = text.partition(":")
    if not colon or not partition.isdigit() or not (offset == "end" or offset.isdigit()):
        raise ValueError(f"'{text}' is not PARTITION:OFFSET, such as 0:1000 or 0:end")
    return int(partition), -1 if offset == "end" else int(offset)


def run(arguments: argparse.Namespace) -> int:
    verb = {"create": _create, "list": _list, "describe": _describe, "alter": _alter, "delete": _delete}
    return run_async(verb[arguments.verb](arguments))


async def _create(arguments: argparse.Namespace) -> int:
    assignment = {}
    for text in arguments.assign:
        partition, _, brokers = text.partition(":")
        try:
            assignment[int(partition)] = parse_numbers(brokers)
        except ValueError:
            raise UsageError(f"--assign takes PARTITION:BROKER,BROKER, not '{text}'") from None
    configs = parse_settings(arguments.config)
    wanted = [
        NewTopic(name, arguments.partitions, arguments.replicas, configs, assignment) for name in arguments.topics
    ]
    async with connect(arguments) as client:
        results = await create_topics(client, wanted, validate_only=arguments.dry_run)
    if arguments.if_not_exists:
        results = {name: None if isinstance(r, TopicAlreadyExists) else r for name, r in results.items()}
    word = "would create" if arguments.dry_run else "created"

    def done(name: str, made: Any) -> str:
        if made is None:
            return f"{name} exists"
        partitions = terminal.counted(made.partitions, "partition")
        return f"{word} {name}: {partitions}, {terminal.counted(made.replication_factor, 'replica')}"

    return report_results(results, done, arguments.json, dry_run=arguments.dry_run)


async def _list(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        known = (await client.metadata()).topics
        names = matching(known, arguments.patterns) if arguments.patterns else sorted(known)
        if not arguments.internal and not arguments.patterns:
            names = [name for name in names if not known[name].is_internal]
        chosen = [known[name] for name in names]
        records: dict[str, int] = {}
        sizes: dict[str, int] = {}
        if arguments.sizes:
            edges = await bounds(client, [(t.name, p) for t in chosen for p in t.partitions])
            for (name, _), (start, end) in edges.items():
                records[name] = records.get(name, 0) + end - start
            for (name, _), size in (await partition_sizes(client)).items():
                sizes[name] = sizes.get(name, 0) + size
    if arguments.json:
        terminal.print_json([{**_summary(t), **_sized(t.name, arguments, records, sizes)} for t in chosen])
    elif arguments.names:
        print(*names, sep="\n", end="\n" if names else "")
    elif not chosen:
        terminal.note("no topics; create one with: ottla topics create NAME")
    else:
        head = ["TOPIC", "PARTITIONS", "REPLICAS"] + (["RECORDS", "SIZE"] if arguments.sizes else [])
        rows: list[list[object]] = []
        for t in chosen:
            row: list[object] = [t.name, len(t.partitions), _replicas(t)]
            if arguments.sizes:
                known_size = sizes.get(t.name)
                row += [records.get(t.name, 0), None if known_size is None else terminal.human_bytes(known_size)]
            rows.append(row)
        print(terminal.table(head, rows, right=("PARTITIONS", "REPLICAS", "RECORDS", "SIZE")))
    return OK


def _sized(name: str, arguments: argparse.Namespace, records: dict[str, int], sizes: dict[str, int]) -> dict[str, Any]:
    return {"records": records.get(name, 0), "bytes": sizes.get(name)} if arguments.sizes else {}


def _replicas(topic: Topic) -> int:
    return max((len(p.replicas) for p in topic.partitions.values()), default=0)


def _summary(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": named(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
    }


async def _describe(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        known = (await client.metadata()).topics
        names = (
            matching(known, arguments.topics) if arguments.topics else [n for n in known if not known[n].is_internal]
        )
        chosen = [known[name] for name in names]
        led = [(t.name, p.number) for t in chosen for p in t.partitions.values() if p.leader >= 0]
        edges = await bounds(client, led)
        try:
            configs = await describe_configs(client, ConfigResourceType.TOPIC, names) if names else {}
        except KafkaError:
            configs = {}  # a broker that does not serve DescribeConfigs
    described = []
    for topic in chosen:
        entries = configs.get(topic.name)
        overrides = {e.name: e.value for e in entries if e.source in OVERRIDES} if isinstance(entries, list) else {}
        described.append({**_summary(topic), "configs": overrides, "partitions": _partitions(topic, edges)})
    if arguments.unhealthy:
        for entry in described:
            entry["partitions"] = [p for p in entry["partitions"] if not p["healthy"]]
        described = [entry for entry in described if entry["partitions"]]
    if arguments.json:
        terminal.print_json(described)
    else:
        print("\n\n".join(_described(entry) for entry in described), end="\n" if described else "")
        if arguments.unhealthy and not described:
            terminal.note("all partitions have their leaders and replicas")
    return FAILED if arguments.unhealthy and described else OK


def _partitions(topic: Topic, edges: dict[tuple[str, int], tuple[int, int]]) -> list[dict[str, Any]]:
    found = []
    for p in topic.partitions.values():
        start, end = edges.get((topic.name, p.number), (None, None))
        found.append(
            {
                "partition": p.number,
                "leader": p.leader if p.leader >= 0 else None,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "offline": list(p.offline),
                "start_offset": start,
                "end_offset": end,
                "healthy": p.leader >= 0 and len(p.isr) >= len(p.replicas),
            }
        )
    return found


def _described(entry: dict[str, Any]) -> str:
    title = terminal.paint(entry["name"], "bold") + (f"  id {entry['id']}" if entry["id"] else "")
    lines = [title]
    if entry["configs"]:
        lines.append("  " + "  ".join(f"{key}={value}" for key, value in entry["configs"].items()))
    rows = [
        (
            p["partition"],
            terminal.paint("none", "red") if p["leader"] is None else p["leader"],
            _ids(p["replicas"]),
            _ids(p["isr"]) if p["healthy"] else terminal.paint(_ids(p["isr"]) or "none", "red"),
            p["start_offset"],
            p["end_offset"],
        )
        for p in entry["partitions"]
    ]
    head = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END")
    lines.append(terminal.table(head, rows, right=("PARTITION", "LEADER", "START", "END")))
    return "\n".join(lines)


def _ids(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


async def _alter(arguments: argparse.Namespace) -> int:
    settings = parse_settings(arguments.config)
    changes: list[tuple[str, int, str | None]] = [(key, AlterConfigOp.SET, value) for key, value in settings.items()]
    changes += [(key, AlterConfigOp.DELETE, None) for key in arguments.delete_config]
    if arguments.partitions is None and not changes and not arguments.delete_records_before:
        raise UsageError("nothing to alter: give --partitions, --config, --delete-config or --delete-records-before")
    results: dict[str, Any] = {}
    async with connect(arguments) as client:
        names = matching((await client.metadata()).topics, arguments.topics)
        for name in names:
            try:
                if changes:
                    await alter_configs(client, ConfigResourceType.TOPIC, name, changes)
                if arguments.partitions is not None:
                    result = (await create_partitions(client, {name: arguments.partitions}))[name]
                    if result is not None:
                        raise result
                if arguments.delete_records_before:
                    await delete_records(client, {(name, p): offset for p, offset in arguments.delete_records_before})
                results[name] = None
            except KafkaError as error:
                results[name] = error
    return report_results(results, lambda name, _: f"altered {name}", arguments.json)


async def _delete(arguments: argparse.Namespace) -> int:
    async with connect(arguments) as client:
        known = (await client.metadata()).topics
        plain = [name for name in arguments.topics if name in known or not any(c in name for c in "*?[")]
        patterns = [name for name in arguments.topics if name not in plain]
        # A pattern such as * means the user's topics: without __consumer_offsets all groups would lose their offsets.
        open_to_patterns = [name for name in known if arguments.internal or not is_internal(name)]
        names = list(dict.fromkeys([*plain, *(matching(open_to_patterns, patterns) if patterns else [])]))
        if not arguments.yes and (patterns or sys.stdin.isatty()):
            terminal.note(f"this deletes {', '.join(names)}")
            if not terminal.confirm(f"delete {terminal.counted(len(names), 'topic')} with all records?"):
                raise CommandError("nothing was deleted; use --yes to delete without confirmation")
        results = await delete_topics(client, names)
    if arguments.if_exists:
        results = {name: None if isinstance(r, UnknownTopicOrPartition) else r for name, r in results.items()}
    return report_results(results, lambda name, _: f"deleted {name}", arguments.json)
