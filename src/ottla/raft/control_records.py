"""The control records that the quorum writes into its own log: leader changes, voters and kraft.version."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.enums import ControlRecordType
from ottla.raft.voters import QuorumHistory, VoterSet
from ottla.records.batch import Batch, Record, batches, build_batch, control_batch
from ottla.wire.schema import Message
from ottla.wire.stored import control

if TYPE_CHECKING:
    from ottla.raft.raft_log import RaftLog
    from ottla.raft.replica import RaftReplica

_KEY = struct.Struct(">hh")


def _key(kind: int) -> bytes:
    return _KEY.pack(0, kind)


def batch_of(records: Iterable[tuple[int, Message, int]], now_ms: int, epoch: int, base_offset: int = 0) -> bytearray:
    """One batch of control records: (type, value, version of the value)."""
    found = [
        Record(base_offset + number, now_ms, _key(kind), value.encode(version))
        for number, (kind, value, version) in enumerate(records)
    ]
    return build_batch(found, base_offset, control=True, leader_epoch=epoch)


def first_of_epoch(replica: RaftReplica, granted: Iterable[int]) -> list[bytearray]:
    """The first batches of a leader; in a new log also the voters, if the log should hold them."""
    voters, now_ms = replica.voters, replica.context.wall_ms()
    version = 1 if replica.history.kraft_version > 0 else 0
    voter = control.LeaderChangeMessage.Voter

    def named(ids: Iterable[int]) -> list[control.LeaderChangeMessage.Voter]:
        return [
            voter(voter_id=each.node_id, voter_directory_id=each.directory_id) for each in voters if each.node_id in ids
        ]

    change = control.LeaderChangeMessage(
        version=version,
        leader_id=replica.node.node_id,
        voters=named(voters.ids),
        granting_voters=named(set(granted)),
    )
    return [control_batch(ControlRecordType.LEADER_CHANGE, change.encode(version), now_ms, leader_epoch=replica.epoch)]


def voters_batch(voters: VoterSet, now_ms: int, epoch: int, kraft_version: int | None = None) -> bytearray:
    """A change of the voters, with a new kraft.version if one is given."""
    records: list[tuple[int, Message, int]] = []
    if kraft_version is not None:
        records.append((ControlRecordType.KRAFT_VERSION, control.KRaftVersionRecord(k_raft_version=kraft_version), 0))
    records.append((ControlRecordType.KRAFT_VOTERS, voters.to_record(), 0))
    return batch_of(records, now_ms, epoch)


def read(batch: Batch) -> Iterator[tuple[int, int, bytes]]:
    """(offset, type, value) of the control records in a batch."""
    if not batch.is_control:
        return
    for record in batch.records():
        if record.key is not None and record.value is not None and len(record.key) >= _KEY.size:
            yield record.offset, _KEY.unpack_from(record.key)[1], bytes(record.value)


def kraft_versions(batch: Batch) -> Iterator[tuple[int, control.KRaftVersionRecord]]:
    """The changes of kraft.version in a control batch, with their offsets."""
    for offset, kind, value in read(batch):
        if kind == ControlRecordType.KRAFT_VERSION:
            yield offset, control.KRaftVersionRecord.decode(value, 0)


def _note(batch: Batch, history: QuorumHistory, offset: int | None = None) -> None:
    for found, kind, value in read(batch):
        at = found if offset is None else offset
        if kind == ControlRecordType.KRAFT_VERSION:
            history.add_kraft_version(at, control.KRaftVersionRecord.decode(value, 0).k_raft_version)
        elif kind == ControlRecordType.KRAFT_VOTERS:
            history.add_voters(at, VoterSet.from_record(control.VotersRecord.decode(value, 0)))


def load(log: RaftLog, history: QuorumHistory) -> None:
    """Read the voters from the newest snapshot and the log."""
    latest = log.snapshots.latest
    start = log.start_offset
    if latest is not None:
        for batch in batches(log.snapshots.read(latest)):
            _note(batch, history, latest.offset - 1)
        start = max(start, latest.offset)
    follow(log, history, start)


def follow(log: RaftLog, history: QuorumHistory, offset: int) -> None:
    """Read the control records appended from `offset` on."""
    for batch in log.log.batches(offset):
        if batch.is_control:
            _note(batch, history)
