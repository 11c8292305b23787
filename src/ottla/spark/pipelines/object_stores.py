"""S3-compatible buckets, reached with Arrow's own client from the driver and from tasks: no jars, and no renames.

A bucket has no locks and cannot move a file. Only the method of Delta and Iceberg is safe: files with unique names,
and one small conditional write, or one change in a catalog, that makes them part of the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCHEMES: Final = ("s3",)
_HADOOP_BUCKETS: Final = ("s3a", "s3n")
_ARROW: Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
}
_ICEBERG: Final = {
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
    "s3.endpoint": "AWS_ENDPOINT_URL",
}
_VARIABLES: Final = tuple(_ICEBERG.values())


def is_bucket(location: str) -> bool:
    return urlsplit(location).scheme in SCHEMES


def check_location(location: str | None) -> None:
    """Refuse bucket URLs of Hadoop. Its renames in a bucket are copies, so a commit by renames would not be safe."""
    scheme = urlsplit(location or "").scheme
    if scheme in _HADOOP_BUCKETS:
        raise PipelineError(f"{scheme}:// is not supported; write s3://BUCKET/PATH and add --format delta or iceberg")


class ObjectStore:
    """A folder of a bucket, `s3://BUCKET/PATH`. The endpoint and login come from the AWS_… variables."""

    def __init__(self, root: str) -> None:
        parts = urlsplit(root)
        self._base = f"{parts.netloc}{parts.path}".rstrip("/")
        if not parts.netloc:
            raise PipelineError(f"{root} names no bucket: write s3://BUCKET/PATH")
        self.root = f"{parts.scheme}://{self._base}"
        # The driver's variables: the processes of tasks have other variables, or run on other machines.
        self._login = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
        self._made: Any = None

    def __repr__(self) -> str:
        return f"ObjectStore({self.root!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state

    @property
    def filesystem(self) -> FileSystem:
        if self._made is None:
            from pyarrow.fs import S3FileSystem

            endpoint = urlsplit(self._login.get("AWS_ENDPOINT_URL", ""))
            options: dict[str, Any] = {
                name: self._login[variable] for name, variable in _ARROW.items() if variable in self._login
            }
            if endpoint.netloc:
                options |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
            self._made = S3FileSystem(**options)
        return self._made

    def key(self, path: str = "") -> str:
        """The file's name in Arrow's file system."""
        return f"{self._base}/{path}" if path else self._base

    def url(self, path: str = "") -> str:
        return f"{self.root}/{path}" if path else self.root

    def _info(self, path: str) -> Any:
        return self.filesystem.get_file_info(self.key(path))

    def exists(self, path: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self._info(path).type != FileType.NotFound)

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_file(self.key(path)) as file:
            return bytes(file.read())

    def write_new(self, path: str, content: bytes) -> None:
        if self.exists(path):
            raise FileExistsError(path)
        self.replace(path, content)

    def replace(self, path: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(self.key(path)) as file:
            file.write(content)

    def move(self, source: str, target: str) -> None:
        """Copy, then delete. That is safe, because nothing refers to either file yet."""
        self.filesystem.copy_file(self.key(source), self.key(target))
        self.filesystem.delete_file(self.key(source))

    def delete(self, path: str) -> None:
        from pyarrow.fs import FileType

        kind = self._info(path).type
        if kind == FileType.Directory:
            self.filesystem.delete_dir(self.key(path))
        elif kind == FileType.File:
            self.filesystem.delete_file(self.key(path))

    def _below(self, path: str, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        found: list[Any] = self.filesystem.get_file_info(
            FileSelector(self.key(path), allow_not_found=True, recursive=recursive)
        )
        return found

    def names(self, path: str) -> list[str]:
        return sorted(one.base_name for one in self._below(path, False))

    def size(self, path: str) -> int:
        return int(self._info(path).size)

    def changed_ms(self, path: str) -> int:
        return int(self._info(path).mtime_ns) // 1_000_000

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        from pyarrow.fs import FileType

        for one in self._below(path, True):
            if one.type == FileType.File:
                yield one.path.removeprefix(f"{self._base}/"), int(one.size)

    def prepare(self, path: str) -> None:
        """Do nothing: a bucket has no folders."""

    def sync(self, path: str) -> None:
        """Do nothing: uploads are durable."""

    def lock(self) -> Any:
        return None

    # --- for the packages that commit --------------------------------------------------------------------------------

    def delta_options(self) -> dict[str, str]:
        """Plain HTTP must be allowed explicitly."""
        local = self._login.get("AWS_ENDPOINT_URL", "").startswith("http://")
        return {**self._login, **({"AWS_ALLOW_HTTP": "true"} if local else {})}

    def iceberg_options(self) -> dict[str, str]:
        return {name: self._login[variable] for name, variable in _ICEBERG.items() if variable in self._login}
