"""One change of a partition, computed as in Kafka's controller: leader, ISR and replicas.

The caller sets the target (another ISR, other replicas) and gets one record, or none if nothing changes. The change
also completes a reassignment that has caught up, elects a leader if the old one cannot continue, and updates the
eligible leader replicas (KIP-966): replicas that left the ISR while it was below `min.insync.replicas` have all
committed records, because nothing was committed after that.

| election  | who may lead                                                                        |
|-----------|-------------------------------------------------------------------------------------|
| ONLINE    | the leader, else the first live replica in the ISR, or in the ELR of an empty ISR    |
| PREFERRED | the first replica if it is in sync, else as ONLINE                                  |
| UNCLEAN   | as ONLINE, then any live replica; records that it does not have are lost            |

If a partition has lost all its replicas, its last known leader is elected in any case when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.enums import LeaderRecoveryState
from ottla.metadata.image import NO_LEADER, PartitionState
from ottla.wire.stored import metadata as stored

ONLINE, PREFERRED, UNCLEAN = range(3)

UNCHANGED = -2


class PartitionChange:
    """The target state of a partition; `record` returns the change as a metadata record."""

    def __init__(
        self,
        partition: PartitionState,
        *,
        may_lead: Callable[[int], bool],
        directories: Callable[[Sequence[int]], list[bytes]],
        min_isr: int,
        eligible_leaders: bool,
        election: int = ONLINE,
    ) -> None:
        self._was = partition
        self._may_lead = may_lead
        self._directories = directories
        self._min_isr = min_isr
        self._eligible_leaders = eligible_leaders
        self.election = election
        self.replicas = list(partition.replicas)
        self.isr = list(partition.isr)
        self.adding = list(partition.adding_replicas)
        self.removing = list(partition.removing_replicas)
        self.recovery_state = partition.leader_recovery_state
        self.unclean_shutdown: int | None = None
        """A replica that may have lost the end of its log."""
        self._elr = list(partition.eligible_leader_replicas)

    def record(self) -> stored.PartitionChangeRecord | None:
        was = self._was
        record = stored.PartitionChangeRecord(partition_id=was.index, topic_id=was.topic_id)
        self._complete_reassignment()
        self._keep_eligible_leaders()
        unclean = self._elect(record)
        if record.leader == UNCHANGED and not set(was.replicas) <= set(self.replicas):
            # Start a new leader epoch, so that a removed replica cannot count as one that still fetches.
            record.leader = was.leader
        if unclean or not self._eligible_leaders:
            self._elr = []
        if self._elr != was.eligible_leader_replicas:
            record.eligible_leader_replicas = self._elr
        if record.isr is None and (self.isr or self._eligible_leaders) and self.isr != was.isr:
            record.isr = self.isr
        self._note_last_leader(record)
        self._note_assignment(record)
        if self.recovery_state != was.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        return None if _says_nothing(record) else record

    def _complete_reassignment(self) -> None:
        if not self.adding and not self.removing:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        if not isr or not replicas or not set(replicas) <= set(isr):
            return
        self.isr, self.replicas, self.adding, self.removing = isr, replicas, [], []

    def _keep_eligible_leaders(self) -> None:
        if not self._eligible_leaders:
            return
        if len(self.isr) >= min(self._min_isr, len(self.replicas)):
            self._elr = []
            return
        candidates = sorted({*self._elr, *self._was.isr})
        self._elr = [replica for replica in candidates if replica not in self.isr and replica != self.unclean_shutdown]

    # -- elections ---------------------------------------------------------------------------------------------

    def _may_lead_cleanly(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self._elr)
        return in_sync and self._may_lead(replica)

    def _chosen(self) -> tuple[int, bool]:
        """The leader, and whether choosing it may lose records."""
        order = [self._was.leader, *self.replicas]
        if self.election == PREFERRED:
            order.insert(0, self.replicas[0])
        for replica in order:
            if self._may_lead_cleanly(replica):
                return replica, False
        last = self._was.last_known_elr
        if self._eligible_leaders and not self._elr and not self.isr and len(last) == 1 and self._may_lead(last[0]):
            return last[0], True
        if self.election == UNCLEAN:
            for replica in self.replicas:
                if self._may_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _elect(self, record: stored.PartitionChangeRecord) -> bool:
        leader, unclean = self._chosen()
        if leader == self._was.leader:
            return False
        record.leader = leader
        if leader in self._elr:
            self.isr = [leader]
            self._elr = [replica for replica in self._elr if replica != leader]
        if unclean:
            record.isr = [leader]
            # The leader is recovering until it reports that it has recovered.
            if self._was.leader_recovery_state != LeaderRecoveryState.RECOVERING:
                record.leader_recovery_state = LeaderRecoveryState.RECOVERING
        return unclean

    def _note_last_leader(self, record: stored.PartitionChangeRecord) -> None:
        was = self._was
        if not self._eligible_leaders:
            if was.last_known_elr:
                record.last_known_elr = []
        elif record.isr is not None and not record.isr:
            if was.last_known_elr != [was.leader]:
                record.last_known_elr = [was.leader]
        elif was.last_known_elr and (record.leader >= 0 or (was.leader != NO_LEADER and record.leader != NO_LEADER)):
            record.last_known_elr = []

    def _note_assignment(self, record: stored.PartitionChangeRecord) -> None:
        was = self._was
        if self.replicas != was.replicas:
            record.replicas = self.replicas
            record.directories = self._directories(self.replicas)
        if self.removing != was.removing_replicas:
            record.removing_replicas = self.removing
        if self.adding != was.adding_replicas:
            record.adding_replicas = self.adding


def _says_nothing(record: stored.PartitionChangeRecord) -> bool:
    return (
        record.leader == UNCHANGED
        and record.leader_recovery_state == -1
        and record.isr is None
        and record.replicas is None
        and record.adding_replicas is None
        and record.removing_replicas is None
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
