"""How a broker for tests is made: what each option means, checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
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
from ottla.server.api import Registry, registered_apis
from ottla.server.randomness import SeededRandomness

if TYPE_CHECKING:
    from ottla.embedded import releases
else:
    releases = lazy("ottla.embedded.releases")

ClockOption: TypeAlias = Clock | Literal["system", "virtual"] | None


class PlainOptions(TypedDict, total=False):
    """Options that are plain values, which another process can be given too."""

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
    console: int | None


class InProcessOptions(TypedDict, total=False):
    """The options of a broker in this process, beside its config; `Broker` says what they mean."""

    data: str | PathLike[str] | None
    preset: str
    settings: Mapping[str, object] | None
    partitions: int | None
    host: str
    port: int
    clock: ClockOption
    as_version: str | None
    control: int | None
    seed: int | None
    console: int | None
    disk: Disk | None
    chance: Randomness | None
    registry: Registry | None


@dataclass(frozen=True)
class Options:
    """What one may say about a broker; the same words for `Broker`, `serve`, `spawn` and the pytest fixtures."""

    config: Config | None = None
    data: str | PathLike[str] | None = None
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
    registry: Registry | None = None
    console: int | None = None

    def make_config(self) -> Config:
        if self.config is not None:
            if self.settings or self.partitions is not None:
                raise ValueError("pass either config= or settings=/partitions=, not both: a Config is complete")
            return self.config
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port} is not a port; 0 takes a free one")
        overrides: dict[str, object] = {"listeners": f"PLAINTEXT://{self.host}:{self.port}", **(self.settings or {})}
        if self.partitions is not None:
            if self.partitions < 1:
                raise ValueError(f"partitions={self.partitions}: a topic has at least one")
            overrides["num.partitions"] = self.partitions
        if self.data is not None:
            overrides.setdefault("log.dirs", fspath(self.data))
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

    def make_disk(self, clock: Clock) -> tuple[Disk, DiskFaults | None]:
        if self.disk is not None:
            if self.data is not None:
                raise ValueError("pass either data= or disk=, not both")
            return self.disk, None
        disk: FaultyDisk = FaultyMemoryDisk(clock) if self.data is None else FaultyPosixDisk(fspath(self.data))
        return disk, disk.faults

    def make_chance(self) -> Randomness | None:
        if self.chance is not None or self.seed is None:
            return self.chance
        return SeededRandomness(self.seed)

    def make_registry(self) -> Registry:
        if self.registry is not None:
            return self.registry
        if self.as_version is None:
            return registered_apis()
        return releases.registry_of(self.as_version)
