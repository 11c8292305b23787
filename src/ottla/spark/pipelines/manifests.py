"""Plain Parquet files with our own manifests, for readers that only list files.

    OUT/topic=orders/date=2026-01-31/orders-0-00000000000000000000-00000000000000009999.parquet
    OUT/_ottla/table.json                                what the folder is
    OUT/_ottla/manifests/00000000000000000007.json       commit 7: files added and removed, offsets reached

The commit is the creation of the next manifest, under a name that only one writer can take. After that, the files that
it adds are moved to their places, and the files that it removes are deleted. If a crash interrupts this, the next open
finishes it. So a reader that follows the manifests sees exactly the committed files, and a reader that only lists the
Parquet files never sees a file of a failed batch, or the same record twice. Spark's own file sink is not used: its file
names are random, its log (`_spark_metadata`) has no offsets and cannot be compacted from outside, and readers that
ignore the log see the files of failed batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from ottla.spark.pipelines.commits import FOLDER, Change, CommitLog, Conflict, DataFile, State
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.stores import Store, read_json
from ottla.spark.pipelines.topics import flat, nested

TABLE: Final = f"{FOLDER}/table.json"
MANIFESTS: Final = f"{FOLDER}/manifests"
WHOLE_EVERY: Final = 50
"""After this many commits the whole state is written, so that opening the table reads few files."""


class ManifestLog(CommitLog):
    """The log of a folder of Parquet files."""

    format = "parquet"

    def __init__(self, store: Store) -> None:
        self.store = store

    def describe(self) -> dict[str, Any] | None:
        if not self.store.exists(TABLE):
            return None
        found: dict[str, Any] = read_json(self.store, TABLE)
        return found

    def create(self, description: Mapping[str, Any], schema: Any, partition_by: tuple[str, ...]) -> None:
        self.store.write_new(TABLE, json.dumps(description, indent=1).encode())

    def evolve(self, schema: Any) -> list[str]:
        """Do nothing: plain Parquet files do not share one set of columns."""
        return []

    def load(self) -> State:
        names = [name for name in self.store.names(MANIFESTS) if name.endswith(".json")]
        wholes = [name for name in names if name.endswith(".whole.json")]
        state = State()
        if wholes:
            state = _whole_from(read_json(self.store, f"{MANIFESTS}/{wholes[-1]}"))
        for name in names:
            number = name.removesuffix(".json")
            if number.isdigit() and int(number) > state.number:
                if int(number) != state.number + 1:
                    raise PipelineError(f"{self.store.root}: manifest {state.number + 1} is missing")
                state.apply(_change(read_json(self.store, f"{MANIFESTS}/{name}")))
        return state

    def recover(self, state: State) -> None:
        """Finish the steps that a crash after the last commit left unfinished."""
        if state.number >= 0:
            self._roll_forward(_change(read_json(self.store, _manifest(state.number))))

    def unused(self, before_ms: int, dry_run: bool) -> tuple[int, dict[str, int]]:
        """Nothing: there is only one version, and each commit deletes the files that it no longer needs."""
        return 0, {}

    def commit(self, change: Change, state: State) -> None:
        manifest: dict[str, Any] = {
            "number": change.number,
            "at_ms": change.at_ms,
            "add": [{**asdict(file), "staged": staged} for staged, file in change.add.items()],
            "remove": sorted(change.remove),
            "marks": nested(change.marks),
            "lost": change.lost,
            "extra": change.extra,
        }
        try:
            self.store.write_new(_manifest(change.number), json.dumps(manifest).encode())
        except FileExistsError:
            raise Conflict(self.store.root) from None
        state.apply(change)
        self._roll_forward(change)
        if state.number % WHOLE_EVERY == WHOLE_EVERY - 1:
            whole = json.dumps(_whole(state)).encode()
            self.store.replace(_manifest(state.number).replace(".json", ".whole.json"), whole)

    def _roll_forward(self, change: Change) -> None:
        """Finish the last commit. Idempotent: skips the steps that are already done."""
        for staged, file in change.add.items():
            if self.store.exists(staged):
                self.store.move(staged, file.path)
            elif not self.store.exists(file.path):
                raise PipelineError(f"{self.store.url(file.path)} is missing: it was removed from outside")
        for path in change.remove:
            self.store.delete(path)


def _manifest(number: int) -> str:
    return f"{MANIFESTS}/{number:020d}.json"


def _change(manifest: Mapping[str, Any]) -> Change:
    add = {
        entry["staged"]: DataFile(**{key: value for key, value in entry.items() if key != "staged"})
        for entry in manifest["add"]
    }
    marks, extra = flat(manifest["marks"]), manifest.get("extra", {})
    return Change(manifest["number"], manifest["at_ms"], add, manifest["remove"], marks, manifest["lost"], extra)


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
