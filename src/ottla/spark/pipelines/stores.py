"""Folders where pipelines keep their tables: on a local disk, or in any file system of Hadoop (hdfs://…)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.object_stores import SCHEMES, ObjectStore, check_location
from ottla.spark.sessions import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Store(Protocol):
    """Paths are relative to the root. `url` returns the form that Spark reads and writes."""

    root: str

    def url(self, path: str = "") -> str: ...
    def exists(self, path: str) -> bool: ...
    def read(self, path: str) -> bytes: ...
    def write_new(self, path: str, content: bytes) -> None:
        """Write atomically. FileExistsError if the name is taken."""

    def replace(self, path: str, content: bytes) -> None:
        """Replace atomically."""

    def move(self, source: str, target: str) -> None: ...
    def delete(self, path: str) -> None:
        """Delete a file or a whole folder, if it exists."""

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted. Empty if there is no such folder."""

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        """The files below a folder, with their sizes."""

    def sync(self, path: str) -> None:
        """Returns when the file survives a power cut."""

    def lock(self) -> Any:
        """Held until closed. PipelineError if another process holds it. None if the store has no locks."""


def is_local(location: str) -> bool:
    """Whether a path or URL is a folder on this machine."""
    scheme = urlsplit(location).scheme
    return scheme in ("", "file") or len(scheme) == 1


def open_store(location: str, spark: SparkSession | None) -> Store:
    """The store for a path or URL."""
    check_location(location)
    parts = urlsplit(location)
    if is_local(location):
        return LocalStore(unquote(parts.path) if parts.scheme == "file" else location)
    if parts.scheme in SCHEMES:
        return ObjectStore(location)
    if spark is None:
        raise PipelineError(f"{location} needs a Spark session")
    if is_remote(spark):
        raise PipelineError(f"Spark Connect does not reach {location} from here; name a folder, or s3://BUCKET/PATH")
    return HadoopStore(location, spark)


def read_json(store: Store, path: str) -> Any:
    """A file that a pipeline wrote as a whole. If it cannot be parsed, another program has changed it."""
    try:
        return json.loads(store.read(path))
    except ValueError:
        raise PipelineError(f"{store.url(path)} is damaged: it was changed from outside") from None


class LocalStore:
    """A folder on this machine."""

    def __init__(self, root: str) -> None:
        self.root = str(Path(root).expanduser().absolute())

    def path(self, path: str) -> Path:
        return Path(self.root, path)

    @property
    def filesystem(self) -> Any:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem()

    def key(self, path: str = "") -> str:
        """The file's name in Arrow's file system."""
        return str(self.path(path))

    def prepare(self, path: str) -> None:
        """Create a folder for new files."""
        self.path(path).mkdir(parents=True, exist_ok=True)

    def delta_options(self) -> dict[str, str]:
        return {}

    def iceberg_options(self) -> dict[str, str]:
        return {}

    def url(self, path: str = "") -> str:
        # Hadoop does not unquote the URL, so a quoted URL would refer to another file.
        return f"file://{self.path(path)}"

    def exists(self, path: str) -> bool:
        return self.path(path).exists()

    def read(self, path: str) -> bytes:
        return self.path(path).read_bytes()

    def _prepare(self, path: str, content: bytes) -> tuple[Path, Path]:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return temporary, target

    def write_new(self, path: str, content: bytes) -> None:
        temporary, target = self._prepare(path, content)
        try:
            os.link(temporary, target)
        finally:
            temporary.unlink()
        self._sync_folder(target.parent)

    def replace(self, path: str, content: bytes) -> None:
        temporary, target = self._prepare(path, content)
        temporary.replace(target)
        self._sync_folder(target.parent)

    def move(self, source: str, target: str) -> None:
        to = self.path(target)
        to.parent.mkdir(parents=True, exist_ok=True)
        self.path(source).rename(to)

    def delete(self, path: str) -> None:
        target = self.path(path)
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def names(self, path: str) -> list[str]:
        folder = self.path(path)
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def size(self, path: str) -> int:
        return self.path(path).stat().st_size

    def changed_ms(self, path: str) -> int:
        """When a file was last written, in epoch milliseconds."""
        return self.path(path).stat().st_mtime_ns // 1_000_000

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        for folder, _, files in os.walk(self.path(path)):
            for name in files:
                file = Path(folder, name)
                yield file.relative_to(self.root).as_posix(), file.stat().st_size

    def sync(self, path: str) -> None:
        descriptor = os.open(self.path(path), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self) -> Any:
        import fcntl

        path = self.path("_ottla/lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise PipelineError(f"another process writes to {self.root}; wait for it, or stop it") from None
        return file


ArrowStore = LocalStore | ObjectStore
"""The stores that Arrow reaches from every task, and that delta-rs and pyiceberg reach too."""


class HadoopStore:
    """Access through the driver's JVM. Only one writer at a time, because these file systems have no locks."""

    def __init__(self, root: str, spark: SparkSession) -> None:
        self.root = root.rstrip("/")
        self._jvm: Any = spark._jvm
        self._path_class = self._jvm.org.apache.hadoop.fs.Path
        self._files: Any = self._path_class(self.root).getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, path: str) -> Any:
        return self._path_class(f"{self.root}/{path}" if path else self.root)

    def url(self, path: str = "") -> str:
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def read(self, path: str) -> bytes:
        stream = self._files.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _write(self, path: str, content: bytes, overwrite: bool) -> None:
        stream = self._files.create(self._path(path), overwrite)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def write_new(self, path: str, content: bytes) -> None:
        # The `.tmp` suffix hides the file from readers until the rename, which fails if the name is taken.
        temporary = f"{path}.tmp"
        self._write(temporary, content, True)
        if self.exists(path) or not self._files.rename(self._path(temporary), self._path(path)):
            self.delete(temporary)
            raise FileExistsError(path)

    def replace(self, path: str, content: bytes) -> None:
        self._write(path, content, True)

    def move(self, source: str, target: str) -> None:
        to = self._path(target)
        self._files.mkdirs(to.getParent())
        if not self._files.rename(self._path(source), to):
            raise PipelineError(f"cannot move {self.url(source)} to {self.url(target)}")

    def delete(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def names(self, path: str) -> list[str]:
        if not self.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._path(path)))

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        if not self.exists(path):
            return
        base = self._path("").toUri().getPath().rstrip("/") + "/"
        found = self._files.listFiles(self._path(path), True)
        while found.hasNext():
            status = found.next()
            yield status.getPath().toUri().getPath().removeprefix(base), int(status.getLen())

    def sync(self, path: str) -> None:
        """Do nothing: a closed file is as durable as the file system makes it."""

    def lock(self) -> Any:
        return None
