"""Changes to the voters of a quorum (KIP-853): one at a time, each as a record that takes effect once it is logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.answers import Answer, then
from ottla.errors import (
    NONE,
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from ottla.metadata.image import KRAFT_VERSION
from ottla.raft.control_records import voters_batch
from ottla.raft.voters import Endpoint, Voter, VoterSet, cannot_remove
from ottla.wire.messages import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.multibroker.quorum_controller import QuorumController


class VoterChanges:
    """Changes that the leader of a quorum makes to its voters."""

    def __init__(self, node: QuorumController) -> None:
        self._node = node

    @property
    def kraft_version(self) -> int:
        return self._node.raft.replica.history.kraft_version

    @property
    def cluster_id(self) -> str:
        return self._node.broker.cluster_id

    def add(self, voter: Voter) -> Answer[None]:
        """Add a controller that already follows the log to the voters. Answers when the change is committed."""
        self._check_may_change("adding")
        replica = self._node.raft.replica
        leader = replica.leading
        assert leader is not None
        if voter.node_id in replica.voters.ids:
            raise DuplicateVoter(f"The voter id for {voter.key.shown} is already part of the set of voters.")
        progress = leader.replicas.get(voter.key)
        if progress is None or progress.last_fetch_ms < 0 or progress.end_offset < replica.log.high_watermark:
            raise RequestTimedOut(
                f"Aborted add voter operation for {voter.key.shown} since it is lagging behind: "
                f"{'it does not fetch' if progress is None else progress.end_offset}"
            )
        return self._change(replica.voters.with_voter(voter))

    def remove(self, node_id: int, directory_id: bytes) -> Answer[None]:
        """Remove a controller from the voters. If it is the leader, it resigns when the change is committed."""
        self._check_may_change("removing")
        voters = self._node.raft.replica.voters
        known = voters.get(node_id)
        if known is None or known.directory_id != directory_id or len(voters) == 1:
            raise VoterNotFound(cannot_remove(Voter(node_id, directory_id), voters))
        return self._change(voters.without(node_id))

    def upgrade(self) -> None:
        """Upgrade to kraft.version 1, with voters that can change. Their directories are known from their fetches."""
        node = self._node
        replica = node.raft.replica
        leader = replica.leading
        if leader is None or self.kraft_version >= 1:
            return
        found: list[Voter] = []
        for voter in replica.voters:
            if voter.is_replica(*replica.node):
                found.append(voter._replace(directory_id=replica.node.directory_id))
                continue
            known = leader.progress_of_voter(replica.voters, voter.node_id)
            if known is None:
                raise InvalidRequest(
                    f"The voter {voter.node_id} has not fetched in this epoch, so its directory is not known. "
                    "Start it, and upgrade then."
                )
            found.append(voter._replace(directory_id=known[0].directory_id))
        batch = voters_batch(VoterSet(found), node.broker.clock.now_ms(), replica.epoch, kraft_version=1)
        node.log.write_control(batch)

    def update(self, request: UpdateRaftVoterRequest) -> Answer[Message]:
        """A voter reports its endpoints."""
        replica = self._node.raft.replica
        leader = replica.voters.get(replica.leader_id)
        host, port = leader.endpoints[0][1:] if leader is not None and leader.endpoints else ("", 0)
        response = UpdateRaftVoterResponse(
            error_code=self._check_update(request),
            current_leader=UpdateRaftVoterResponse.CurrentLeader(
                leader_id=replica.leader_id, leader_epoch=replica.epoch, host=host, port=port
            ),
        )
        if response.error_code != NONE or self.kraft_version == 0:
            return response
        versions = request.k_raft_version_feature
        voter = Voter(
            request.voter_id,
            request.voter_directory_id,
            tuple(Endpoint(e.name, e.host, e.port) for e in request.listeners),
            (versions.min_supported_version, versions.max_supported_version),
        )
        if replica.voters.get(voter.node_id) == voter:
            return response
        return then(self._change(replica.voters.with_voter(voter)), lambda _: response)

    def _check_update(self, request: UpdateRaftVoterRequest) -> int:
        """The error code, in Kafka's order of the checks."""
        replica = self._node.raft.replica
        if request.cluster_id not in (None, self.cluster_id):
            return InconsistentClusterId.code
        error = replica.check_leads(request.current_leader_epoch)
        if error != NONE:
            return error
        name = self._node.broker.config["controller.listener.names"][0]
        lowest, highest = (
            request.k_raft_version_feature.min_supported_version,
            request.k_raft_version_feature.max_supported_version,
        )
        if (
            request.voter_id < 0
            or request.voter_directory_id == ZERO_UUID
            or all(listener.name.upper() != name.upper() for listener in request.listeners)
            or not 0 <= lowest <= highest
        ):
            return InvalidRequest.code
        if not replica.voters.has(request.voter_id, request.voter_directory_id):
            return VoterNotFound.code
        if not lowest <= self.kraft_version <= highest:
            return InvalidRequest.code
        return RequestTimedOut.code if self._is_changing else NONE

    def _check_may_change(self, verb: str) -> None:
        if self.kraft_version < 1:
            raise UnsupportedVersion(f"Cluster doesn't support {verb} voter because the {KRAFT_VERSION} feature is 0")
        if self._is_changing:
            raise RequestTimedOut("Request timed out waiting for leader to handle previous voter change request")

    @property
    def _is_changing(self) -> bool:
        """Whether the last change is not committed yet."""
        replica = self._node.raft.replica
        return replica.history.voters_offset >= replica.log.high_watermark

    def _change(self, voters: VoterSet) -> Answer[None]:
        node = self._node
        replica = node.raft.replica
        node.log.write_control(voters_batch(voters, node.broker.clock.now_ms(), replica.epoch))
        return node.when_committed(None) if node.log.is_active else None
