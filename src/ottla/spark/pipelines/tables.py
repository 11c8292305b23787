"""Folders of Parquet files that change by whole commits, so that a crash at any point leaves each record in once.

    OUT/topic=orders/date=2026-01-31/orders-0-00000000000000000000-00000000000000009999.parquet
    OUT/_ottla/table.json                                what the folder is
    OUT/_ottla/manifests/00000000000000000007.json       commit 7: files added and removed, offsets reached
    OUT/_ottla/staging/                                  files being written

Spark writes new files below `staging`. The commit is the appearance of the next manifest, under a name that only one
writer can take. Then the files that it adds are moved to their places, and those that it removes are deleted; after a
crash in between, the next open does the rest. So a reader who follows the manifests sees exactly what was committed,
and one who only lists the Parquet files never sees a file of a batch that failed, nor a record twice.
Spark's own file sink was not taken: its file names are random, its log (`_spark_metadata`) knows no offsets and cannot
be compacted from outside, and readers who do not know the log see the files of failed batches.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.stores import Store, read_json
from ottla.spark.pipelines.topics import Offsets, flat, nested

FORMAT: Final = 1
FOLDER: Final = "_ottla"
TABLE: Final = f"{FOLDER}/table.json"
MANIFESTS: Final = f"{FOLDER}/manifests"
STAGING: Final = f"{FOLDER}/staging"
CHECKPOINT: Final = f"{FOLDER}/checkpoint"
WHOLE_EVERY: Final = 50
"""Each so many commits the whole state is written down, so that opening reads few files."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of one partition of one topic, and one date."""

    path: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int


@dataclass(slots=True)
class State:
    """A fold over the manifests."""

    number: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    marks: Offsets = field(default_factory=dict)
    lost: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def apply(self, manifest: Mapping[str, Any]) -> None:
        self.number = manifest["number"]
        for entry in manifest["add"]:
            self.files[entry["path"]] = DataFile(**{key: value for key, value in entry.items() if key != "staged"})
        for path in manifest["remove"]:
            self.files.pop(path, None)
        self.marks |= flat(manifest["marks"])
        self.lost += manifest["lost"]
        self.extra |= manifest.get("extra", {})


class Table:
    """Open one with `Table.open`; close it to let other writers in."""

    def __init__(self, store: Store, description: dict[str, Any], lock: Any) -> None:
        self.store = store
        self.description = description
        self.state = State()
        self._lock = lock

    @classmethod
    def create_or_open(cls, store: Store, kind: str, **identity: Any) -> Table:
        """For writing: other writers are kept out, and what a crash left undone is done."""
        try:
            lock = store.lock()
        except OSError as error:
            raise explain(error) from None
        try:
            if not store.exists(TABLE):
                foreign = [name for name in store.names("") if not name.startswith((".", "_"))]
                if foreign:
                    raise PipelineError(
                        f"{store.root} holds files that no pipeline wrote ({foreign[0]}); name an empty folder"
                    )
                made = {"format": FORMAT, "kind": kind, "id": uuid.uuid4().hex, **identity}
                store.write_new(TABLE, json.dumps(made, indent=1).encode())
            table = cls(store, _description(store, kind), lock)
            table.load()
            table._finish_last()
            store.delete(STAGING)
        except BaseException as error:
            if lock is not None:
                lock.close()
            if isinstance(error, OSError):
                raise explain(error) from None
            raise
        return table

    @classmethod
    def open(cls, store: Store, kind: str | None = None) -> Table:
        """For reading."""
        if not store.exists(TABLE):
            raise PipelineError(f"{store.root} is no folder that `ottla pipeline {kind or 'archive'}` wrote")
        table = cls(store, _description(store, kind), None)
        table.load()
        return table

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        return str(self.description["id"])

    def load(self) -> None:
        names = [name for name in self.store.names(MANIFESTS) if name.endswith(".json")]
        wholes = [name for name in names if name.endswith(".whole.json")]
        self.state = State()
        if wholes:
            self.state = _whole_from(read_json(self.store, f"{MANIFESTS}/{wholes[-1]}"))
        for name in names:
            number = name.removesuffix(".json")
            if number.isdigit() and int(number) > self.state.number:
                if int(number) != self.state.number + 1:
                    raise PipelineError(f"{self.store.root}: manifest {self.state.number + 1} is missing")
                self.state.apply(read_json(self.store, f"{MANIFESTS}/{name}"))

    def staging(self) -> str:
        """A fresh folder to write into."""
        return f"{STAGING}/{uuid.uuid4().hex}"

    def commit(
        self,
        add: Mapping[str, DataFile],
        *,
        remove: Iterable[str] = (),
        marks: Offsets | None = None,
        lost: Iterable[dict[str, Any]] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Add staged files (staged path -> file) and remove others, all or nothing."""
        for staged in add:
            self.store.sync(staged)
        number = self.state.number + 1
        manifest: dict[str, Any] = {
            "number": number,
            "at_ms": time.time_ns() // 1_000_000,
            "add": [{**asdict(file), "staged": staged} for staged, file in add.items()],
            "remove": sorted(remove),
            "marks": nested(marks or {}),
            "lost": list(lost),
            "extra": dict(extra or {}),
        }
        try:
            self.store.write_new(_manifest(number), json.dumps(manifest).encode())
        except FileExistsError:
            raise PipelineError(f"another process writes to {self.store.root}; wait for it, or stop it") from None
        self.state.apply(manifest)
        self._roll_forward(manifest)
        self.store.delete(STAGING)
        if self.state.number % WHOLE_EVERY == WHOLE_EVERY - 1:
            whole = json.dumps(_whole(self.state)).encode()
            self.store.replace(_manifest(self.state.number).replace(".json", ".whole.json"), whole)

    def _finish_last(self) -> None:
        if self.state.number >= 0:
            self._roll_forward(read_json(self.store, _manifest(self.state.number)))

    def _roll_forward(self, manifest: Mapping[str, Any]) -> None:
        """Idempotent: what is done already is found done."""
        for entry in manifest["add"]:
            if self.store.exists(entry["staged"]):
                self.store.move(entry["staged"], entry["path"])
            elif not self.store.exists(entry["path"]):
                raise PipelineError(f"{self.store.url(entry['path'])} is missing: it was removed from outside")
        for path in manifest["remove"]:
            self.store.delete(path)


def _manifest(number: int) -> str:
    return f"{MANIFESTS}/{number:020d}.json"


def _description(store: Store, kind: str | None) -> dict[str, Any]:
    found: dict[str, Any] = read_json(store, TABLE)
    if found["format"] != FORMAT:
        raise PipelineError(f"{store.root} was written by another version of Ottla (format {found['format']})")
    if kind is not None and found["kind"] != kind:
        raise PipelineError(f"{store.root} was written by the pipeline '{found['kind']}'; name another folder")
    return found


def _whole(state: State) -> dict[str, Any]:
    return {
        "number": state.number,
        "files": [asdict(file) for file in state.files.values()],
        "marks": nested(state.marks),
        "lost": state.lost,
        "extra": state.extra,
    }


def _whole_from(content: Mapping[str, Any]) -> State:
    return State(
        content["number"],
        {entry["path"]: DataFile(**entry) for entry in content["files"]},
        flat(content["marks"]),
        list(content["lost"]),
        dict(content["extra"]),
    )
