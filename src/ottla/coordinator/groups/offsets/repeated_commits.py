"""Offset commits that differ from an earlier one only in the offsets.

A consumer commits the same partitions again and again. Each commit then writes the same batch, except for the offsets
and the timestamp. A `CommitPlan` keeps that batch as a template. Every commit is still validated by the group. If the
group refuses it, or if anything else has changed, nothing is done here, and the normal path handles the request.
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
"""The maximum in one commit. Templates for larger commits would use too much memory for the time that they save."""

_NOT_GIVEN = -1
"""The broker chooses the retention or the timestamp, as it always does since v5."""
_INT64 = Struct(">q")


class CommitPlan:
    """The common parts of a client's commits to the same partitions."""

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
        self._metadata_version = shard.image.version
        self._records: list[tuple[str, int, int, str, bytes]] = []
        """For each partition: topic and partition; leader epoch, metadata and topic id of the commit."""
        self._pattern = b""
        self._places: list[tuple[int, int]] = []
        """The positions of the offset and the timestamp in the template, for each record."""

    @classmethod
    def of(cls, coordinator: GroupCoordinator, request: OffsetCommitRequest, client: Client) -> CommitPlan | None:
        """The plan for a commit that has just succeeded; None if a plan cannot repeat it."""
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
        image = self._shard.image
        by_id = self._client.version >= FIRST_TOPIC_ID_VERSION
        for topic in self._request.topics:
            found = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
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
        """Find the positions of the offsets and timestamps in the batch; returns whether all were found."""
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
        """Commit the offsets of one or more requests. Each has one offset for every partition of the plan.

        Returns how many requests were committed, in order; the rest must take the normal path.
        """
        shard = self._shard
        if self._coordinator.shard(shard.partition) is not shard or shard.image.version != self._metadata_version:
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
