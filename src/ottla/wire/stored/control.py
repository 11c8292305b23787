"""Control records: transaction markers, and the quorum's records in its own log."""

from __future__ import annotations

from ..schema import Message, Struct, array, int16, int32, int64, string, struct, uint16, uuid


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of every control record: 0 abort, 1 commit, 2 leader change, 3 snapshot header, 4 snapshot footer, 5
    KRaft version, 6 voters.
    """

    type: int = int16()


class EndTxnMarker(Message, versions="0"):
    """The value of a commit or abort marker."""

    coordinator_epoch: int = int32()


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """Written by a new quorum leader. v1 directory ids (KIP-853)."""

    class Voter(Struct):
        voter_id: int = int32()
        voter_directory_id: bytes = uuid("1+")

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a metadata snapshot (KIP-630)."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a metadata snapshot (KIP-630)."""

    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The finalized KRaft version (KIP-853)."""

    version: int = int16()
    k_raft_version: int = int16()


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of the quorum, with their endpoints (KIP-853)."""

    class Endpoint(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    class KRaftVersionFeature(Struct):
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    class Voter(Struct):
        voter_id: int = int32()
        voter_directory_id: bytes = uuid()
        endpoints: list[VotersRecord.Endpoint] = array("Endpoint")
        k_raft_version_feature: VotersRecord.KRaftVersionFeature = struct("KRaftVersionFeature")

    version: int = int16()
    voters: list[Voter] = array(Voter)


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """A quorum replica's memory of elections, kept as JSON in `quorum-state`."""

    class Voter(Struct):
        voter_id: int = int32()

    cluster_id: str = string("0")
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: bytes = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: list[Voter] | None = array(Voter, "0", nullable="0")
