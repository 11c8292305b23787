"""Offset commits that differ from one before in nothing but the offsets.

A consumer commits the same partitions again and again. What goes into the log for it is then the same batch each time,
but for the offsets and the time of day. A `CommitPlan` keeps that batch as a pattern to be filled in. Whether the group
takes the commit is asked every time, as with any other; where it does not, or anything else has changed, nothing is
done here, and the ordinary way finds out what to answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from ottla.coordinator.groups.offsets.offsets import FIRST_TOPIC_ID_VERSION
from ottla.coordinator.groups.records import CommittedOffset, OffsetRecord
from ottla.coordinator.runtime.batches import encode_batch
from ottla.errors import KafkaError
from ottla.records.batch import BASE_TIMESTAMP_OFFSET, HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TIMESTAMPS, seal
from ottla.wire.request_template import find_numbers, stand_ins

if TYPE_CHECKING:
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.coordinator.groups.group_shard import GroupShard
    from ottla.coordinator.runtime.interfaces import Client
    from ottla.wire.messages import OffsetCommitRequest

PARTITIONS_MAX = 64
"""In one commit; patterns of larger ones would take more memory than they save time."""

_NOT_GIVEN = -1
"""A retention or a timestamp that is left to the broker, as it is from v5 on."""
_INT64 = Struct(">q")


class CommitPlan:
    """What every commit of a client to the same partitions has in common."""

    __slots__ = (
        "_client",
        "_coordinator",
        "_metadata_version",
        "_pattern",
        "_places",
        "_records",
        "_request",
        "_shard",
    )

    def __init__(
        self, coordinator: GroupCoordinator, shard: GroupShard, request: OffsetCommitRequest, client: Client
    ) -> None:
        self._coordinator = coordinator
        self._shard = shard
        self._request = request
        self._client = client
        self._metadata_version = shard.cluster.version
        self._records: list[tuple[str, int, int, str, bytes]] = []
        """For each: topic and partition; leader epoch, metadata and topic id of what is committed."""
        self._pattern = b""
        self._places: list[tuple[int, int]] = []
        """Where offset and time stand in the pattern, record by record."""

    @classmethod
    def of(cls, coordinator: GroupCoordinator, request: OffsetCommitRequest, client: Client) -> CommitPlan | None:
        """The plan of a commit that was just answered without an error; None if it cannot be repeated from a plan."""
        if request.retention_time_ms != _NOT_GIVEN:
            return None
        try:
            shard = coordinator.shard_for(request.group_id)
        except KafkaError:
            return None
        if shard.codec or not shard.commits_at_once:
            return None
        plan = cls(coordinator, shard, request, client)
        return plan if plan._knows_all() and plan._lay_out() else None

    def _knows_all(self) -> bool:
        cluster = self._shard.cluster
        by_id = self._client.version >= FIRST_TOPIC_ID_VERSION
        for topic in self._request.topics:
            found = cluster.topic_by_id(topic.topic_id) if by_id else cluster.topic(topic.name)
            if found is None:
                return False
            for partition in topic.partitions:
                if partition.commit_timestamp != _NOT_GIVEN:
                    return False
                self._records.append(
                    (
                        found.name,
                        partition.partition_index,
                        partition.committed_leader_epoch,
                        partition.committed_metadata or "",
                        found.topic_id,
                    )
                )
        return 0 < len(self._records) <= PARTITIONS_MAX

    def _lay_out(self) -> bool:
        """Find where the offsets and the times stand in the batch; whether they are all there."""
        time, *offsets = stand_ins(1 + len(self._records))
        pattern = self._encoded(offsets, time)
        places = find_numbers(pattern, [number for offset in offsets for number in (offset, time)], HEADER_SIZE)
        if places is None:
            return False
        self._places = list(zip(places[::2], places[1::2], strict=True))
        self._pattern = bytes(pattern)
        return True

    def _encoded(self, offsets: Sequence[int], now_ms: int) -> bytearray:
        records = self._records_of(offsets, now_ms)
        return encode_batch(records, now_ms, 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, self._shard.FIRST_SEQUENCE)

    def _records_of(self, offsets: Sequence[int], now_ms: int) -> list[OffsetRecord]:
        group_id = self._request.group_id
        return [
            OffsetRecord(group_id, name, index, CommittedOffset(offset, epoch, metadata, now_ms, topic_id=topic_id))
            for (name, index, epoch, metadata, topic_id), offset in zip(self._records, offsets, strict=True)
        ]

    def _filled_in(self, offsets: Sequence[int], now_ms: int) -> bytearray:
        batch = bytearray(self._pattern)
        TIMESTAMPS.pack_into(batch, BASE_TIMESTAMP_OFFSET, now_ms, now_ms)
        for (offset_at, time_at), offset in zip(self._places, offsets, strict=True):
            _INT64.pack_into(batch, offset_at, offset)
            _INT64.pack_into(batch, time_at, now_ms)
        seal(batch)
        return batch

    def commit(self, commits: Sequence[Sequence[int]]) -> int:
        """Commit the offsets of one or several requests, each an offset for every partition of the plan.

        Returns how many of them, from the first on, are committed; the others have to take the ordinary way.
        """
        shard = self._shard
        if self._coordinator.shard(shard.partition) is not shard or shard.cluster.version != self._metadata_version:
            return 0
        now_ms = shard.clock.now_ms()
        try:
            check = shard.offsets.validate_commit(self._request, self._client)
            if check is not None:
                for name, index, _, _, topic_id in self._records:
                    check(name, topic_id, index)
            return shard.append_alike(
                [self._filled_in(offsets, now_ms) for offsets in commits],
                lambda position: self._records_of(commits[position], now_ms),
            )
        except KafkaError:
            return 0
