"""The metadata of a worker, and the differences that result from sharing a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.metadata.elections import shares_folders
from ottla.metadata.image import MetadataImage
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.raft.control_records import kraft_versions
from ottla.records.batch import Batch, Buffer, batches
from ottla.wire.schema import Message
from ottla.wire.stored import UnknownRecordType, decode_metadata_record


def follow_chunk(followed: FollowedMetadata, chunk: Buffer) -> None:
    """Apply records that the controller appended: one batch, or everything from before this worker started."""
    for batch in batches(chunk):
        followed.follow(kraft_versions(batch) if batch.is_control else _records(batch), batch.last_offset)


def _records(batch: Batch) -> Iterator[tuple[int, Message]]:
    for record in batch.records():
        assert record.value is not None, "a metadata record without a value"
        try:
            decoded, _ = decode_metadata_record(record.value)
        except UnknownRecordType:
            continue  # the controller reported it when it started
        yield record.offset, decoded


class ForeignCluster(Exception):
    """The metadata in the folder has brokers with other folders."""


def check_own_folders(image: MetadataImage, first_id: int, folder_ids: Sequence[bytes]) -> None:
    """Refuse folders whose cluster has brokers in other folders: their ids may be those of workers."""
    others = sorted(
        broker_id
        for broker_id, broker in image.brokers.items()
        if broker_id != first_id and not shares_folders(broker, folder_ids, first_id)
    )
    if others:
        raise ForeignCluster(
            f"the folder belongs to a cluster with other brokers ({', '.join(map(str, others))}); "
            "several workers need a folder with a complete cluster"
        )
