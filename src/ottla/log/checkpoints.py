"""The small text files of a log dir: offset checkpoints, meta.properties, partition.metadata, the clean-stop marker."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.errors import KafkaStorageError
from ottla.lazy_imports import lazy
from ottla.log.files import Disk
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64

if TYPE_CHECKING:
    import json
else:
    json = lazy("json")

logger = logging.getLogger(__name__)

META_FILE: Final = "meta.properties"
CLEAN_STOP_FILE: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS_FILE: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS_FILE: Final = "cleaner-offset-checkpoint"
PARTITION_METADATA_FILE: Final = "partition.metadata"

RESTORE_HINT: Final = "restore it from a backup, or move the data folder away and start with an empty one"
TopicPartition: TypeAlias = tuple[str, int]


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint. Empty if it is missing or malformed (with a warning): recovery then starts lower.

    With several folders, each lists the partitions that it holds. A move may have left other entries in it.
    """
    parts = disk.parts()
    if len(parts) == 1:
        return _read_offsets(parts[0], path)
    return {
        key: offset
        for part in parts
        for key, offset in _read_offsets(part, path).items()
        if disk.part_of(f"{key[0]}-{key[1]}") is part
    }


def _read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    if not disk.exists(path):
        return {}
    try:
        lines = disk.read_bytes(path).decode("utf-8").splitlines()
        if not lines:  # Kafka creates the file before it has anything to write
            return {}
        if int(lines[0]) != 0:
            raise ValueError(f"unknown version {lines[0]}")
        offsets: dict[TopicPartition, int] = {}
        for line in lines[2:]:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        if len(offsets) != int(lines[1]):
            raise ValueError(f"{len(offsets)} entries instead of {lines[1]}")
        return offsets
    except (ValueError, IndexError) as error:
        logger.warning("%s is malformed and ignored: %s", path, error)
        return {}


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    parts = disk.parts()
    if len(parts) == 1:
        _write_offsets(parts[0], path, offsets, sync)
        return
    by_part: dict[Disk, dict[TopicPartition, int]] = {part: {} for part in parts}
    for key, offset in offsets.items():
        held = by_part.get(disk.part_of(f"{key[0]}-{key[1]}"))
        if held is not None:  # otherwise its folder has just failed
            held[key] = offset
    failed: KafkaStorageError | None = None
    for part, held in by_part.items():
        try:
            _write_offsets(part, path, held, sync)
        except KafkaStorageError as error:
            failed = error
    if failed is not None:
        raise failed


def _write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int], sync: bool) -> None:
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    disk.write_atomic(path, f"0\n{len(lines)}\n{''.join(lines)}".encode(), sync=sync)


def read_partition_metadata(disk: Disk, folder: str) -> bytes | None:
    """The topic id of a partition folder, or None if the file is missing or cannot be read."""
    path = f"{folder}/{PARTITION_METADATA_FILE}"
    if not disk.exists(path):
        return None
    try:
        fields = dict(line.split(": ", 1) for line in disk.read_bytes(path).decode("ascii").splitlines() if line)
        return uuid_from_base64(fields["topic_id"])
    except (ValueError, KeyError) as error:
        logger.warning("%s is malformed and ignored: %s", path, error)
        return None


def write_partition_metadata(disk: Disk, folder: str, topic_id: bytes) -> None:
    text = f"version: 0\ntopic_id: {uuid_to_base64(topic_id)}"
    disk.write_atomic(f"{folder}/{PARTITION_METADATA_FILE}", text.encode())


def write_clean_stop(disk: Disk, broker_epoch: int, *, sync: bool = True) -> None:
    for part in disk.parts():
        part.write_atomic(CLEAN_STOP_FILE, f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode(), sync=sync)


def take_clean_stop(parts: Iterable[Disk]) -> tuple[bool, int]:
    """Whether the last stop was clean, and the broker epoch in its marker (-1 if none). Removes the marker.

    The marker is removed before anything is loaded, because a crash during loading is an unclean stop (KAFKA-10471). If
    one of several folders has no marker, all are recovered.
    """
    taken = [_take_clean_stop(part) for part in parts]
    return all(was_clean for was_clean, _ in taken), max(epoch for _, epoch in taken)


def _take_clean_stop(disk: Disk) -> tuple[bool, int]:
    if not disk.exists(CLEAN_STOP_FILE):
        return False, -1
    try:
        content = json.loads(disk.read_bytes(CLEAN_STOP_FILE) or b"{}")
        epoch = int(content.get("brokerEpoch", -1)) if isinstance(content, dict) else -1
    except (ValueError, TypeError):
        epoch = -1  # Kafka before 3.7 left the file empty
    disk.remove(CLEAN_STOP_FILE)
    return True, epoch


@dataclass(slots=True)
class MetaProperties:
    """The owner of a folder (`meta.properties` version 1)."""

    cluster_id: str
    node_id: int
    directory_id: str | None = None

    @classmethod
    def read(cls, disk: Disk) -> MetaProperties | None:
        """None if the folder is new. Raises if the file cannot be parsed."""
        if not disk.exists(META_FILE):
            return None
        fields: dict[str, str] = {}
        for line in disk.read_bytes(META_FILE).decode("utf-8", "replace").splitlines():
            if line.strip() and not line.startswith(("#", "!")):
                key, _, value = line.partition("=")
                fields[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
        try:
            if fields["version"] not in ("0", "1"):
                raise ValueError(f"unknown version {fields['version']}")
            node_id = int(fields.get("node.id", fields.get("broker.id", "")))
            return cls(fields["cluster.id"], node_id, fields.get("directory.id"))
        except (KeyError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise KafkaStorageError(f"{META_FILE} cannot be understood: {what}; {RESTORE_HINT}") from error

    def write(self, disk: Disk) -> None:
        lines = [f"node.id={self.node_id}", "version=1", f"cluster.id={self.cluster_id}"]
        if self.directory_id is not None:
            lines.insert(1, f"directory.id={self.directory_id}")
        disk.write_atomic(META_FILE, ("#\n" + "\n".join(lines) + "\n").encode(), sync=True)
