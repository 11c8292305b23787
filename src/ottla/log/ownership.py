"""The owner of the data folders: `meta.properties` in each of them, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ottla.errors import KafkaStorageError
from ottla.log import checkpoints
from ottla.log.checkpoints import MetaProperties
from ottla.log.files import Disk
from ottla.wire.primitives import uuid_to_base64

Found: TypeAlias = Sequence[tuple[Disk, MetaProperties | None]]
"""The owner of each folder; None for a new one."""


def read_owners(disk: Disk, node_id: int) -> Found:
    """Refuse folders of another node, of different clusters, and folders that are not data folders."""
    found = [(part, _owner(part, node_id)) for part in disk.parts()]
    ids = {meta.cluster_id for _, meta in found if meta is not None}
    if len(ids) > 1:
        raise KafkaStorageError(f"the data folders belong to different clusters ({', '.join(sorted(ids))})")
    return found


def _owner(part: Disk, node_id: int) -> MetaProperties | None:
    meta = MetaProperties.read(part)
    if meta is None:
        _refuse_foreign(part)
    elif meta.node_id != node_id:
        raise KafkaStorageError(f"the data folder {part} belongs to node {meta.node_id}, not to node {node_id}")
    return meta


def _refuse_foreign(part: Disk) -> None:
    """A folder with files but without meta.properties belongs to something else."""
    others = sorted(name for name in part.scan("") if name not in (".lock", "lost+found"))
    if others:
        raise KafkaStorageError(
            f"the data folder {part} has no {checkpoints.META_FILE} and is not empty ({others[0]}); "
            "name an empty or a new folder, or restore the file from a backup"
        )


def claim(found: Found, fresh: MetaProperties, new_token: Callable[[], str]) -> list[MetaProperties]:
    """Write the owner into folders that have none. `fresh` is for the first folder if all are new."""
    metas: list[MetaProperties] = []
    cluster_id = next((meta.cluster_id for _, meta in found if meta is not None), fresh.cluster_id)
    for part, meta in found:
        directory_id = uuid_to_base64(bytes.fromhex(new_token())) if metas else fresh.directory_id
        if meta is None:
            meta = MetaProperties(cluster_id, fresh.node_id, directory_id)
            meta.write(part)
        elif meta.directory_id is None:
            meta.directory_id = directory_id
            meta.write(part)
        metas.append(meta)
    return metas
