"""`ottla migrate`: copy topics to another cluster."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import terminal
from ottla.cli.common import (
    INTERRUPTED,
    OK,
    CommandError,
    add_connection,
    add_json,
    connect,
    matching,
    run_async,
    subcommand,
    words_go_to,
)
from ottla.cli.migration import Copier, Copy, State, resume_points, target_offset
from ottla.client.admin import OVERRIDES, NewTopic, alter_configs, create_topics, describe_configs, list_groups
from ottla.client.offsets import Committed, bounds, commit, committed
from ottla.enums import AlterConfigOp, ConfigResourceType, IsolationLevel
from ottla.errors import InvalidConfig, KafkaError
from ottla.system import on_signal

if TYPE_CHECKING:
    from ottla.cli.migration import Copy, State
    from ottla.client import Client
    from ottla.client.routing import Topic

TopicPartition = tuple[str, int]
DEFAULT_STATE: Final = "ottla-migrate.json"
_NEVER: Final = str((1 << 63) - 1)
KINDS_WITH_OFFSETS: Final = ("classic", "consumer", "streams")
"""Offsets of a group without members can be used by the first member of any kind."""

# While records are copied, the target must not remove, restamp or refuse them. The topic's own settings are applied
# last.
WHILE_COPYING: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _NEVER,
    "message.timestamp.after.max.ms": _NEVER,
    "max.message.bytes": str(64 << 20),
}
_CONFIG_POLL_S: Final = 0.1
_CONFIG_POLLS: Final = 100
# These refer to brokers of the source.
_NOT_COPIED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def add_parser(subparsers: Any) -> None:
    """Add `migrate` to the command line."""
    parser = subcommand(
        subparsers,
        "migrate",
        "copy topics, settings and group offsets to another cluster",
        "Copy topics to another Kafka cluster: records with keys, headers, timestamps, partitions and compression, "
        "the topics' settings, and the offsets of groups. Only committed records are copied. After an "
        "interruption, run the same command to continue; run it again later to copy new records. No other program "
        "may write to these topics on the target during the copy.",
        examples=(
            "ottla migrate --to kafka:9092 --dry-run",
            "ottla migrate --to kafka:9092 --replicas 3",
            "ottla migrate 'orders*' --to kafka:9092 --to-config target.properties --groups 'billing*'",
            "ottla migrate --to kafka:9092 --follow                   # until Ctrl-C, then groups and settings",
        ),
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="names or shell patterns (all except internal ones)")
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="brokers of the target cluster")
    parser.add_argument("--to-config", metavar="FILE", help="client properties for the target")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="topics to leave out")
    parser.add_argument("--replicas", type=int, default=-1, metavar="N", help="replicas on the target (its default)")
    parser.add_argument("--groups", action="append", metavar="PATTERN", help="groups whose offsets are copied (all)")
    parser.add_argument("--no-groups", action="store_true", help="do not copy group offsets")
    parser.add_argument("--no-configs", action="store_true", help="create topics with the target's settings")
    parser.add_argument(
        "--state", default=DEFAULT_STATE, metavar="FILE", help=f"progress is kept here ({DEFAULT_STATE})"
    )
    parser.add_argument("--follow", action="store_true", help="keep copying new records until Ctrl-C")
    parser.add_argument("--dry-run", action="store_true", help="show what would be copied")
    add_json(parser)
    add_connection(parser)
    words_go_to(parser, "topics")


def run(arguments: argparse.Namespace) -> int:
    return run_async(_migrate(arguments))


async def _migrate(arguments: argparse.Namespace) -> int:
    """Save the state on Ctrl-C or SIGTERM at any moment, so that the same command can continue later."""
    state = State(Path(arguments.state))
    work = asyncio.create_task(_work(arguments, state))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(loop, number, work.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        terminal.warn(f"interrupted; run the same command again to continue from {state.path}")
        return INTERRUPTED


async def _work(arguments: argparse.Namespace, state: State) -> int:
    async with (
        connect(arguments) as source,
        connect(arguments, bootstrap=arguments.to, config=arguments.to_config) as target,
    ):
        topics = await _choose(arguments, source)
        await _check_clusters(source, target, state)
        configs = {} if arguments.no_configs else await _overrides(source, list(topics))
        known = (await target.metadata()).topics
        await _plan(arguments, source, target, state, topics, known)
        if arguments.dry_run:
            _print_plan(arguments, state, topics, configs, known)
            return OK
        await _create(arguments, target, topics, configs, known)
        await _reopen(arguments, target, state, [name for name in topics if name in known])
        await _copy(arguments, source, target, state, topics)
        groups = {} if arguments.no_groups else await _copy_groups(arguments, source, target, state)
        await _finish_configs(target, topics, configs)
    _print_result(arguments, state, groups)
    return OK


# --- planning --------------------------------------------------------------------------------------------------------


async def _choose(arguments: argparse.Namespace, source: Client) -> dict[str, Topic]:
    known = (await source.metadata()).topics
    names = matching(known, arguments.topics) if arguments.topics else sorted(known)
    names = [name for name in names if not known[name].is_internal]
    names = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in arguments.exclude)]
    if not names:
        raise CommandError("there are no topics to copy")
    return {name: known[name] for name in names}


async def _check_clusters(source: Client, target: Client, state: State) -> None:
    await target.metadata([])
    source_id, target_id = source.known.cluster_id, target.known.cluster_id
    if source_id is not None and source_id == target_id:
        raise CommandError("--to names the same cluster as --bootstrap")
    if state.exists:
        state.load()
        if (state.source_id, state.target_id) != (source_id, target_id):
            raise CommandError(f"{state.path} belongs to another migration; choose another file with --state")
    state.source_id, state.target_id = source_id, target_id


async def _overrides(source: Client, names: list[str]) -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {}
    for name, entries in (await describe_configs(source, ConfigResourceType.TOPIC, names)).items():
        if isinstance(entries, KafkaError):
            raise entries
        found[name] = {e.name: e.value for e in entries if e.source in OVERRIDES and e.name not in _NOT_COPIED}
    return found


async def _plan(
    arguments: argparse.Namespace,
    source: Client,
    target: Client,
    state: State,
    topics: Mapping[str, Topic],
    known: Mapping[str, Topic],
) -> None:
    """Positions and ends of all partitions; refuses a target with other records."""
    partitions = [(name, index) for name, topic in topics.items() for index in topic.partitions]
    edges = await bounds(source, partitions, IsolationLevel.READ_COMMITTED)
    fresh = []
    for tp in partitions:
        copy = state.copies.get(tp)
        if copy is None:
            copy = state.copies[tp] = Copy(tp, edges[tp][0])
            fresh.append(tp)
        copy.end = edges[tp][1]
    for name, topic in topics.items():
        there = known.get(name)
        if there is not None and len(there.partitions) < len(topic.partitions):
            count = len(topic.partitions)
            raise CommandError(
                f"topic '{name}' has {len(there.partitions)} partitions on the target and {count} here; "
                f"add some there: ottla topics alter {name} -p {count} -b {arguments.to}"
            )
    existing = {tp: state.copies[tp] for tp in partitions if tp[0] in known and tp[1] in known[tp[0]].partitions}
    missing = [tp for tp in partitions if tp not in existing and state.copies[tp].target_next]
    if missing:
        raise CommandError(f"topic '{missing[0][0]}' no longer exists on the target; delete {state.path} to start over")
    await resume_points(target, existing)
    for tp in fresh:
        if tp in existing and existing[tp].skip:
            raise CommandError(
                f"topic '{tp[0]}' has records on the target that this migration did not write; delete it there, or "
                f"leave it out with --exclude {tp[0]}"
            )


def _print_plan(
    arguments: argparse.Namespace,
    state: State,
    topics: Mapping[str, Topic],
    configs: Mapping[str, Mapping[str, str | None]],
    known: Mapping[str, Topic],
) -> None:
    rows = []
    for name, topic in topics.items():
        copies = [state.copies[name, index] for index in topic.partitions]
        left = sum(max(copy.end - copy.next_offset, 0) for copy in copies)
        rows.append(
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "to_copy": left,
                "copied": sum(copy.target_next + copy.skip for copy in copies),
                "exists": name in known,
                "configs": dict(configs.get(name, {})),
            }
        )
    if arguments.json:
        terminal.print_json({"dry_run": True, "topics": rows})
        return
    cells = [(r["topic"], r["partitions"], r["to_copy"], r["copied"], "yes" if r["exists"] else "no") for r in rows]
    head = ("TOPIC", "PARTITIONS", "TO COPY", "COPIED", "ON TARGET")
    print(terminal.table(head, cells, right=("PARTITIONS", "TO COPY", "COPIED")))
    terminal.note("this was a dry run: nothing was copied")


# --- doing -----------------------------------------------------------------------------------------------------------


async def _create(
    arguments: argparse.Namespace,
    target: Client,
    topics: Mapping[str, Topic],
    configs: Mapping[str, Mapping[str, str | None]],
    known: Mapping[str, Topic],
) -> None:
    for name, topic in topics.items():
        if name in known:
            continue
        wanted: dict[str, str | None] = {**configs.get(name, {}), **WHILE_COPYING}
        result: Any = None
        # An older target may not know one of the temporary settings; they are optional.
        for settings in (wanted, dict(configs.get(name, {}))):
            new = NewTopic(name, len(topic.partitions), arguments.replicas, settings)
            result = (await create_topics(target, [new]))[name]
            if not isinstance(result, InvalidConfig):
                break
        if isinstance(result, KafkaError):
            raise CommandError(f"topic '{name}' cannot be created on the target: {result.message} ({result.name})")


async def _reopen(arguments: argparse.Namespace, target: Client, state: State, names: list[str]) -> None:
    """Topics of an earlier run already have their own settings: give them the temporary ones again."""
    pending = {copy.tp[0] for copy in state.copies.values() if arguments.follow or copy.next_offset < copy.end}
    waiting = [name for name in names if name in pending]
    asked: set[str] = set()
    for _ in range(_CONFIG_POLLS):
        if not waiting:
            return
        found = await describe_configs(target, ConfigResourceType.TOPIC, waiting)
        for name in list(waiting):
            entries = found[name]
            # Only settings that the target knows: an older one lacks some of them.
            now = {e.name: e.value for e in entries} if isinstance(entries, list) else {}
            wrong = [
                (key, AlterConfigOp.SET, value) for key, value in WHILE_COPYING.items() if now.get(key, value) != value
            ]
            if not wrong:
                waiting.remove(name)
            elif name not in asked:
                asked.add(name)
                await alter_configs(target, ConfigResourceType.TOPIC, name, wrong)
        # Apache Kafka acknowledges a change a moment before it applies it.
        await asyncio.sleep(_CONFIG_POLL_S)
    raise CommandError(f"the settings of topic '{waiting[0]}' on the target do not change; try again")


async def _copy(
    arguments: argparse.Namespace, source: Client, target: Client, state: State, topics: Mapping[str, Topic]
) -> None:
    copies = [copy for copy in state.copies.values() if copy.tp[0] in topics]
    total = sum(max(copy.end - copy.next_offset, 0) for copy in copies)
    state.save()
    with terminal.Progress("migrate", total, unit="records", quiet=arguments.json) as progress:
        copier = Copier(
            source,
            target,
            copies,
            advance=progress.advance,
            save=state.save,
            on_gap=_warn_gap,
            follow=arguments.follow,
        )
        try:
            await copier.run()
        except asyncio.CancelledError:
            if not arguments.follow:
                raise
            # Ctrl-C ends --follow; then groups and settings are copied.
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()


def _warn_gap(tp: TopicPartition, position: int, start: int) -> None:
    terminal.warn(f"{tp[0]}-{tp[1]}: records {position} to {start - 1} were removed before they were copied")


async def _copy_groups(
    arguments: argparse.Namespace, source: Client, target: Client, state: State
) -> dict[str, dict[TopicPartition, int]]:
    """Copy the offsets of the groups, converted to offsets of the target."""
    moved: dict[str, dict[TopicPartition, int]] = {}
    patterns = arguments.groups or ["*"]
    for group in await list_groups(source):
        if not any(fnmatchcase(group.group, pattern) for pattern in patterns):
            continue
        kind = group.kind.lower()
        if kind not in KINDS_WITH_OFFSETS or (kind != "streams" and group.protocol not in ("consumer", "")):
            terminal.warn(f"group '{group.group}' is a {kind} group; its offsets are not copied")
            continue
        offsets: dict[TopicPartition, Committed] = {}
        for tp, found in (await committed(source, group.group)).items():
            copy: Copy | None = state.copies.get(tp)
            if copy is not None:
                offsets[tp] = Committed(await target_offset(source, copy, found.offset), -1, found.metadata)
        if offsets:
            await commit(target, group.group, offsets)
            moved[group.group] = {tp: found.offset for tp, found in offsets.items()}
    return moved


async def _finish_configs(
    target: Client, topics: Mapping[str, Topic], configs: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Give topics their own settings, and remove the temporary ones."""
    there = await describe_configs(target, ConfigResourceType.TOPIC, list(topics))
    for name in topics:
        entries = there[name]
        now = {e.name: e.value for e in entries if e.source in OVERRIDES} if isinstance(entries, list) else {}
        wanted = configs.get(name, {})
        changes: list[tuple[str, int, str | None]] = [
            (key, AlterConfigOp.SET, value) for key, value in wanted.items() if now.get(key) != value
        ]
        changes += [(key, AlterConfigOp.DELETE, None) for key in WHILE_COPYING if key in now and key not in wanted]
        if changes:
            await alter_configs(target, ConfigResourceType.TOPIC, name, changes)


def _print_result(
    arguments: argparse.Namespace, state: State, groups: Mapping[str, Mapping[TopicPartition, int]]
) -> None:
    by_topic: dict[str, list[Copy]] = {}
    for copy in state.copies.values():
        by_topic.setdefault(copy.tp[0], []).append(copy)
    if arguments.json:
        terminal.print_json(
            {
                "topics": [
                    {"topic": name, "partitions": len(copies), "records": sum(copy.target_next for copy in copies)}
                    for name, copies in by_topic.items()
                ],
                "groups": [
                    {
                        "group": group,
                        "offsets": [{"topic": t, "partition": p, "offset": at} for (t, p), at in offsets.items()],
                    }
                    for group, offsets in groups.items()
                ],
            }
        )
        return
    rows = [(name, len(copies), sum(copy.target_next for copy in copies)) for name, copies in by_topic.items()]
    print(terminal.table(("TOPIC", "PARTITIONS", "RECORDS"), rows, right=("PARTITIONS", "RECORDS")))
    if groups:
        print(f"offsets of {terminal.counted(len(groups), 'group')}: {', '.join(groups)}")
