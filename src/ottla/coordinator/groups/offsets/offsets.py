"""Committed offsets: the last offset for each (group, topic, partition), and those that are pending in a transaction.

Commit versions: v0 was stored in ZooKeeper and is now stored like the others; v1 has a timestamp for each partition;
v2-v4 have their own retention time; v5 leaves retention to the broker; v6 adds the leader epoch; v7 static members; v9
members of the consumer protocol; v10 topic ids. A commit may lower an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.coordinator.groups.interfaces import CheckPartition, Group
from ottla.coordinator.groups.records import CommittedOffset, CoordinatorRecord, OffsetRecord
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.result import Result
from ottla.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    KafkaError,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from ottla.metadata.java_hash_order import FIRST_SLOTS, timeline_map, timeline_slots
from ottla.metadata.topics import java_hash
from ottla.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

NO_OFFSET = -1
MAX_INT64 = (1 << 63) - 1
FIRST_TOPIC_ID_VERSION = 10

Entry = tuple[int, CommittedOffset]
"""The offset of the record in the log, which shows the newer of two commits, and the committed offset."""


class TopicOffsets(dict[int, Entry]):
    """The offsets of a topic, by partition. `slots` is the size that Kafka's hash map would have; it determines the
    order in responses."""

    __slots__ = ("slots",)

    def __init__(self, entries: Mapping[int, Entry] = {}, slots: int = FIRST_SLOTS) -> None:
        super().__init__(entries)
        self.slots = slots

    def put(self, partition: int, entry: Entry) -> None:
        self.slots = timeline_slots(len(self), self.slots)
        self[partition] = entry

    def in_order(self) -> list[int]:
        return timeline_map(self, lambda index: index, self.slots)


GroupOffsets = dict[str, TopicOffsets]

_FetchedPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
_FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopics


class OffsetStore:
    __slots__ = ("_shard", "groups", "open_transactions", "pending")

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self.groups: dict[str, GroupOffsets] = {}
        self.pending: dict[int, dict[str, GroupOffsets]] = {}
        """By producer id: the pending offsets of its open transaction."""
        self.open_transactions: dict[str, set[int]] = {}
        """By group: the producers with pending offsets in it."""

    # -- OffsetCommit

    def commit(self, request: OffsetCommitRequest, client: Client) -> Result[OffsetCommitResponse]:
        shard = self._shard
        now_ms = shard.clock.now_ms()
        metadata_limit = shard.settings.offset_metadata_max_bytes
        by_id = client.version >= FIRST_TOPIC_ID_VERSION
        retention_ms = request.retention_time_ms
        # In Java the sum overflows, and the longest retention expires at once. Here it stays the longest.
        expire_ms = -1 if retention_ms == -1 else min(now_ms + retention_ms, MAX_INT64)
        group_id = request.group_id
        records: list[CoordinatorRecord] = []
        response = OffsetCommitResponse(topics=[])
        check: CheckPartition | None = None
        validated, group_error = False, 0
        for topic in request.topics:
            found = shard.image.topic_by_id(topic.topic_id) if by_id else shard.image.topic(topic.name)
            if found is None:
                _add_topic(response, topic, (UnknownTopicId if by_id else UnknownTopicOrPartition).code)
                continue
            if not validated:
                # Kafka passes only existing topics to the coordinator: a request without any is not validated.
                validated = True
                try:
                    check = self.validate_commit(request, client)
                except KafkaError as error:
                    group_error = error.code
            if group_error:
                _add_topic(response, topic, group_error)
                continue
            name, topic_id = found.name, found.topic_id
            answers = []
            for partition in topic.partitions:
                index = partition.partition_index
                metadata = partition.committed_metadata or ""
                if not 0 <= index < found.partition_count:
                    error_code = UnknownTopicOrPartition.code
                elif len(metadata) > metadata_limit:
                    error_code = OffsetMetadataTooLarge.code
                    shard.ensure_group_unseen(group_id)  # Kafka has created it at this point
                else:
                    error_code = 0
                    if check is not None:
                        try:
                            check(name, topic_id, index)
                        except KafkaError as error:
                            return Result((), refused_commit(request, error.code))
                    timestamp_ms = partition.commit_timestamp
                    value = CommittedOffset(
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                        now_ms if timestamp_ms == -1 else timestamp_ms,
                        expire_ms,
                        topic_id,
                    )
                    records.append(OffsetRecord(group_id, name, index, value))
                answers.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=index, error_code=error_code)
                )
            response.topics.append(
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=answers
                )
            )
        return Result(records, response)

    def validate_commit(self, request: OffsetCommitRequest, client: Client) -> CheckPartition | None:
        """Raise if the sender may not commit; return a check for each partition if one is needed."""
        group = self._shard.groups.get(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is None:
            if epoch >= 0:
                if client.version >= 9:
                    raise GroupIdNotFound(f"Group {request.group_id} not found.")
                raise IllegalGeneration
            return None  # Without membership: replaying the commit creates the group that holds it.
        return group.validate_commit(
            request.member_id, request.group_instance_id, epoch, transactional=False, version=client.version
        )

    def commit_transactional(self, request: TxnOffsetCommitRequest, client: Client) -> Result[TxnOffsetCommitResponse]:
        """TxnOffsetCommit: like a commit, but the offsets are pending until the transaction's marker."""
        shard = self._shard
        now_ms = shard.clock.now_ms()
        records: list[CoordinatorRecord] = []
        response = TxnOffsetCommitResponse(topics=[])
        check: CheckPartition | None = None
        validated = False
        for topic in request.topics:
            found = shard.image.topic(topic.name)
            if found is not None and not validated:
                check = self._validate_transactional(request, client)
                validated = True
            answers = []
            for partition in topic.partitions:
                metadata = partition.committed_metadata or ""
                error_code = 0
                if found is None or not 0 <= partition.partition_index < found.partition_count:
                    error_code = UnknownTopicOrPartition.code
                elif len(metadata) > shard.settings.offset_metadata_max_bytes:
                    error_code = OffsetMetadataTooLarge.code
                    shard.ensure_group_unseen(request.group_id)
                else:
                    if check is not None:
                        check(topic.name, found.topic_id, partition.partition_index)
                    value = CommittedOffset(
                        partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms
                    )
                    records.append(OffsetRecord(request.group_id, topic.name, partition.partition_index, value))
                answers.append(
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error_code
                    )
                )
            response.topics.append(
                TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)
            )
        return Result(records, response, None, request.producer_id, request.producer_epoch)

    def _validate_transactional(self, request: TxnOffsetCommitRequest, client: Client) -> CheckPartition | None:
        """Like `validate_commit`, with errors that producers know: generations instead of member epochs."""
        group = self._shard.groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise IllegalGeneration
            return None
        try:
            check = group.validate_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                transactional=True,
                version=client.version,
            )
        except StaleMemberEpoch:
            raise IllegalGeneration from None
        if check is None:
            return None

        def check_partition(topic: str, topic_id: bytes, index: int) -> None:
            try:
                check(topic, topic_id, index)
            except StaleMemberEpoch:
                raise IllegalGeneration from None

        return check_partition

    # -- OffsetFetch

    def fetch(
        self, asked: OffsetFetchRequest.OffsetFetchRequestGroup, *, by_id: bool, require_stable: bool
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        """An unknown group, topic or partition has offset -1 and no error."""
        group_id = asked.group_id
        # A request for stable offsets gets the newest ones; the answer is sent once they are committed.
        seen = self._shard.newest(group_id) if require_stable else self._shard.seen(group_id)
        try:
            self._validate_fetch(asked, seen.group)
        except GroupIdNotFound:
            offsets: GroupOffsets = {}
        except KafkaError as error:
            return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error.code)
        else:
            offsets = seen.offsets
        unstable = self._unstable(group_id) if require_stable and group_id in self.open_transactions else frozenset()
        if asked.topics is None:
            topics = list(self._fetch_all(offsets, unstable, by_id))
        else:
            wanted = list(asked.topics)
            if by_id:  # unknown ids come last
                wanted.sort(key=lambda topic: self._shard.image.topic_by_id(topic.topic_id) is None)
            topics = [self._fetch_topic(topic, offsets, unstable, by_id) for topic in wanted]
        return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    @staticmethod
    def _validate_fetch(asked: OffsetFetchRequest.OffsetFetchRequestGroup, group: Group | None) -> None:
        if group is None:
            raise GroupIdNotFound(f"Group {asked.group_id} not found.")
        group.validate_fetch(asked.member_id, asked.member_epoch)

    def _fetch_topic(
        self,
        asked: OffsetFetchRequest.OffsetFetchRequestTopics,
        offsets: GroupOffsets,
        unstable: frozenset[tuple[str, int]],
        by_id: bool,
    ) -> _FetchedTopic:
        name, error_code = asked.name, 0
        if by_id:
            found = self._shard.image.topic_by_id(asked.topic_id)
            if found is None:
                error_code = UnknownTopicId.code
            else:
                name = found.name
        entries: Mapping[int, Entry] = {} if error_code else offsets.get(name, {})
        return _FetchedTopic(
            name=asked.name,
            topic_id=asked.topic_id,
            partitions=[
                _fetched(index, entries.get(index), (name, index) in unstable, error_code)
                for index in asked.partition_indexes
            ],
        )

    def _fetch_all(
        self, offsets: GroupOffsets, unstable: frozenset[tuple[str, int]], by_id: bool
    ) -> Iterator[_FetchedTopic]:
        for name in timeline_map(offsets, java_hash):
            entries = offsets[name]
            topic = _FetchedTopic(name=name, partitions=[])
            if by_id:
                found = self._shard.image.topic(name)
                if found is None:
                    continue  # Deleted: the topic has no id any more.
                topic.topic_id = found.topic_id
            topic.partitions = [
                _fetched(index, entries[index], (name, index) in unstable, 0) for index in entries.in_order()
            ]
            yield topic

    def _unstable(self, group_id: str) -> frozenset[tuple[str, int]]:
        return frozenset(
            (topic, index)
            for producer_id in self.open_transactions[group_id]
            for topic, entries in self.pending[producer_id].get(group_id, {}).items()
            for index in entries
        )

    # -- OffsetDelete, deletion, expiry

    def delete(self, request: OffsetDeleteRequest) -> Result[OffsetDeleteResponse]:
        group = self._shard.groups.get(request.group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {request.group_id} not found.")
        group.validate_offset_delete()
        records: list[CoordinatorRecord] = []
        response = OffsetDeleteResponse(topics=[])
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name)
            found = self._shard.image.topic(topic.name)
            partition_count = 0 if found is None else found.partition_count
            answer = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=[])
            response.topics.append(answer)
            for partition in topic.partitions:
                index = partition.partition_index
                error_code = 0
                if not 0 <= index < partition_count:
                    error_code = UnknownTopicOrPartition.code
                elif subscribed:
                    error_code = GroupSubscribedToTopic.code
                elif self.has(request.group_id, topic.name, index):
                    records.append(OffsetRecord(request.group_id, topic.name, index, None))
                answer.partitions.append(
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=error_code)
                )
        return Result(records, response)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset to delete, committed or pending."""
        if partition in self.groups.get(group_id, {}).get(topic, ()):
            return True
        return any(
            partition in self.pending[producer_id].get(group_id, {}).get(topic, ())
            for producer_id in self.open_transactions.get(group_id, ())
        )

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones for all committed and pending offsets of a group."""
        known = {(topic, index) for topic, entries in self.groups.get(group_id, {}).items() for index in entries}
        if group_id in self.open_transactions:
            known |= self._unstable(group_id)
        return [OffsetRecord(group_id, topic, index, None) for topic, index in sorted(known)]

    def topic_tombstones(self, topics: Iterable[str]) -> list[CoordinatorRecord]:
        """Tombstones for the offsets of deleted topics in all groups."""
        names = frozenset(topics)
        found: dict[tuple[str, str, int], None] = {}
        for groups in (self.groups, *self.pending.values()):
            for group_id, offsets in groups.items():
                for name in names & offsets.keys():
                    found.update(dict.fromkeys((group_id, name, index) for index in offsets[name]))
        return [OffsetRecord(group_id, name, index, None) for group_id, name, index in found]

    def expired(self, group: Group, now_ms: int) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones for the expired offsets of a group, and whether no offset is left."""
        group_id = group.group_id
        offsets = self.groups.get(group_id)
        if offsets is None:
            return [], group_id not in self.open_transactions
        retention_ms = self._shard.settings.offsets_retention_ms
        unstable = self._unstable(group_id) if group_id in self.open_transactions else frozenset()
        records: list[CoordinatorRecord] = []
        count = 0
        for topic, entries in offsets.items():
            count += len(entries)
            if group.is_subscribed_to(topic):
                continue
            for index, (_, value) in entries.items():
                base_ms = group.offset_expiry_base_ms(value.commit_timestamp_ms)
                if base_ms is None or (topic, index) in unstable:
                    continue
                expire_ms = value.expire_timestamp_ms
                if now_ms >= (base_ms + retention_ms if expire_ms == -1 else expire_ms):
                    records.append(OffsetRecord(group_id, topic, index, None))
        return records, len(records) == count and group_id not in self.open_transactions

    # -- replay

    def set_aside(self, group_id: str, topics: Iterable[str]) -> GroupOffsets:
        """A group's current offsets, frozen: changes to these topics go into a copy."""
        offsets = self.groups.get(group_id)
        if offsets is None:
            return {}
        changed = self.groups[group_id] = dict(offsets)
        for topic in topics:
            if topic in changed:
                changed[topic] = TopicOffsets(changed[topic], changed[topic].slots)
        return offsets

    def replay(self, record: OffsetRecord, record_offset: int, producer_id: int) -> None:
        group_id, topic, partition, value = record
        if value is None:
            _discard(self.groups, group_id, topic, partition)
            for open_producer in self.open_transactions.get(group_id, ()):
                _discard(self.pending[open_producer], group_id, topic, partition)
            return
        self._shard.ensure_group(group_id)
        if producer_id == -1:
            groups = self.groups
        else:
            groups = self.pending.setdefault(producer_id, {})
            self.open_transactions.setdefault(group_id, set()).add(producer_id)
        offsets = groups.get(group_id)
        if offsets is None:
            offsets = groups[group_id] = {}
        entries = offsets.get(topic)
        if entries is None:
            entries = offsets[topic] = TopicOffsets()
        entries.put(partition, (record_offset, value))

    def replay_marker(self, producer_id: int, *, commit: bool) -> None:
        """The transaction ended: apply its offsets, except where a later commit replaced them."""
        ended = self.pending.pop(producer_id, None)
        if ended is None:
            return
        for group_id in [group for group, producers in self.open_transactions.items() if producer_id in producers]:
            producers = self.open_transactions[group_id]
            producers.discard(producer_id)
            if not producers:
                del self.open_transactions[group_id]
        if not commit:
            return
        for group_id, offsets in ended.items():
            for topic in timeline_map(offsets, java_hash):
                entries = offsets[topic]
                committed = self.groups.setdefault(group_id, {}).setdefault(topic, TopicOffsets())
                for partition in entries.in_order():
                    entry, known = entries[partition], committed.get(partition)
                    if known is None or entry[0] > known[0]:
                        committed.put(partition, entry)


def _discard(groups: dict[str, GroupOffsets], group_id: str, topic: str, partition: int) -> None:
    offsets = groups.get(group_id)
    entries = None if offsets is None else offsets.get(topic)
    if offsets is None or entries is None:
        return
    entries.pop(partition, None)
    if not entries:
        del offsets[topic]
        if not offsets:
            del groups[group_id]


def _fetched(index: int, entry: Entry | None, is_unstable: bool, error_code: int) -> _FetchedPartition:
    if is_unstable:
        error_code = UnstableOffsetCommit.code
    if error_code or entry is None:
        return _FetchedPartition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code)
    value = entry[1]
    return _FetchedPartition(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def refused_commit(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """The same error for every partition in the request."""
    response = OffsetCommitResponse(topics=[])
    for topic in request.topics:
        _add_topic(response, topic, error_code)
    return response


def _add_topic(
    response: OffsetCommitResponse, topic: OffsetCommitRequest.OffsetCommitRequestTopic, error_code: int
) -> None:
    response.topics.append(
        OffsetCommitResponse.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponse.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error_code
                )
                for partition in topic.partitions
            ],
        )
    )
