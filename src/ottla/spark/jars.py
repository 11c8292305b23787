"""The jars of Spark's official Kafka connector, fetched once with Maven into the user's cache folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.spark.errors import SparkSetupError

SCALA: Final = "2.13"
CONNECTOR: Final = f"spark-sql-kafka-0-10_{SCALA}"
TOKEN_PROVIDER: Final = f"spark-token-provider-kafka-0-10_{SCALA}"
WANTED: Final = (CONNECTOR, TOKEN_PROVIDER, "kafka-clients", "commons-pool2")
OLDER_TOKEN_PROVIDER: Final = "4.0.0"
"""Mirrors do not always have the token provider of the newest Spark. This one works with all connectors of Spark 4."""
MAVEN_TIMEOUT_S: Final = 600
MISSING_S: Final = 24 * 3600
"""How long to wait before asking again for a connector that no repository has."""
_NOT_FOUND: Final = re.compile(r"Could not find artifact|was not found in|Failure to find")
_UNREACHABLE: Final = re.compile(r"Unknown host|Connection refused|Could not transfer|timed out|Network is unreachable")

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>spark-connector</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>{connector}</artifactId><version>{version}</version>
      <exclusions>
        <exclusion><groupId>org.apache.spark</groupId><artifactId>{provider}</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>{provider}</artifactId><version>{provider_version}</version>
    </dependency>
  </dependencies>
</project>
"""


def cache_folder() -> Path:
    """The folder for fetched jars: $XDG_CACHE_HOME/ottla, or ~/.cache/ottla."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def has_jars(version: str) -> bool:
    """Whether the connector is already in the cache, so that no download is needed."""
    return (cache_folder() / f"spark-connector-{version}").is_dir()


def is_missing(version: str, cache: Path | None = None) -> bool:
    """Whether an attempt less than a day ago found the connector in no repository."""
    note = _note(cache_folder() if cache is None else cache, version)
    return note.exists() and time.time() - note.stat().st_mtime < MISSING_S


def _note(base: Path, version: str) -> Path:
    return base / f".spark-connector-{version}.missing"


def connector_jars(version: str, cache: Path | None = None) -> list[Path]:
    """The connector for a Spark version, with its dependencies: four jars, 10 MB. Fetched on the first call.

    A version whose own connector is in no repository gets the connector of the newest patch release before it, which
    is made for the same Spark. The message of SparkSetupError is one line that says what is missing.
    """
    base = cache_folder() if cache is None else cache
    target = base / f"spark-connector-{version}"
    if not target.is_dir():
        if shutil.which("mvn") is None:
            raise SparkSetupError(
                "Maven (mvn) is not on PATH; it fetches Spark's Kafka connector. Install it, or use a session with "
                "connector=False, which has only format('ottla')"
            )
        base.mkdir(parents=True, exist_ok=True)
        with _only_one(base / f".spark-connector-{version}.lock"):
            if not target.is_dir():
                _fetch(version, base, target)
    return sorted(target.glob("*.jar"))


def _patches(version: str) -> list[str]:
    """The version itself, then the patch releases before it: 4.1.2, 4.1.1, 4.1.0."""
    minor, _, patch = version.rpartition(".")
    return [f"{minor}.{number}" for number in range(int(patch), -1, -1)] if patch.isdigit() else [version]


def _fetch(version: str, base: Path, target: Path) -> None:
    nowhere = f"Spark's Kafka connector {version} is in none of the repositories that Maven asks"
    if is_missing(version, base):
        raise SparkSetupError(nowhere)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=base) as work:
        for candidate in _patches(version):
            failure = ""
            for provider_version in dict.fromkeys((candidate, OLDER_TOKEN_PROVIDER)):
                failure = _maven(Path(work), candidate, provider_version)
                if not failure:
                    # A folder with this name is always complete, because only this rename creates it.
                    (Path(work) / "jars").rename(target)
                    return
                if CONNECTOR in failure:
                    break  # another token provider would not help
            if _UNREACHABLE.search(failure):
                raise SparkSetupError("Maven cannot reach its repositories to fetch Spark's Kafka connector")
            if not _NOT_FOUND.search(failure):
                raise SparkSetupError(f"Maven could not fetch {CONNECTOR} {candidate}: {failure}")
    _note(base, version).touch()
    raise SparkSetupError(nowhere)


def _maven(work: Path, version: str, provider_version: str) -> str:
    """Run Maven. Returns the empty string, or the reason for a failure."""
    pom = _POM.format(connector=CONNECTOR, provider=TOKEN_PROVIDER, version=version, provider_version=provider_version)
    (work / "pom.xml").write_text(pom)
    command = ["mvn", "-q", "-B", "-C", "-Dstyle.color=never", "-f", str(work / "pom.xml")]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DincludeArtifactIds={','.join(WANTED)}"]
    command += [f"-DoutputDirectory={work / 'jars'}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not finished after {MAVEN_TIMEOUT_S} s"
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line]
        return (errors or lines or [f"exit code {done.returncode}"])[0].strip()[:400]
    found = {jar.name for jar in (work / "jars").glob("*.jar")}
    missing = [name for name in WANTED if not any(jar.startswith(f"{name}-") for jar in found)]
    return f"{', '.join(missing)} was not fetched" if missing else ""


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock. A second process waits here, and then finds that the jars are fetched."""
    with path.open("w") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        except (ImportError, OSError):
            pass  # both fetch; the second rename fails, and the jars of the first are used
        yield
