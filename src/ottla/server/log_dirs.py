"""The data folders of a broker: which partitions each of them holds, and moves between them.

Most brokers have one. With several (`log.dirs`) the metadata names the folder of each replica by its id, as Apache
Kafka has it (KIP-858): a new partition is unassigned until its folder is made, and assigned by a change that follows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import KafkaStorageError
from ottla.lazy_imports import lazy
from ottla.log.files import PosixDisk
from ottla.log.multi_dir_disk import MultiDirDisk
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.wire.primitives import uuid_from_base64
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.config import Config
    from ottla.log import replica_moves
    from ottla.log.replica_moves import Moves
    from ottla.metadata.image import TopicState
    from ottla.metadata.metadata_source import MetadataSource
    from ottla.server.broker import Broker
    from ottla.server.services import Services
else:
    replica_moves = lazy("ottla.log.replica_moves")

TopicPartition = tuple[str, int]

UNASSIGNED: Final = bytes(15) + b"\1"
_RESERVED_MAX: Final = 100
"""Ids up to this number name no folder (KIP-858)."""
_UNKNOWN_BYTES: Final = -1
_NAMED_MAX: Final = 3


class DataFolder(NamedTuple):
    """A folder as DescribeLogDirs tells of it."""

    path: str
    held: list[TopicPartition]
    arriving: dict[TopicPartition, tuple[int, int]]
    """Replicas that are being copied here: bytes so far, and how many offsets they are behind."""
    total_bytes: int
    usable_bytes: int


def data_folders(services: Services) -> list[DataFolder]:
    """In the order of `log.dirs`."""
    held = [key for key in services.logs.partitions() if key[0] != CLUSTER_METADATA_TOPIC]
    if services.log_dirs is not None:
        return services.log_dirs.folders(held)
    disk = services.logs.disk
    if isinstance(disk, PosixDisk):
        return [DataFolder(disk.root, held, {}, *_space(disk.root))]
    path = os.path.abspath(services.config.log_dirs[0])  # in memory: the one that it would have
    return [DataFolder(path, held, {}, _UNKNOWN_BYTES, _UNKNOWN_BYTES)]


def is_cordoned(config: Config, path: str) -> bool:
    """Whether a folder gets no new partitions (KIP-1066)."""
    cordoned: Sequence[str] = config["cordoned.log.dirs"]
    return cordoned == ("*",) or path in map(os.path.abspath, cordoned)


def _space(root: str) -> tuple[int, int]:
    volume = os.statvfs(root)
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


class SpreadFolders:
    """Of a broker with several folders."""

    def __init__(self, broker: Broker, disk: MultiDirDisk) -> None:
        self._broker = broker
        self._disk = disk
        self._ids: dict[str, bytes] = {}
        self.id_for_new = UNASSIGNED
        """What the metadata says of a partition until its folder is made."""
        self._made: Moves | None = None
        self._interrupted: list[tuple[TopicPartition, PosixDisk]] = []

    def open(self) -> None:
        """The logs are listed and the metadata is read: see that they agree, before anything is made."""
        ids = map(uuid_from_base64, self._broker.logs.directory_ids)
        self._ids = dict(zip((part.root for part in self._disk.parts()), ids, strict=True))
        self._disk.cordoned = self._cordoned
        self.id_for_new = self.directory_ids[0] if len(self._disk.folders) == 1 else UNASSIGNED
        self._refuse_missing()
        self._interrupted = list(self._settle())

    def start(self, metadata_log: MetadataSource) -> None:
        """Say what is where, follow what is made, and go on with moves."""
        broker = self._broker
        self._assign((topic.topic_id, partition.index) for topic, partition in list(broker.metadata.partitions()))
        metadata_log.subscribe(self._metadata_changed)
        broker.replicas.on_topic_removed.append(self._topic_removed)
        for key, part in self._interrupted:
            self.moves.start(key, part)

    @property
    def directory_ids(self) -> list[bytes]:
        """Of the folders that hold partitions; Apache Kafka registers them in this order."""
        return sorted(self._ids[folder.root] for folder in self._disk.folders)

    def _cordoned(self) -> Sequence[str]:
        return [folder.root for folder in self._disk.folders if is_cordoned(self._broker.config, folder.root)]

    def _settle(self) -> Iterator[tuple[TopicPartition, PosixDisk]]:
        """What was left of moves: a copy without its log takes its place, any other is begun anew."""
        logs = self._broker.logs
        held = set(logs.partitions())
        for folder, key in logs.unfinished.items():
            if key in held:
                part = self._disk.part_of(folder)
                self._disk.remove_tree(folder)
                yield key, part
            else:
                logs.finish_exchange(*key, folder)
        logs.unfinished.clear()

    def _refuse_missing(self) -> None:
        """A folder that is not named any more, or whose disk is not there, must not look as if it had been empty."""
        broker = self._broker
        held = set(broker.logs.partitions()) | set(broker.logs.unfinished.values())
        missing = [
            f"{topic.name}-{partition.index}"
            for topic, partition in broker.metadata.partitions()
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if replica == broker.node_id
            and int.from_bytes(directory, "big") >= _RESERVED_MAX
            and directory not in self._ids.values()
            and (topic.name, partition.index) not in held
        ]
        if missing:
            named = ", ".join(missing[:_NAMED_MAX]) + (" and others" if len(missing) > _NAMED_MAX else "")
            raise KafkaStorageError(
                f"{len(missing)} partitions ({named}) are in a data folder that log.dirs does not name, or that is "
                "empty now; name all folders that this broker had, and see that their disks are there"
            )

    # -- assignments -------------------------------------------------------------------------------------------

    def _metadata_changed(self, records: Sequence[Message]) -> None:
        """Folders of new partitions are made while the others follow the metadata; then it is told where."""
        new = [
            (record.topic_id, record.partition_id) for record in records if isinstance(record, stored.PartitionRecord)
        ]
        if new:
            self._broker.loop.call_soon(self._assign, new)

    def _assign(self, which: Iterable[tuple[bytes, int]]) -> None:
        """Tell the metadata of replicas whose folder it does not know rightly."""
        broker = self._broker
        changes = []
        for topic_id, index in which:
            topic = broker.metadata.topics_by_id.get(topic_id)
            partition = topic.partitions.get(index) if topic is not None else None
            if topic is None or partition is None or partition.replicas != [broker.node_id]:
                continue
            folder = f"{topic.name}-{index}"
            directory = self._ids[self._disk.part_of(folder).root]
            if partition.directories != [directory] and self._disk.exists(folder):
                changes.append(
                    stored.PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=[directory])
                )
        broker.controller.commit(changes)

    # -- what holds what ---------------------------------------------------------------------------------------

    def folders(self, held: Sequence[TopicPartition]) -> list[DataFolder]:
        by_root: dict[str, list[TopicPartition]] = {}
        for key in held:
            by_root.setdefault(self._disk.part_of(f"{key[0]}-{key[1]}").root, []).append(key)
        arriving: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        for move in self.moves.under_way() if self._made is not None else ():
            arriving.setdefault(move.target.root, {})[move.key] = move.size_bytes, move.offset_lag
        return [
            DataFolder(part.root, by_root.get(part.root, []), arriving.get(part.root, {}), *_space(part.root))
            for part in self._disk.folders
        ]

    # -- moves -------------------------------------------------------------------------------------------------

    @property
    def moves(self) -> Moves:
        return self._made if self._made is not None else self._make()

    def _make(self) -> replica_moves.Moves:
        broker = self._broker
        self._made = replica_moves.Moves(
            broker.logs,
            self._disk,
            broker.in_background,
            broker.timer.schedule,
            lambda: broker.chance.uuid().hex(),
            broker.logs.is_busy,
        )
        self._made.on_moved = self._moved
        return self._made

    def _moved(self, key: TopicPartition) -> None:
        topic = self._broker.metadata.topics.get(key[0])
        if topic is not None:
            self._assign([(topic.topic_id, key[1])])

    def move(self, key: TopicPartition, path: str) -> None:
        """Have a partition in this folder, one of ours."""
        part = next(part for part in self._disk.folders if part.root == path)
        if self._disk.part_of(f"{key[0]}-{key[1]}") is part:
            self._stays(key)
        else:
            self.moves.start(key, part)

    def _stays(self, key: TopicPartition) -> None:
        if self._made is not None:
            self._made.cancel(key)

    def _topic_removed(self, topic: TopicState) -> None:
        for index in topic.partitions:
            self._stays((topic.name, index))

    def stop(self) -> None:
        if self._made is not None:
            self._made.stop()
