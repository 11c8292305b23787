"""Versions of PySpark other than the one most tests use, and jars from Maven, in the user's cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ottla.spark.jars import cache_folder

OLDEST, NEWEST = "4.0.0", "4.3.0"
"""The oldest and the newest version that pyproject.toml allows."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""


def pyspark_of(version: str) -> Path:
    """A folder to put in front of PYTHONPATH. PySpark takes minutes to build, so this is done once."""

    def install(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*command, f"pyspark=={version}"], check=True, timeout=1800)

    return _made_once(f"pyspark-{version}", install)


def jars_of(name: str, wanted: dict[str, str]) -> list[Path]:
    """The jars `group:artifact` -> version. An empty version means that the jar is a dependency of another one."""

    def fetch(folder: Path) -> None:
        folder.mkdir()
        parts = [(*key.split(":"), version) for key, version in wanted.items() if version]
        tags = ("groupId", "artifactId", "version")
        shown = ("".join(f"<{tag}>{text}</{tag}>" for tag, text in zip(tags, part, strict=True)) for part in parts)
        (folder / "pom.xml").write_text(_POM.format("".join(f"<dependency>{one}</dependency>" for one in shown)))
        names = ",".join(key.rpartition(":")[2] for key in wanted)
        command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-DincludeArtifactIds={names}", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=600)
        found = sorted(path.name for path in folder.glob("*.jar"))
        assert len(found) == len(wanted), found

    return sorted(_made_once(name, fetch).glob("*.jar"))


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache. Waits if another process is building the same folder."""
    base = cache_folder()
    base.mkdir(parents=True, exist_ok=True)
    target = base / name
    with (base / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            work = base / f".{name}.{os.getpid()}"
            shutil.rmtree(work, ignore_errors=True)
            make(work)
            work.rename(target)
    return target
