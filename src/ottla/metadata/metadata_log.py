"""The metadata log: `__cluster_metadata-0`, in the records and the framing of Kafka's own quorum.

A new folder is formatted as `kafka-storage format` does it, unless that was there before and left features and users
to begin with; each start of the broker opens a new leader epoch, as the only voter of its quorum would, so that an
Apache Kafka finds what it expects when it is given the folder.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.enums import ConfigResourceType
from ottla.errors import KafkaStorageError
from ottla.lazy_imports import lazy
from ottla.log.checkpoints import RESTORE_HINT
from ottla.log.producers import Origin
from ottla.metadata.features import ELIGIBLE_LEADERS, FORMATTED_FEATURES, METADATA_TRANSACTIONS, METADATA_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.metadata_source import Subscriber
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.records.batch import Batch, Record, batches, build_batch, control_batch
from ottla.wire.primitives import MalformedMessage
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

# Types of control records.
_LEADER_CHANGE = 2
_SNAPSHOT_HEADER = 3
_SNAPSHOT_FOOTER = 4


SECURITY_RECORDS = (
    stored.AccessControlEntryRecord,
    stored.RemoveAccessControlEntryRecord,
    stored.UserScramCredentialRecord,
    stored.RemoveUserScramCredentialRecord,
    stored.DelegationTokenRecord,
    stored.RemoveDelegationTokenRecord,
)
"""On the disk before the request that wrote them is answered, as in Kafka, whose quorum flushes every write: a right
that was taken away must not come back with a power cut. Other changes are flushed as those of any log."""


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
        """Gets each batch as it stands in the log, for processes that follow it."""
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
    def log(self) -> Log:
        return self._log

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with the records of every append, after they were replayed."""
        self._subscribers.append(subscriber)

    # -- start -------------------------------------------------------------------------------------------------

    def open(self, min_insync_replicas: int) -> None:
        """Replay what is there (format a new folder first) and open this start's leader epoch.

        A new cluster keeps `min_insync_replicas`, which its first start is configured with, for all brokers.
        """
        self._epoch = self._previous_epoch() + 1
        snapshot = self.newest_snapshot()
        if snapshot is not None:
            self._replay_snapshot(snapshot[1])
        self._replay_log(snapshot[0] if snapshot is not None else 0)
        is_new = not self._image.features
        formatted = self._formatted() if is_new else []
        self._become_leader()
        if is_new:
            self.append(_bootstrap_records(formatted, min_insync_replicas))

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
        for offset, record in self._records_of(batch, where):
            self._image.replay(record, offset)

    def _records_of(self, batch: Batch, where: str) -> Iterator[tuple[int, Message]]:
        # Topics and their records hang on this: a wrong bit must not be taken for a deletion, say.
        if not batch.crc_ok():
            raise _damaged(where, batch.base_offset, "the checksum is wrong")
        if batch.is_control:
            return
        for record in batch.records():
            if record.value is None:
                raise _damaged(where, record.offset, "a record without a value")
            try:
                decoded, _ = decode_metadata_record(record.value)
            except UnknownRecordType as unknown:
                # A newer Kafka may have written it; refusing to start would help nobody.
                logger.warning("%s: passing over offset %d: %s", FOLDER, record.offset, unknown)
                continue
            except MalformedMessage as error:
                raise _damaged(where, record.offset, str(error)) from error
            yield record.offset, decoded

    def _become_leader(self) -> None:
        """Write the state file of a quorum of one, and the control record with which a new leader begins."""
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
        self._write(control_batch(_LEADER_CHANGE, change.encode(0), self._clock.now_ms(), leader_epoch=self._epoch))

    # -- appending ---------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Message]) -> None:
        """Append records as one batch, then let the image and the subscribers see them."""
        first = self._log.log_end_offset
        self._write(self._batch(records), flush=any(isinstance(record, SECURITY_RECORDS) for record in records))
        for number, record in enumerate(records):
            self._image.replay(record, first + number)
        for subscriber in self._subscribers:
            subscriber(records)

    def _batch(self, records: Iterable[Message]) -> bytearray:
        now_ms = self._clock.now_ms()
        return build_batch(
            [Record(number, now_ms, None, _framed(record)) for number, record in enumerate(records)],
            leader_epoch=self._epoch,
        )

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

    # -- formatting --------------------------------------------------------------------------------------------

    def _formatted(self) -> list[Message]:
        """What the folder was formatted with, by `kafka-storage format` (users of SCRAM among it) or now."""
        snapshot = self._disk.read_bytes(BOOTSTRAP_SNAPSHOT) if self._disk.exists(BOOTSTRAP_SNAPSHOT) else b""
        if not snapshot:
            self._disk.write_atomic(BOOTSTRAP_SNAPSHOT, self._bootstrap_snapshot())
            return list(_feature_records())
        found = batches(snapshot)
        records = [record for batch in found for _, record in self._records_of(batch, BOOTSTRAP_SNAPSHOT)]
        if METADATA_VERSION not in _levels(records):
            raise _damaged(BOOTSTRAP_SNAPSHOT, 0, "it names no metadata.version")
        return records

    def _bootstrap_snapshot(self) -> bytes:
        """The file from which Kafka's controller would bootstrap: header, feature levels, footer."""
        now_ms = self._clock.now_ms()
        header = control_batch(_SNAPSHOT_HEADER, control.SnapshotHeaderRecord().encode(0), now_ms, leader_epoch=0)
        features = build_batch(
            [Record(1 + number, now_ms, None, _framed(record)) for number, record in enumerate(_feature_records())],
            base_offset=1,
            leader_epoch=0,
        )
        footer = control_batch(
            _SNAPSHOT_FOOTER,
            control.SnapshotFooterRecord().encode(0),
            now_ms,
            base_offset=1 + len(FORMATTED_FEATURES),
            leader_epoch=0,
        )
        return bytes(header + features + footer)


def _damaged(where: str, offset: int, what: str) -> KafkaStorageError:
    return KafkaStorageError(
        f"the cluster's metadata in {where} is damaged at offset {offset}: {what}. `ottla verify` says more; "
        f"{RESTORE_HINT}"
    )


def _framed(record: Message) -> bytes:
    return encode_metadata_record(record, record.STABLE_VERSION)


def _bootstrap_records(formatted: Sequence[Message], min_insync_replicas: int) -> list[Message]:
    """What Kafka's controller writes into an empty log: what was formatted, and what its features ask for."""
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
