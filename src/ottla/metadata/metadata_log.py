"""The metadata log: `__cluster_metadata-0`, in the format of Kafka's own quorum.

A new folder is formatted as `kafka-storage format` does it. If that tool has already formatted it, its features and
users are used. Each start of the broker opens a new leader epoch, like the only voter of a quorum, so that Apache Kafka
can open the folder.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.answers import Answer
from ottla.enums import ConfigResourceType, ControlRecordType
from ottla.errors import (
    KafkaStorageError,
    NotController,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from ottla.lazy_imports import lazy
from ottla.log.checkpoints import RESTORE_HINT
from ottla.log.producers import Origin
from ottla.metadata.features import ELIGIBLE_LEADERS, FORMATTED_FEATURES, METADATA_TRANSACTIONS, METADATA_VERSION
from ottla.metadata.image import KRAFT_VERSION, MetadataImage
from ottla.metadata.metadata_source import QuorumReplica, QuorumView, Subscriber
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.raft.control_records import kraft_versions, voters_batch
from ottla.raft.voters import Voter, VoterSet, cannot_remove
from ottla.records.batch import Batch, Record, batches, build_batch, control_batch
from ottla.wire.primitives import ZERO_UUID, MalformedMessage
from ottla.wire.schema import Message
from ottla.wire.stored import UnknownRecordType, control, decode_metadata_record, encode_metadata_record
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    import json

    from ottla.clock import Clock
    from ottla.log.files import Disk
    from ottla.log.log import Log
else:
    json = lazy("json")

logger = logging.getLogger(__name__)

FOLDER = f"{CLUSTER_METADATA_TOPIC}-0"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
BOOTSTRAP_SNAPSHOT = "bootstrap.checkpoint"
_QUORUM_STATE = f"{FOLDER}/quorum-state"
_SNAPSHOT = r"(\d{20})-(\d{10})\.checkpoint"
_SNAPSHOT_SUFFIX = ".checkpoint"

SNAPSHOT_BATCH_RECORDS = 1000
"""The maximum number of records in a batch of a snapshot."""


SECURITY_RECORDS = (
    stored.AccessControlEntryRecord,
    stored.RemoveAccessControlEntryRecord,
    stored.UserScramCredentialRecord,
    stored.RemoveUserScramCredentialRecord,
    stored.DelegationTokenRecord,
    stored.RemoveDelegationTokenRecord,
)
"""Flushed to disk before the request is answered, as in Kafka, whose quorum flushes every write: a revoked permission
must not return after a power cut. Other changes are flushed like those of any log."""


class MetadataLog:
    """The controller's own log: appends metadata records, replays them into the image, and calls the subscribers."""

    is_own = True

    def __init__(self, disk: Disk, log_: Log, image: MetadataImage, clock: Clock, node_id: int) -> None:
        self._disk = disk
        self._log = log_
        self._image = image
        self._clock = clock
        self._node_id = node_id
        self._epoch = 0
        self._subscribers: list[Subscriber] = []
        self.on_written: Callable[[bytearray], None] | None = None
        """Gets each batch in the log's format, for processes that follow the log."""
        self.voter: Callable[[], Voter] = lambda: Voter(node_id)
        """This node as a voter, with its directory and address."""
        self.observers: Callable[[], list[tuple[int, int]]] = list
        """(id, end offset) of the brokers that follow the log."""

    @property
    def last_offset(self) -> int:
        """The offset of the newest record; clients see it as the epoch of the finalized features."""
        return self._log.log_end_offset - 1

    @property
    def leader_epoch(self) -> int:
        return self._epoch

    @property
    def leader_id(self) -> int:
        return self._node_id

    @property
    def log(self) -> Log:
        return self._log

    def describe_quorum(self) -> QuorumView:
        """A quorum of one, and the brokers that follow it."""
        now_ms, end = self._clock.now_ms(), self._log.log_end_offset
        return QuorumView(
            self._node_id,
            self._epoch,
            end,
            [QuorumReplica(self._node_id, self._shown_directory(), end, now_ms, now_ms)],
            [QuorumReplica(node, ZERO_UUID, follower_end, now_ms, now_ms) for node, follower_end in self.observers()],
            {},
        )

    def _shown_directory(self) -> bytes:
        return self.voter().directory_id if self._image.features.get(KRAFT_VERSION, 0) else ZERO_UUID

    def upgrade_kraft_version(self) -> None:
        """Write the set of voters to the log: this node, with the directory of the log."""
        if self._image.features.get(KRAFT_VERSION, 0) >= 1:
            return
        batch = voters_batch(VoterSet([self.voter()]), self._clock.now_ms(), self._epoch, kraft_version=1)
        offset = self._log.log_end_offset
        self._write(batch, flush=True)
        self._image.replay(control.KRaftVersionRecord(k_raft_version=1), offset)

    def add_voter(self, voter: Voter) -> Answer[None]:
        self._check_can_change_voters("adding")
        raise RequestTimedOut("The new voter has not fetched from this leader: there are no other controllers here")

    def remove_voter(self, voter: Voter) -> Answer[None]:
        self._check_can_change_voters("removing")
        raise VoterNotFound(cannot_remove(voter, VoterSet([self.voter()])))  # also the only one, as in Kafka

    def _check_can_change_voters(self, verb: str) -> None:
        if self._image.features.get(KRAFT_VERSION, 0) < 1:
            raise UnsupportedVersion(f"Cluster doesn't support {verb} voter because the {KRAFT_VERSION} feature is 0")

    def serve(self, request: Message) -> Answer[Message]:
        raise NotController  # there are no other controllers

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with the records of every append, after they were replayed."""
        self._subscribers.append(subscriber)

    # -- start -------------------------------------------------------------------------------------------------

    def open(self, min_insync_replicas: int) -> None:
        """Replay the log (format a new folder first) and open the leader epoch of this start.

        A new cluster stores `min_insync_replicas`, from the configuration of its first start, for all brokers.
        """
        self._epoch = self._previous_epoch() + 1
        snapshot = self.newest_snapshot()
        if snapshot is not None:
            self._replay_snapshot(snapshot[1])
        self._replay_log(snapshot[0] if snapshot is not None else 0)
        is_new = METADATA_VERSION not in self._image.features
        formatted = formatted_records(self._disk, self._clock.now_ms()) if is_new else []
        self._become_leader()
        if is_new:
            self.append(bootstrap_records(formatted, min_insync_replicas))

    def _previous_epoch(self) -> int:
        if not self._disk.exists(_QUORUM_STATE):
            return 0
        try:
            return int(json.loads(self._disk.read_bytes(_QUORUM_STATE))["leaderEpoch"])
        except (ValueError, KeyError, TypeError):
            logger.warning("%s is unreadable; taking the leader epoch from the log", _QUORUM_STATE)
            return self._log.epochs.latest

    def newest_snapshot(self) -> tuple[int, str] | None:
        names = [name for name in self._disk.scan(FOLDER) if name.endswith(_SNAPSHOT_SUFFIX)]
        found = [(match, name) for name in names if (match := re.fullmatch(_SNAPSHOT, name))]
        if not found:
            return None
        match, name = max(found, key=lambda item: item[0].groups())
        return int(match.group(1)), f"{FOLDER}/{name}"

    def _replay_snapshot(self, path: str) -> None:
        for batch in batches(self._disk.read_bytes(path)):
            self._replay_batch(batch, path)

    def _replay_log(self, from_offset: int) -> None:
        expected = max(from_offset, self._log.log_start_offset)
        for batch in self._log.batches(expected):
            if batch.next_offset > from_offset:
                self._replay_batch(batch, FOLDER)
                expected = batch.next_offset
        if expected < self._log.log_end_offset:
            raise _damaged(FOLDER, expected, "the log has a hole there")

    def _replay_batch(self, batch: Batch, where: str) -> None:
        for offset, record in records_of(batch, where):
            self._image.replay(record, offset)

    def _become_leader(self) -> None:
        """Write the state file of a quorum of one, and the control record that starts a new leader's epoch."""
        state = (
            f'{{"clusterId":"","leaderId":{self._node_id},"leaderEpoch":{self._epoch},"votedId":-1,"appliedOffset":0,'
            f'"currentVoters":[{{"voterId":{self._node_id}}}],"data_version":0}}'
        )
        self._disk.write_atomic(_QUORUM_STATE, state.encode())
        voter = control.LeaderChangeMessage.Voter
        change = control.LeaderChangeMessage(
            leader_id=self._node_id,
            voters=[voter(voter_id=self._node_id)],
            granting_voters=[voter(voter_id=self._node_id)],
        )
        self._write(
            control_batch(
                ControlRecordType.LEADER_CHANGE, change.encode(0), self._clock.now_ms(), leader_epoch=self._epoch
            )
        )

    # -- appending ---------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Message]) -> None:
        """Append records as one batch, then replay them into the image and call the subscribers."""
        first = self._log.log_end_offset
        self._write(
            records_batch(records, self._clock.now_ms(), self._epoch),
            flush=any(isinstance(record, SECURITY_RECORDS) for record in records),
        )
        for number, record in enumerate(records):
            self._image.replay(record, first + number)
        for subscriber in self._subscribers:
            subscriber(records)

    def _write(self, batch: bytearray, *, flush: bool = False) -> None:
        try:
            self._log.append([Batch(batch)], leader_epoch=self._epoch, origin=Origin.REPLICATION)
            if flush:
                self._log.flush()
        except KafkaStorageError as error:
            self._log.failed(error)
            raise
        self._log.update_high_watermark(self._log.log_end_offset)
        if self.on_written is not None:
            self.on_written(batch)


