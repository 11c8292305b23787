"""The partition changes when brokers start, stop or fail, as records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from ottla.metadata import partition_change as changes
from ottla.metadata.image import NO_LEADER, BrokerState, MetadataImage, PartitionState, TopicState
from ottla.metadata.partition_change import PartitionChange
from ottla.metadata.reassignment import Directories, change_of
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

FENCE, UNFENCE = 1, -1

Place = tuple[TopicState, PartitionState]


class BrokerChanges:
    """Plans changes against the image; nothing changes before the records are replayed."""

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
        """A fenced broker leads no partitions and is in no ISR."""
        broker = self._image.brokers[broker_id]
        return [*self._without(broker_id, self._in_isr(broker_id)), _registration_change(broker, fenced=FENCE)]

    def unfenced(self, broker_id: int) -> list[Message]:
        """The broker becomes the leader of partitions without one, if it may lead them."""
        broker = self._image.brokers[broker_id]
        records: list[Message] = [_registration_change(broker, fenced=UNFENCE)]

        for topic, partition in self._image.partitions():
            if partition.leader == NO_LEADER:
                records += _planned(self._change(topic, partition, unfenced=broker_id))
        return records

    def folders_failed(self, broker_id: int, directory_ids: Collection[bytes]) -> list[Message]:
        """Folders of a running broker failed: it no longer leads the partitions in them and leaves their ISR
        (KIP-858)."""
        broker = self._image.brokers[broker_id]
        failed = set(directory_ids).intersection(broker.log_dirs)
        if not failed:
            return []
        places = [
            (topic, partition)
            for topic, partition in self._in_isr(broker_id)
            if failed.intersection(partition.directories[partition.replicas.index(broker_id) :][:1])
        ]
        change = _registration_change(broker)
        change.log_dirs = [directory for directory in broker.log_dirs if directory not in failed]
        return [*self._without(broker_id, places), change]

    def without_folders(self, broker_id: int) -> list[Message]:
        """A broker registered without some of its folders: it does not lead the partitions in them."""
        places = [(t, p) for t, p in self._in_isr(broker_id) if not self._image.has_online_folder(p, broker_id)]
        return list(self._without(broker_id, places))

    def left_in_failed_folders(self, broker_id: int, assigned: Iterable[tuple[bytes, int, bytes]]) -> list[Message]:
        """A broker assigned replicas (topic id, partition, folder) to folders that have failed in the meantime."""
        image = self._image
        places = [
            (topic, partition)
            for topic, partition in (
                (image.topics_by_id[topic_id], image.topics_by_id[topic_id].partitions[index])
                for topic_id, index, _ in assigned
            )
            if broker_id in partition.isr and not image.has_online_folder(partition, broker_id)
        ]
        return list(self._without(broker_id, places))

    def shutting_down(self, broker_id: int) -> list[Message]:
        """The broker hands over its partitions before it stops (controlled shutdown)."""
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
        """The ends of the broker's logs may be lost, so it is not a safe leader until it has caught up (KIP-966)."""
        there = {id(p): (t, p) for t, p in (*self._in_isr(broker_id), *self._in_elr(broker_id))}
        records: list[Message] = []
        for topic, partition in there.values():
            change = self._change(topic, partition, but=broker_id)
            change.unclean_shutdown = broker_id
            change.isr = [replica for replica in partition.isr if replica != broker_id]
            records += _planned(change)
        return records

    def preferred(self) -> list[Message]:
        """Elections of preferred leaders that are in sync but do not lead."""
        records: list[Message] = []
        for topic, partition in self._image.partitions():
            if partition.leader not in (NO_LEADER, partition.replicas[0]):
                change = self._change(topic, partition)
                change.election = changes.PREFERRED
                records += _planned(change)
        return records

    def unclean(self) -> list[Message]:
        """Elections for partitions without a leader whose topic allows unclean elections."""
        records: list[Message] = []
        for topic, partition in self._image.partitions():
            if partition.leader == NO_LEADER and self._may_elect_unclean(topic.name):
                records += _planned(self._change(topic, partition))
        return records

    # -- parts -------------------------------------------------------------------------------------------------

    def _without(self, broker_id: int, places: Iterable[Place]) -> Iterator[Message]:
        for topic, partition in places:
            change = self._change(topic, partition, but=broker_id)
            change.isr = [replica for replica in partition.isr if replica != broker_id]
            yield from _planned(change)

    def _change(
        self, topic: TopicState, partition: PartitionState, *, but: int | None = None, unfenced: int | None = None
    ) -> PartitionChange:
        """`but` is a broker that is about to leave, `unfenced` one that is about to be unfenced."""
        image = self._image

        def may_lead(replica: int) -> bool:
            if replica == unfenced:
                return image.has_online_folder(partition, replica)
            return replica != but and image.may_lead(partition, replica)

        return change_of(
            self._image,
            partition,
            directories=self._directories,
            min_isr=self._min_isr(topic.name),
            election=changes.UNCLEAN if self._may_elect_unclean(topic.name) else changes.ONLINE,
            may_lead=may_lead,
        )

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
