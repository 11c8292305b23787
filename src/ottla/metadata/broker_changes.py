"""What happens to partitions when brokers come and go: the records of each such event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ottla.metadata import partition_change as changes
from ottla.metadata.image import NO_LEADER, BrokerState, MetadataImage, PartitionState, TopicState
from ottla.metadata.partition_change import PartitionChange
from ottla.metadata.reassignment import Directories, change_of
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

FENCE, UNFENCE = 1, -1

Place = tuple[TopicState, PartitionState]


class BrokerChanges:
    """Plans against the image; nothing is changed before the records are replayed."""

    def __init__(
        self,
        image: MetadataImage,
        directories: Directories,
        min_isr: Callable[[str], int],
        may_elect_unclean: Callable[[str], bool],
    ) -> None:
        self._image = image
        self._directories = directories
        self._min_isr = min_isr
        self._may_elect_unclean = may_elect_unclean

    def fenced(self, broker_id: int) -> list[Message]:
        """A broker that is not heard of any more leads nothing and is in no ISR."""
        broker = self._image.brokers[broker_id]
        return [*self._without(broker_id, self._in_isr(broker_id)), _registration_change(broker, fenced=FENCE)]

    def unfenced(self, broker_id: int) -> list[Message]:
        """A broker is there: it leads what nobody leads, if it may."""
        broker = self._image.brokers[broker_id]
        records: list[Message] = [_registration_change(broker, fenced=UNFENCE)]

        def may_lead(replica: int) -> bool:
            return replica == broker_id or self._is_active(replica)

        for topic, partition in self._image.partitions():
            if partition.leader == NO_LEADER:
                records += _planned(self._change(topic, partition, may_lead))
        return records

    def shutting_down(self, broker_id: int) -> list[Message]:
        """Hands over before it goes (controlled shutdown)."""
        broker = self._image.brokers[broker_id]
        records: list[Message] = []
        if not broker.in_controlled_shutdown:
            records.append(_registration_change(broker, shutting_down=1))
        return [*records, *self._without(broker_id, self._in_isr(broker_id))]

    def unregistered(self, broker_id: int) -> list[Message]:
        broker = self._image.brokers[broker_id]
        there = {id(p): (t, p) for t, p in (*self._in_isr(broker_id), *self._in_elr(broker_id))}
        return [
            *self._without(broker_id, there.values()),
            stored.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch),
        ]

    def came_back_unclean(self, broker_id: int) -> list[Message]:
        """The ends of its logs may be gone: it is no safe leader before it has caught up (KIP-966)."""
        there = {id(p): (t, p) for t, p in (*self._in_isr(broker_id), *self._in_elr(broker_id))}
        records: list[Message] = []
        for topic, partition in there.values():
            change = self._change(topic, partition, lambda replica: replica != broker_id and self._is_active(replica))
            change.unclean_shutdown = broker_id
            change.isr = [replica for replica in partition.isr if replica != broker_id]
            records += _planned(change)
        return records

    def preferred(self) -> list[Message]:
        """The elections that give partitions back to their preferred leaders, where those are in sync."""
        records: list[Message] = []
        for topic, partition in self._image.partitions():
            if partition.leader not in (NO_LEADER, partition.replicas[0]):
                change = self._change(topic, partition, self._is_active)
                change.election = changes.PREFERRED
                records += _planned(change)
        return records

    def unclean(self) -> list[Message]:
        """Elections where nobody leads and the topic would rather lose records than wait."""
        records: list[Message] = []
        for topic, partition in self._image.partitions():
            if partition.leader == NO_LEADER and self._may_elect_unclean(topic.name):
                records += _planned(self._change(topic, partition, self._is_active))
        return records

    # -- parts -------------------------------------------------------------------------------------------------

    def _without(self, broker_id: int, places: Iterable[Place]) -> Iterator[Message]:
        for topic, partition in places:
            change = self._change(topic, partition, lambda replica: replica != broker_id and self._is_active(replica))
            change.isr = [replica for replica in partition.isr if replica != broker_id]
            yield from _planned(change)

    def _change(self, topic: TopicState, partition: PartitionState, may_lead: Callable[[int], bool]) -> PartitionChange:
        return change_of(
            self._image,
            partition,
            directories=self._directories,
            min_isr=self._min_isr(topic.name),
            election=changes.UNCLEAN if self._may_elect_unclean(topic.name) else changes.ONLINE,
            may_lead=may_lead,
        )

    def _is_active(self, broker_id: int) -> bool:
        return self._image.is_active(broker_id)

    def _in_isr(self, broker_id: int) -> Iterator[Place]:
        return ((t, p) for t, p in self._image.partitions() if broker_id in p.isr)

    def _in_elr(self, broker_id: int) -> Iterator[Place]:
        return ((t, p) for t, p in self._image.partitions() if broker_id in p.eligible_leader_replicas)


def _planned(change: PartitionChange) -> list[Message]:
    record = change.record()
    return [] if record is None else [record]


def _registration_change(
    broker: BrokerState, *, fenced: int = 0, shutting_down: int = 0
) -> stored.BrokerRegistrationChangeRecord:
    return stored.BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=shutting_down,
        log_dirs=broker.log_dirs,
    )