def records_of(batch: Batch, where: str = FOLDER) -> Iterator[tuple[int, Message]]:
    """The metadata records of a batch with their offsets; none for a control batch.

    Raises for a damaged batch.
    """
    # Topics and their data depend on this: a flipped bit must not be read as a deletion, for example.
    if not batch.crc_ok():
        raise _damaged(where, batch.base_offset, "the checksum is wrong")
    if batch.is_control:
        yield from kraft_versions(batch)
        return
    for record in batch.records():
        if record.value is None:
            raise _damaged(where, record.offset, "a record without a value")
        try:
            decoded, _ = decode_metadata_record(record.value)
        except UnknownRecordType as unknown:
            # A newer Kafka may have written it; refusing to start would not help.
            logger.warning("%s: passing over offset %d: %s", FOLDER, record.offset, unknown)
            continue
        except MalformedMessage as error:
            raise _damaged(where, record.offset, str(error)) from error
        yield record.offset, decoded


def formatted_records(disk: Disk, now_ms: int) -> list[Message]:
    """The initial records of the folder, from `kafka-storage format` (including SCRAM users) or created now."""
    snapshot = disk.read_bytes(BOOTSTRAP_SNAPSHOT) if disk.exists(BOOTSTRAP_SNAPSHOT) else b""
    if not snapshot:
        content = snapshot_content(list(_feature_records()), now_ms)
        # A power cut must not leave half a file: the next start would consider the folder damaged.
        disk.write_atomic(BOOTSTRAP_SNAPSHOT, content, sync=True)
        return list(_feature_records())
    records = [record for batch in batches(snapshot) for _, record in records_of(batch, BOOTSTRAP_SNAPSHOT)]
    if METADATA_VERSION not in _levels(records):
        raise _damaged(BOOTSTRAP_SNAPSHOT, 0, "it names no metadata.version")
    return records


