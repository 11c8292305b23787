"""The data folders of a broker: which partitions each of them holds, and moves between them.

Most brokers have one. With several (`log.dirs`) the metadata has the id of each replica's folder, as in Apache
Kafka (KIP-858): a new partition is unassigned until its folder is created, and a later change assigns it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import KafkaStorageError
from ottla.lazy_imports import lazy
from ottla.log.files import PosixDisk
from ottla.log.multi_dir_disk import MultiDirDisk
from ottla.metadata.image import UNASSIGNED
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.config import Config
    from ottla.log import replica_moves
    from ottla.log.replica_moves import Moves
    from ottla.metadata.image import PartitionState, TopicState
    from ottla.metadata.metadata_source import MetadataSource
    from ottla.server.broker import Broker
    from ottla.server.services import Services
else:
    replica_moves = lazy("ottla.log.replica_moves")

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]

Assignment = tuple[bytes, int, bytes]
"""(topic id, partition, id of the folder in which this broker has its replica)"""

_RESERVED_MAX: Final = 100
"""Ids up to this number are reserved (KIP-858)."""
_UNKNOWN_BYTES: Final = -1
_NAMED_MAX: Final = 3


class DataFolder(NamedTuple):
    """A folder as DescribeLogDirs shows it."""

    path: str
    held: list[TopicPartition]
    arriving: dict[TopicPartition, tuple[int, int]]
    """Replicas that are being copied here: bytes so far, and their lag in offsets."""
    total_bytes: int
    usable_bytes: int
    is_offline: bool = False


def data_folders(services: Services) -> list[DataFolder]:
    """In the order of `log.dirs`."""
    held = services.replicas.held()
    if services.log_dirs is not None:
        return services.log_dirs.folders(held)
    disk = services.logs.disk
    if isinstance(disk, PosixDisk):
        return [DataFolder(disk.root, held, {}, *_space(disk.root))]
    path = os.path.abspath(services.config.log_dirs[0])  # in memory: the folder that it would have
    return [DataFolder(path, held, {}, _UNKNOWN_BYTES, _UNKNOWN_BYTES)]


def is_cordoned(config: Config, path: str) -> bool:
    """Whether a folder gets no new partitions (KIP-1066)."""
    cordoned: Sequence[str] = config["cordoned.log.dirs"]
    return cordoned == ("*",) or path in map(os.path.abspath, cordoned)


def _space(root: str) -> tuple[int, int]:
    volume = os.statvfs(root)
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def _directory_of(partition: PartitionState, broker_id: int) -> bytes | None:
    place = partition.replicas.index(broker_id)
    return partition.directories[place] if place < len(partition.directories) else None


class LogDirs:
    """The folders of a broker with several."""

    def __init__(self, broker: Broker, disk: MultiDirDisk) -> None:
        self._broker = broker
        self._disk = disk
        self._ids: dict[str, bytes] = {}
        self.id_for_new = UNASSIGNED
        """The folder id of a partition until its folder is created."""
        self._made: Moves | None = None
        self.interrupted: list[tuple[TopicPartition, PosixDisk]] = []
        """Interrupted moves, which start again."""

    def open(self) -> None:
        """Check that the listed logs and the metadata agree, before anything is created."""
        ids = map(self._broker.topology.own_directory, self._broker.topology.folder_ids)
        self._ids = dict(zip((part.root for part in self._disk.parts()), ids, strict=True))
        self._disk.cordoned = self._cordoned
        self.id_for_new = self.directory_ids[0] if len(self._disk.folders) == 1 else UNASSIGNED
        self.note_missing()
        self.interrupted = list(self._settle())

    def start(self, metadata_log: MetadataSource) -> None:
        """Assign existing logs to folders, follow new ones, and continue moves."""
        broker = self._broker
        self.assign_all()
        metadata_log.subscribe(self._metadata_changed)
        broker.replicas.on_topic_removed.append(self._topic_removed)
        for key, part in self.interrupted:
            self.moves.start(key, part)

    def keep_only(self, keys: Container[TopicPartition]) -> None:
        """Other processes own the partitions that are not in `keys`."""
        self._disk.keep_only(keys)

    @property
    def offline_roots(self) -> list[str]:
        return [part.root for part in self._disk.offline]

    def leave_out(self, roots: Iterable[str]) -> None:
        """Another process found at the start that these folders cannot be used."""
        for root in roots:
            self._disk.take_offline(root)

    def continue_moves(self, moving: Iterable[tuple[TopicPartition, str]]) -> None:
        """Another process found these moves interrupted; those of its own partitions start again."""
        parts = {part.root: part for part in self._disk.folders}
        self.interrupted += [(key, parts[root]) for key, root in moving if root in parts]

    @property
    def directory_ids(self) -> list[bytes]:
        """The ids of the folders that hold partitions; Apache Kafka registers them in this order."""
        return sorted(self._ids[folder.root] for folder in self._disk.folders)

    def _cordoned(self) -> Sequence[str]:
        return [folder.root for folder in self._disk.folders if is_cordoned(self._broker.config, folder.root)]

    def _settle(self) -> Iterator[tuple[TopicPartition, PosixDisk]]:
        """Clean up after interrupted moves: a copy whose log is gone replaces the log; any other move starts again."""
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

    def note_missing(self) -> None:
        """A folder that is no longer configured, or whose disk is missing, must not be mistaken for an empty one."""
        broker = self._broker
        held = set(broker.logs.partitions()) | set(broker.logs.unfinished.values())
        missing = [
            (topic.name, partition.index)
            for topic, partition in broker.metadata.partitions()
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if replica == broker.node_id
            and int.from_bytes(directory, "big") >= _RESERVED_MAX
            and directory not in self._ids.values()
            and (topic.name, partition.index) not in held
        ]
        if self._disk.offline:
            broker.logs.left_out.update(missing)  # they may be in the folder that cannot be read
        elif missing and not broker.topology.has_other_replicas:
            names = [f"{topic}-{index}" for topic, index in missing[:_NAMED_MAX]]
            named = ", ".join(names) + (" and others" if len(missing) > _NAMED_MAX else "")
            raise KafkaStorageError(
                f"{len(missing)} partitions ({named}) are in a data folder that log.dirs does not name, or that is "
                "empty now; name all folders of this broker, and check that their disks are mounted"
            )

    # -- failures ----------------------------------------------------------------------------------------------

    def take_offline(self, root: str, what: str) -> bool:
        """A folder failed: continue without it. False where that is not possible: the broker has to stop."""
        broker, disk = self._broker, self._disk
        if all(part.root != root for part in disk.parts()):
            return True  # it is offline already
        if root == disk.metadata_root or len(disk.folders) == 1:
            return False
        part = disk.take_offline(root)
        assert part is not None
        lost = broker.logs.take_offline(part)
        for move in self.moves.under_way() if self._made is not None else ():
            if move.target is part or move.key in broker.logs.offline:
                self._stays(move.key)
        broker.replicas.take_offline(lost)
        logger.error(
            "the data folder %s failed (%s). It is offline, and %d partitions with it; the broker continues with the "
            "others. Repair it and restart the broker",
            root,
            what,
            len(lost),
        )
        broker.topology.folders_failed([self._ids[root]])
        return True

    # -- assignments -------------------------------------------------------------------------------------------

    def assign_all(self) -> None:
        partitions = list(self._broker.metadata.partitions())
        self._assign((topic.topic_id, partition.index) for topic, partition in partitions)

    def _metadata_changed(self, records: Sequence[Message]) -> None:
        """Folders of new partitions are created when the metadata changes; then their ids are written to the
        metadata.
        """
        new = [
            (record.topic_id, record.partition_id)
            for record in records
            if isinstance(record, stored.PartitionRecord)
            or (isinstance(record, stored.PartitionChangeRecord) and record.replicas is not None)
        ]
        if new:
            self._broker.loop.call_soon(self._assign, new)

    def _assign(self, which: Iterable[tuple[bytes, int]]) -> None:
        """Correct the folders of replicas in the metadata."""
        broker = self._broker
        assigned: list[Assignment] = []
        for topic_id, index in which:
            topic = broker.metadata.topics_by_id.get(topic_id)
            partition = topic.partitions.get(index) if topic is not None else None
            if topic is None or partition is None or not broker.logs.holds((topic.name, index)):
                continue
            directory = self._ids[self._disk.part_of(f"{topic.name}-{index}").root]
            if broker.node_id in partition.replicas and _directory_of(partition, broker.node_id) != directory:
                assigned.append((topic_id, index, directory))
        if assigned:
            broker.topology.assign_folders(assigned)

    # -- contents of folders -----------------------------------------------------------------------------------

    def folders(self, held: Sequence[TopicPartition]) -> list[DataFolder]:
        logs = self._broker.logs
        by_root: dict[str, list[TopicPartition]] = {}
        for key in held:
            if key in logs.offline or key in logs.left_out:
                continue
            by_root.setdefault(self._disk.part_of(f"{key[0]}-{key[1]}").root, []).append(key)
        arriving: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        for move in self.moves.under_way() if self._made is not None else ():
            arriving.setdefault(move.target.root, {})[move.key] = move.size_bytes, move.offset_lag
        found = {
            part.root: DataFolder(
                part.root, by_root.get(part.root, []), arriving.get(part.root, {}), *_space(part.root)
            )
            for part in self._disk.folders
        }
        for part in self._disk.offline:
            found[part.root] = DataFolder(part.root, [], {}, _UNKNOWN_BYTES, _UNKNOWN_BYTES, is_offline=True)
        return [found[root] for root in self._disk.roots if root in found]

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

    def is_offline(self, path: str) -> bool:
        return any(part.root == path for part in self._disk.offline)

    def move(self, key: TopicPartition, path: str) -> None:
        """Move a partition to one of our folders."""
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
