"""The persistent election state of a replica: the file `quorum-state` next to its log, in Kafka's JSON format."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import KafkaStorageError
from ottla.lazy_imports import lazy
from ottla.raft.voters import ReplicaKey
from ottla.wire.primitives import ZERO_UUID, uuid_from_base64, uuid_to_base64

if TYPE_CHECKING:
    import json

    from ottla.log.files import Disk
else:
    json = lazy("json")

logger = logging.getLogger(__name__)

FILE = "quorum-state"
NOBODY = -1


class ElectionState(NamedTuple):
    """An epoch, its leader if known, and the replica that this one voted for.

    Within an epoch, a known leader or a vote never changes. This makes two leaders impossible.
    """

    epoch: int = 0
    leader_id: int = NOBODY
    voted: ReplicaKey | None = None


class QuorumStateFile:
    """Reads and writes the file; a write is on the disk before it returns."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE}"

    def read(self, fallback_epoch: int) -> ElectionState:
        """The state of the last run; if it cannot be read, only the epoch of the log."""
        if not self._disk.exists(self._path):
            return ElectionState(max(fallback_epoch, 0))
        try:
            fields = json.loads(self._disk.read_bytes(self._path))
            voted = None
            if int(fields.get("votedId", NOBODY)) != NOBODY:
                directory = fields.get("votedDirectoryId")
                voted = ReplicaKey(int(fields["votedId"]), uuid_from_base64(directory) if directory else ZERO_UUID)
            return ElectionState(int(fields["leaderEpoch"]), int(fields.get("leaderId", NOBODY)), voted)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise KafkaStorageError(
                f"{self._path} cannot be understood: {error}. It says which votes were given, so it cannot be made up; "
                "remove this controller's folder and let it fetch the log from the others"
            ) from error

    def write(self, state: ElectionState, kraft_version: int, voter_ids: Iterable[int]) -> None:
        """Version 0 has the voters; from kraft.version 1 on, the log has them, and the vote includes a directory."""
        voted_id = NOBODY if state.voted is None else state.voted.node_id
        if kraft_version == 0:
            voters = ",".join(f'{{"voterId":{voter}}}' for voter in sorted(voter_ids))
            text = (
                f'{{"clusterId":"","leaderId":{state.leader_id},"leaderEpoch":{state.epoch},"votedId":{voted_id},'
                f'"appliedOffset":0,"currentVoters":[{voters}],"data_version":0}}'
            )
        else:
            directory = uuid_to_base64(ZERO_UUID if state.voted is None else state.voted.directory_id)
            text = (
                f'{{"leaderId":{state.leader_id},"leaderEpoch":{state.epoch},"votedId":{voted_id},'
                f'"votedDirectoryId":"{directory}","data_version":1}}'
            )
        self._disk.write_atomic(self._path, text.encode(), sync=True)