def snapshot_content(
    records: Sequence[Message], now_ms: int, epoch: int = 0, *, control_records: Sequence[tuple[int, Message]] = ()
) -> bytes:
    """A snapshot file in the format of Kafka's controllers: header, control records of the quorum, records, footer."""
    header = [
        (
            ControlRecordType.SNAPSHOT_HEADER,
            control.SnapshotHeaderRecord(last_contained_log_timestamp=0 if not epoch else now_ms),
        )
    ]
    content = bytearray()
    offset = 0
    for kind, value in [*header, *control_records]:
        content += control_batch(kind, value.encode(0), now_ms, base_offset=offset, leader_epoch=epoch)
        offset += 1
    for start in range(0, len(records), SNAPSHOT_BATCH_RECORDS):
        part = records[start : start + SNAPSHOT_BATCH_RECORDS]
        content += records_batch(part, now_ms, epoch, base_offset=offset)
        offset += len(part)
    footer = control.SnapshotFooterRecord().encode(0)
    content += control_batch(ControlRecordType.SNAPSHOT_FOOTER, footer, now_ms, base_offset=offset, leader_epoch=epoch)
    return bytes(content)


def records_batch(records: Iterable[Message], now_ms: int, epoch: int, base_offset: int = 0) -> bytearray:
    """Metadata records as one batch of the log."""
    found = [Record(base_offset + number, now_ms, None, _framed(record)) for number, record in enumerate(records)]
    return build_batch(found, base_offset, leader_epoch=epoch)


def _damaged(where: str, offset: int, what: str) -> KafkaStorageError:
    return KafkaStorageError(
        f"the cluster's metadata in {where} is damaged at offset {offset}: {what}. `ottla verify` says more; "
        f"{RESTORE_HINT}"
    )


def _framed(record: Message) -> bytes:
    return encode_metadata_record(record, record.STABLE_VERSION)


def bootstrap_records(formatted: Sequence[Message], min_insync_replicas: int) -> list[Message]:
    """The records that Kafka's controller writes into an empty log: the formatted ones, and those its features need."""
    levels = _levels(formatted)
    records = list(formatted)
    if levels.get(ELIGIBLE_LEADERS, 0) > 0:
        key, value = "min.insync.replicas", str(min_insync_replicas)
        records.append(
            stored.ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name="", name=key, value=value)
        )
    if levels[METADATA_VERSION] < METADATA_TRANSACTIONS:
        return records
    return [stored.BeginTransactionRecord(name="Bootstrap records"), *records, stored.EndTransactionRecord()]


def _levels(records: Iterable[Message]) -> dict[str, int]:
    return {record.name: record.feature_level for record in records if isinstance(record, stored.FeatureLevelRecord)}


def _feature_records() -> Iterator[stored.FeatureLevelRecord]:
    for name, level in FORMATTED_FEATURES.items():
        yield stored.FeatureLevelRecord(name=name, feature_level=level)
