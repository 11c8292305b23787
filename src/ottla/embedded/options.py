"""The options of a broker for tests. They are checked before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from ottla.clock import Clock, SystemClock
from ottla.config import Config
from ottla.embedded.clock import VirtualClock
from ottla.embedded.disk import DiskFaults, FaultyDisk, FaultyMemoryDisk, FaultyPosixDisk
from ottla.lazy_imports import lazy
from ottla.log.files import Disk
from ottla.metadata.controller import Randomness
from ottla.registry.options import RegistryOptions
from ottla.server.api import Registry, registered_apis
from ottla.server.randomness import SeededRandomness

if TYPE_CHECKING:
    import difflib

    from ottla.embedded import releases, several_folders
    from ottla.embedded import securing as securing_module
    from ottla.embedded.securing import Securing
else:
    difflib = lazy("difflib")
    releases = lazy("ottla.embedded.releases")
    securing_module = lazy("ottla.embedded.securing")
    several_folders = lazy("ottla.embedded.several_folders")

ClockOption: TypeAlias = Clock | Literal["system", "virtual"] | None
Data: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]] | None
"""The data folder, or several of them; None keeps everything in memory."""


class PlainOptions(TypedDict, total=False):
    """Options that are plain values and can be passed to another process."""

    data: str | PathLike[str] | None
    preset: str
    settings: Mapping[str, object] | None
    partitions: int | None
    host: str
    port: int
    clock: Literal["system", "virtual"] | None
    as_version: str | None
    control: int | None
    seed: int | None
    tls: bool
    users: Mapping[str, str] | None
    acls: Sequence[str] | None
    console: int | None
    registry: int | None


class InProcessOptions(TypedDict, total=False):
    """The options of a broker in this process, except its config; see `Broker`."""

    data: Data
    preset: str
    settings: Mapping[str, object] | None
    partitions: int | None
    host: str
    port: int
    clock: ClockOption
    as_version: str | None
    control: int | None
    seed: int | None
    tls: bool
    users: Mapping[str, str] | None
    acls: Sequence[str] | None
    console: int | None
    registry: int | RegistryOptions | None
    disk: Disk | None
    chance: Randomness | None
    apis: Registry | None


def check_names(options: Iterable[str]) -> None:
    """Raise TypeError for an unknown option. Python's own error would name an internal class."""
    known = [*InProcessOptions.__annotations__, "config"]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the options are {', '.join(known)}"
            raise TypeError(f"there is no option {name}; {hint}")


def data_folders(data: Data) -> list[str]:
    if data is None:
        return []
    folders = [fspath(data)] if isinstance(data, (str, PathLike)) else [fspath(folder) for folder in data]
    if not folders:
        raise ValueError("data=[]: name at least one folder")
    return folders


@dataclass(frozen=True)
class Options:
    """The options of a broker; the same for `Broker`, `serve`, `spawn` and the pytest fixtures."""

    config: Config | None = None
    data: Data = None
    preset: str = "test"
    settings: Mapping[str, object] | None = None
    partitions: int | None = None
    host: str = "127.0.0.1"
    port: int = 0
    clock: ClockOption = None
    as_version: str | None = None
    control: int | None = None
    seed: int | None = None
    disk: Disk | None = None
    chance: Randomness | None = None
    apis: Registry | None = None
    console: int | None = None
    registry: int | RegistryOptions | None = None
    tls: bool = False
    users: Mapping[str, str] | None = None
    acls: Sequence[str] | None = None

    def make_securing(self) -> Securing | None:
        """The security of the broker; None if it is open to everyone."""
        if not self.tls and not self.users and self.acls is None:
            return None
        if self.config is not None:
            raise ValueError("pass either config= or tls=/users=/acls=, not both: a Config is complete")
        return securing_module.Securing(self.tls, self.users or {}, self.acls)

    def make_config(self, securing: Securing | None = None) -> Config:
        if self.config is not None:
            if self.settings or self.partitions is not None:
                raise ValueError("pass either config= or settings=/partitions=, not both: a Config is complete")
            return self.config
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port} is not a port; 0 chooses a free one")
        protocol = "PLAINTEXT" if securing is None else securing.protocol
        overrides: dict[str, object] = {
            "listeners": f"{protocol}://{self.host}:{self.port}",
            **({} if securing is None else securing.settings(self.host)),
            **(self.settings or {}),
        }
        if self.partitions is not None:
            if self.partitions < 1:
                raise ValueError(f"partitions={self.partitions}: a topic has at least one")
            overrides["num.partitions"] = self.partitions
        if self.data is not None:
            overrides.setdefault("log.dirs", ",".join(self.folders))
        config = Config.load(preset=self.preset, overrides=overrides, origin="settings")
        if config.warnings:
            raise ValueError(config.warnings[0])
        return config

    def make_clock(self) -> Clock:
        if self.clock is None or self.clock == "system":
            return SystemClock()
        if self.clock == "virtual":
            return VirtualClock()
        if isinstance(self.clock, str):
            raise ValueError(f"clock={self.clock!r}: pass 'virtual', 'system' or a clock")
        return self.clock

    @property
    def folders(self) -> list[str]:
        """The data folders; empty for a broker in memory."""
        return data_folders(self.data)

    def make_disk(self, clock: Clock) -> tuple[Disk, DiskFaults | None]:
        if self.disk is not None:
            if self.data is not None:
                raise ValueError("pass either data= or disk=, not both")
            return self.disk, None
        folders = self.folders
        disk: FaultyDisk
        if len(folders) > 1:
            disk = several_folders.FaultyMultiDirDisk(folders)
        else:
            disk = FaultyPosixDisk(folders[0]) if folders else FaultyMemoryDisk(clock)
        return disk, disk.faults

    def make_chance(self) -> Randomness | None:
        if self.chance is not None or self.seed is None:
            return self.chance
        return SeededRandomness(self.seed)

    def make_registry(self) -> RegistryOptions | None:
        """The options of the schema registry; None without a registry."""
        return None if self.registry is None else RegistryOptions.of(self.registry)

    def make_apis(self) -> Registry:
        if self.apis is not None:
            return self.apis
        if self.as_version is None:
            return registered_apis()
        return releases.registry_of(self.as_version)
