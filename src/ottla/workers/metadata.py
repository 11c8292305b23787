"""The metadata as a worker follows it, and what is different about it where brokers share a folder."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.errors import InvalidReplicaAssignment
from ottla.metadata.controller import Controller
from ottla.metadata.elections import is_in_folder
from ottla.metadata.image import MetadataImage, TopicState
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.metadata.replica_placement import place_replicas
from ottla.records.batch import Batch, Buffer, batches
from ottla.wire.schema import Message
from ottla.wire.stored import UnknownRecordType, decode_metadata_record
from ottla.wire.stored import metadata as stored


def follow_chunk(followed: FollowedMetadata, chunk: Buffer) -> None:
    """Follow what the controller appended: one batch, or all that was written before this worker started."""
    for batch in batches(chunk):
        followed.follow(() if batch.is_control else _records(batch), batch.last_offset)


def _records(batch: Batch) -> Iterator[tuple[int, Message]]:
    for record in batch.records():
        assert record.value is not None, "a metadata record without a value"
        try:
            decoded, _ = decode_metadata_record(record.value)
        except UnknownRecordType:
            continue  # the controller reported it when it started
        yield record.offset, decoded


class SharedFolderController(Controller):
    """A controller of brokers that keep their partitions in one folder: a second replica would be the same files."""

    def _place(self, partitions: int, factor: int, first_partition: int = 0) -> list[list[int]]:
        if factor > 1:
            # As with a single broker, and in its words.
            place_replicas([self.image.live_brokers()[0].broker_id], {}, partitions, factor, self._chance.randbelow)
        return super()._place(partitions, factor, first_partition)

    def _partition_record(self, topic: TopicState, index: int, replicas: list[int]) -> stored.PartitionRecord:
        if len(replicas) > 1:
            raise InvalidReplicaAssignment(
                f"Partition {index} is to have {len(replicas)} replicas, but all workers share one data folder."
            )
        return super()._partition_record(topic, index, replicas)


class ForeignCluster(Exception):
    """The folder knows brokers that live elsewhere."""


def check_own_folder(image: MetadataImage, first_id: int, folder_id: bytes) -> None:
    """Refuse a folder whose cluster has brokers in other folders: their ids may be those of workers."""
    others = sorted(
        broker_id
        for broker_id, broker in image.brokers.items()
        if broker_id != first_id and not is_in_folder(broker, folder_id, first_id)
    )
    if others:
        raise ForeignCluster(
            f"the folder belongs to a cluster with other brokers ({', '.join(map(str, others))}); "
            "several workers need a folder that holds all of its cluster"
        )
