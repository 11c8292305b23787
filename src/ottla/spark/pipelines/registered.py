"""A table whose columns follow the schema of a subject in a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.decoders import Decoding, load_registered
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.registry import Registry, Schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ottla.spark.pipelines.jobs import Job
    from ottla.spark.pipelines.tables import Table

_NOTE: Final = "schema"
"""The key under which a commit records the schema version that its rows were read with."""


def registered(
    url: str, options: Mapping[str, str] | None, subject: str | None, topics: str | Sequence[str], message: str = ""
) -> Registered:
    """The schema of `subject`. The default subject is that of the topic's values, if there is only one topic."""
    named = [topics] if isinstance(topics, str) else list(topics)
    if subject is None:
        if len(named) != 1 or any(mark in named[0] for mark in "*?["):
            raise PipelineError("several topics have several subjects: choose one with --subject")
        subject = f"{named[0]}-value"
    return Registered(Registry.at(url, options), subject, message)


class Registered:
    """The newest schema of a subject, and the changes since the table was last written."""

    def __init__(self, registry: Registry, subject: str, message: str) -> None:
        self.registry = registry
        self.subject = subject
        self._message = message
        self.decoding: Decoding
        self.schema: Schema
        self.decoding, self.schema = load_registered(registry, subject, message)

    def follow(self, table: Table, job: Job) -> None:
        """Report the changes since the table's last commit."""
        before = table.state.extra.get(_NOTE)
        if before and before["id"] != self.schema.id:
            self._tell(job, before["version"], before["fields"])

    def renew(self, table: Table, job: Job, columns_of: Callable[[Decoding], StructType]) -> bool:
        """Look for a newer version and add its columns to the table. Returns whether there is one."""
        newest = self.registry.latest(self.subject)
        if newest.id == self.schema.id:
            return False
        if table.format == "parquet":
            job.warn(
                f"{self.subject} has version {newest.version} now; plain Parquet can have only one schema, so the "
                f"columns stay those of version {self.schema.version}"
            )
            return False
        before, fields = self.schema.version, self._fields()
        self.decoding, self.schema = load_registered(self.registry, self.subject, self._message)
        for change in table.evolve(columns_of(self.decoding)):
            job.warn(f"{table.store.root}: {change}")
        self._tell(job, before, fields)
        return True

    def noted(self) -> dict[str, Any]:
        """The schema version, for the commit."""
        note = {"subject": self.subject, "version": self.schema.version, "id": self.schema.id, "fields": self._fields()}
        return {_NOTE: note}

    def _fields(self) -> list[str]:
        return list(self.decoding.spark_type().names)

    def _tell(self, job: Job, before: int, fields: Sequence[str]) -> None:
        now = self._fields()
        gone = [name for name in fields if name not in now]
        new = [name for name in now if name not in fields]
        what = [f"new: {', '.join(new)}"] if new else []
        if gone:
            what.append(f"gone: {', '.join(gone)}, whose columns stay and are null in new rows")
        told = "; ".join(what) or "the same fields"
        job.warn(f"the schema {self.subject} went from version {before} to {self.schema.version}: {told}")
