"""The voters of a metadata quorum, and how the log changes them (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.wire.primitives import ZERO_UUID, uuid_to_base64
from ottla.wire.stored import control


class Endpoint(NamedTuple):
    """The address of a controller's listener."""

    name: str
    host: str
    port: int


class ReplicaKey(NamedTuple):
    """A replica of the log: a node, and the directory id of its log."""

    node_id: int
    directory_id: bytes = ZERO_UUID

    @property
    def shown(self) -> str:
        """In the format of Kafka's messages."""
        return f"ReplicaKey(id={self.node_id}, directoryId={uuid_to_base64(self.directory_id)})"


class Voter(NamedTuple):
    """A voter of the quorum. The directory id is zero if it is unknown (kraft.version 0)."""

    node_id: int
    directory_id: bytes = ZERO_UUID
    endpoints: tuple[Endpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, 1)

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    def is_replica(self, node_id: int, directory_id: bytes) -> bool:
        """Whether this voter is that replica. If the directory of the voter is unknown, any matches."""
        return self.node_id == node_id and self.directory_id in (ZERO_UUID, directory_id)


class VoterSet:
    """The voters at one offset of the log; immutable."""

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.node_id: voter for voter in sorted(voters)}

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VoterSet({sorted(self._voters)})"

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(self._voters)

    @property
    def majority(self) -> int:
        return len(self._voters) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def has(self, node_id: int, directory_id: bytes) -> bool:
        """Whether a replica is a voter."""
        voter = self._voters.get(node_id)
        return voter is not None and voter.is_replica(node_id, directory_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """A copy with one more voter, or with an updated one."""
        return VoterSet([*(each for each in self if each.node_id != voter.node_id), voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(each for each in self if each.node_id != node_id)

    # -- the record in the log ---------------------------------------------------------------------------------

    def to_record(self) -> control.VotersRecord:
        record = control.VotersRecord
        return record(
            voters=[
                record.Voter(
                    voter_id=voter.node_id,
                    voter_directory_id=voter.directory_id,
                    endpoints=[record.Endpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
                    k_raft_version_feature=record.KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions[0], max_supported_version=voter.kraft_versions[1]
                    ),
                )
                for voter in self
            ]
        )

    @classmethod
    def from_record(cls, record: control.VotersRecord) -> VoterSet:
        return cls(
            Voter(
                voter.voter_id,
                voter.voter_directory_id,
                tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
                (
                    voter.k_raft_version_feature.min_supported_version,
                    voter.k_raft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )


def cannot_remove(voter: Voter, voters: VoterSet) -> str:
    """Kafka's message if the replica is not a voter, or is the only one."""
    known = ", ".join(each.key.shown for each in voters)
    return f"Cannot remove voter {voter.key.shown} from the set of voters [{known}]"


class QuorumHistory:
    """The history of the voters and the kraft.version in the log; a truncation undoes changes."""

    def __init__(self, configured: VoterSet) -> None:
        self.configured = configured
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def voters(self) -> VoterSet:
        """The newest set, committed or not: a change is effective as soon as it is in the log."""
        return self._voters[-1][1] if self._voters else self.configured

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else 0

    @property
    def voters_offset(self) -> int:
        """The offset of the newest change of the voters; -1 if they are the configured ones."""
        return self._voters[-1][0] if self._voters else -1

    def committed_voters(self, high_watermark: int) -> VoterSet:
        """The newest set below the high watermark."""
        return next((found for offset, found in reversed(self._voters) if offset < high_watermark), self.configured)

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        self._voters.append((offset, voters))

    def add_kraft_version(self, offset: int, version: int) -> None:
        self._versions.append((offset, version))

    def truncate_to(self, offset: int) -> None:
        self._voters = [entry for entry in self._voters if entry[0] < offset]
        self._versions = [entry for entry in self._versions if entry[0] < offset]

    def clear(self) -> None:
        self._voters, self._versions = [], []
