"""`ottla consume --join` and `--share`: read as a member of a group. Two terminals show a rebalance."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from ottla.cli import terminal
from ottla.cli.common import OK, CommandError, UsageError, matching
from ottla.client.connection import ConnectionLost
from ottla.client.fetcher import Fetcher, visible
from ottla.client.group_member import Membership, member_of
from ottla.client.offsets import Committed, bounds, commit, committed
from ottla.client.share_member import (
    ACKNOWLEDGE_TYPES,
    MAX_RECORDS,
    Acknowledgement,
    Acquired,
    ShareMember,
    ShareReader,
)
from ottla.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
from ottla.system import on_signal

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.client.routing import TopicPartition
    from ottla.records.record import Record

_COMMIT_EVERY_S: Final = 5.0
_IDLE_S: Final = 0.1
_LOST_PARTITIONS: Final = (IllegalGeneration, RebalanceInProgress, StaleMemberEpoch, UnknownMemberId)
Printer = Callable[..., bytes]


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("groups")
    group.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="start at the group's offsets and commit what was printed; does not join the group without --join",
    )
    group.add_argument(
        "--join",
        action="store_true",
        help="with --group: join as a member, read the partitions that it gets, follow until interrupted",
    )
    group.add_argument(
        "--protocol",
        choices=("classic", "consumer"),
        default="classic",
        help="with --join: which group protocol (classic)",
    )
    group.add_argument("--instance-id", metavar="NAME", help="with --join: be a static member with this name")
    group.add_argument(
        "--share", metavar="GROUP", help="join a share group, and acknowledge each record that is printed"
    )
    group.add_argument(
        "--acknowledge",
        choices=tuple(ACKNOWLEDGE_TYPES),
        default="accept",
        help="with --share: how printed records are acknowledged (accept)",
    )


def check_options(arguments: argparse.Namespace) -> None:
    if arguments.join and arguments.group is None:
        raise UsageError("--join needs the name of a group: add --group NAME")
    if arguments.join and arguments.share is not None:
        raise UsageError("--join and --share cannot be combined: one process is a member of one group")
    if arguments.instance_id is not None and not arguments.join:
        raise UsageError("--instance-id needs --join")
    if arguments.join or arguments.share is not None:
        for option, value in (("-p", arguments.partitions), ("--until", arguments.until)):
            if value is not None:
                raise UsageError(
                    f"{option} cannot be combined with --join or --share: the group decides which partitions are read"
                )
        if arguments.start is not None and arguments.start.kind not in ("earliest", "latest"):
            raise UsageError(
                "with --join, --from is the position for partitions without a commit: use earliest or latest"
            )


async def consume_as_member(
    client: Client,
    arguments: argparse.Namespace,
    printer: Printer,
    passes: Callable[[Record], bool],
    isolation: int,
) -> int:
    """Read the partitions of this member, until interrupted or --count is reached."""
    task = asyncio.current_task()
    if task is not None:  # on SIGTERM a member leaves its group, as on Ctrl-C
        on_signal(asyncio.get_running_loop(), signal.SIGTERM, task.cancel)
    topics = matching((await client.metadata()).topics, arguments.topics)
    reader = _Printing(printer, passes, arguments.count)
    if arguments.share is not None:
        await _share(client, arguments, topics, reader)
    else:
        await _join(client, arguments, topics, reader, isolation)
    return OK


class _Printing:
    """Prints the records that pass the filters, and counts them."""

    def __init__(self, printer: Printer, passes: Callable[[Record], bool], count: int | None) -> None:
        self._printer = printer
        self._passes = passes
        self.left = count

    @property
    def is_full(self) -> bool:
        return self.left is not None and self.left <= 0

    def show(self, tp: TopicPartition, record: Record) -> None:
        if not self._passes(record):
            return
        line = self._printer(*tp, record.offset, record.timestamp, record.key, record.value, record.headers)
        sys.stdout.buffer.write(line)
        if self.left is not None:
            self.left -= 1


async def _join(
    client: Client, arguments: argparse.Namespace, topics: Sequence[str], printing: _Printing, isolation: int
) -> None:
    member = member_of(client, arguments.group, topics, protocol=arguments.protocol, instance_id=arguments.instance_id)
    from_end = arguments.start is not None and arguments.start.kind == "latest"
    reader = MemberReader(client, arguments.group, member, printing, isolation=isolation, from_end=from_end)
    try:
        while not printing.is_full:
            await reader.rebalance()
            while not printing.is_full and not member.must_join.is_set():
                await reader.read()
    except InconsistentGroupProtocol:
        raise CommandError(
            f"the members of group '{arguments.group}' use an assignor other than range, or the consumer protocol; "
            "try --protocol consumer"
        ) from None
    finally:
        with suppress(KafkaError, ConnectionLost):  # another member reads uncommitted records again
            await reader.close()
        await member.leave()


class Printing(Protocol):
    """The output for the records of a member."""

    @property
    def is_full(self) -> bool: ...

    def show(self, tp: TopicPartition, record: Record) -> None: ...


class MemberReader:
    """Reads the current partitions of the member, and commits the offsets of printed records."""

    def __init__(
        self,
        client: Client,
        group: str,
        member: Membership,
        printing: Printing,
        *,
        isolation: int,
        from_end: bool,
        tell: Callable[[str], None] = terminal.note,
    ) -> None:
        self._client = client
        self._group = group
        self._from_end = from_end
        self._member = member
        self._printing = printing
        self._isolation = isolation
        self._tell = tell
        self._starts: dict[TopicPartition, int] = {}
        self._printed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._fetcher: Fetcher | None = None

    async def rebalance(self) -> None:
        """Commit, give up all partitions, get new ones, and print them."""
        await self.close()
        assigned = sorted(await self._member.join())
        identity = self._member.identity
        names = ", ".join(f"{topic}-{index}" for topic, index in assigned) or "no partitions"
        self._tell(f"{self._group}: generation {identity.generation}, {names} for {identity.member_id}")
        found = await committed(self._client, self._group, assigned) if assigned else {}
        edges = await bounds(self._client, assigned)
        self._starts = {
            tp: max(found[tp].offset, edges[tp][0]) if tp in found else edges[tp][self._from_end] for tp in assigned
        }
        self._fetcher = Fetcher(self._client, self._starts, isolation=self._isolation)

    async def read(self) -> None:
        """One round: print the records that arrived, or wait for a moment."""
        self._member.check()
        assert self._fetcher is not None
        if not self._fetcher.positions:
            await asyncio.sleep(_IDLE_S)
        for fetched in await self._fetcher.poll():
            for batch in visible(fetched.batches, fetched.aborted):
                for record in batch.records():
                    if record.offset >= self._starts[fetched.tp] and not self._printing.is_full:
                        self._printing.show(fetched.tp, record)
                        self._printed[fetched.tp] = record.offset + 1
            if not self._printing.is_full and fetched.batches:  # markers and empty batches count as read
                self._printed[fetched.tp] = fetched.batches[-1].next_offset
        sys.stdout.buffer.flush()
        if time.monotonic() - self._committed_at > _COMMIT_EVERY_S:
            await self._commit()

    async def _commit(self) -> None:
        self._committed_at = time.monotonic()
        offsets = {tp: Committed(at) for tp, at in self._printed.items()}
        self._printed = {}
        try:
            await commit(self._client, self._group, offsets, self._member.identity)
        except _LOST_PARTITIONS as error:
            terminal.warn(
                f"{self._group}: the last {terminal.counted(len(offsets), 'offset')} were not committed: {error}"
            )
            self._member.must_join.set()

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()
        if self._printed:
            await self._commit()


async def _share(client: Client, arguments: argparse.Namespace, topics: Sequence[str], printing: _Printing) -> None:
    member = Membership(ShareMember(client, arguments.share, topics))
    reader = ShareReader(client, arguments.share, member.identity.member_id)
    kind = ACKNOWLEDGE_TYPES[arguments.acknowledge]
    try:
        while not printing.is_full:
            await reader.close()
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(await member.join()))
            terminal.note(f"{arguments.share}: {names or 'no partitions'} for {member.identity.member_id}")
            while not printing.is_full and not member.must_join.is_set():
                member.check()
                if not member.assigned:
                    await asyncio.sleep(_IDLE_S)
                    continue
                limit = MAX_RECORDS if printing.left is None else min(MAX_RECORDS, printing.left)
                for acquired in await reader.poll(member.assigned, limit):
                    await reader.acknowledge(_shown(acquired, printing, kind))
    finally:
        with suppress(KafkaError, ConnectionLost):
            await reader.close()
        await member.leave()


def _shown(acquired: Acquired, printing: _Printing, kind: int) -> list[Acknowledgement]:
    """Print the records that this member acquired, and acknowledge each. Records beyond --count are released."""
    records = {record.offset: record for batch in acquired.batches for record in batch.records()}
    decisions = []
    for first, last, deliveries in acquired.runs:
        if deliveries > 1:
            topic, index = acquired.tp
            terminal.note(f"{topic}-{index}: offsets {first} to {last}, delivery {deliveries}")
        for offset in range(first, last + 1):
            is_read = not printing.is_full
            if is_read and offset in records:
                printing.show(acquired.tp, records[offset])
            decisions.append(
                Acknowledgement(acquired.tp, offset, offset, kind if is_read else ACKNOWLEDGE_TYPES["release"])
            )
    sys.stdout.buffer.flush()
    return decisions
