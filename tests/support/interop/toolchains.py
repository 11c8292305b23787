"""Finds or builds what the drivers need: the Go binary, the Java classes, npm packages, kcat, librdkafka, an
old kafka-python.

Everything is built once, under a file lock, in `.cache/interop` of the project: parallel workers and later runs share
it. A missing toolchain skips the test, except under CI, where it fails: there a skip would hide a lost test.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HERE = ROOT / "tests" / "interop"
CACHE = ROOT / ".cache" / "interop"
BUILD_TIMEOUT_S = 900


def missing(what: str) -> None:
    """Ends the test: as a failure under CI, as a skip elsewhere."""
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(f"{what} (a skip elsewhere, a failure under CI)", pytrace=False)
    pytest.skip(what)


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            missing(f"needs {program} on PATH")


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(command: Sequence[str | Path], **options: object) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))} failed:\n{done.stdout}", pytrace=False)
    return str(done.stdout)


def digest(paths: Sequence[Path], *more: str) -> str:
    state = hashlib.sha256("\0".join(more).encode())
    for path in sorted(paths):
        state.update(path.read_bytes())
    return state.hexdigest()[:16]


def kafka_python_2() -> Path:
    """A folder with kafka-python 2.0.2 (and six, which it needs on Python 3.12 and later)."""
    folder = CACHE / "kafka-python-2.0.2"
    with locked("kafka-python-2"):
        if not (folder / ".done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            run(
                [sys.executable, "-m", "pip", "install", "-q", "--target", folder, "kafka-python==2.0.2", "six==1.17.0"]
            )
            (folder / ".done").touch()
    return folder


def go_binary(source: Path = HERE / "go", **environment: str) -> Path:
    need("go")
    binary = CACHE / f"go-clients-{digest([*source.glob('*.go'), source / 'go.mod', source / 'go.sum'])}"
    with locked("go"):
        if not binary.exists():
            made = binary.with_suffix(".new")
            run(["go", "build", "-o", made, "."], cwd=source, env={**os.environ, **environment})
            made.rename(binary)
    return binary


def kafka_jars(version: str = "4.3.1") -> Path:
    """The folder of Apache Kafka's jars, which the project's script fetches on first use."""
    need("java")
    done = subprocess.run(
        [ROOT / "scripts" / "kafka-jars", version], capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if done.returncode:
        missing(done.stderr.strip())
    return Path(done.stdout.strip())


def maven_jar(artifact: str) -> Path:
    """One jar of Maven Central, named group:artifact:version[:jar:classifier], without its dependencies."""
    need("java", "mvn")
    folder = CACHE / artifact.replace(":", "-")
    with locked(folder.name):
        if not folder.exists():
            made = folder.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            run(["mvn", "-q", "-B", "-C", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={made}"])
            made.rename(folder)
    (jar,) = folder.glob("*.jar")
    return jar


def streams_jar() -> Path:
    """Kafka Streams itself. With in-memory stores, the broker's jars contain everything else that it needs."""
    return maven_jar("org.apache.kafka:kafka-streams:4.3.1")


def java_classes() -> tuple[Path, Path]:
    """(folder of the compiled driver, folder of the jars)."""
    jars = kafka_jars()
    names = ("Administration.java", "Driver.java", "History.java", "Sharing.java")
    return compiled_java([HERE / "java" / name for name in names], f"{jars}/*"), jars


def compiled_java(sources: Sequence[Path], class_path: str) -> Path:
    need("javac")
    folder = CACHE / f"java-client-{digest(sources, class_path)}"
    with locked("java"):
        if not folder.exists():
            made = folder.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            run(["javac", "-nowarn", "-d", made, "-cp", class_path, *sources])
            made.rename(folder)
    return folder


# Short-lived JVMs: the quick compiler and the small collector start faster and leave the other core alone.
JAVA = ("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def node_modules(manifest: Path = HERE / "node" / "package.json") -> Path:
    need("node", "npm")
    folder = CACHE / f"node-{digest([manifest])}"
    with locked("node"):
        if not (folder / ".done").exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(manifest, folder)
            run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], cwd=folder)
            (folder / ".done").touch()
    return folder / "node_modules"


def rustup() -> dict[str, str]:
    """Where rustup keeps its toolchains: beside its commands, even if HOME is another folder."""
    command = shutil.which("cargo")
    toolchains = Path(command).parents[2] / ".rustup" if command else Path()
    return {"RUSTUP_HOME": str(toolchains)} if toolchains.is_dir() and "RUSTUP_HOME" not in os.environ else {}


def kcat() -> str:
    """The name of the kcat program. If it is missing, it is installed with the package manager where that is
    allowed."""
    names = ("kcat", "kafkacat")

    def found() -> str | None:
        return next((name for name in names if shutil.which(name)), None)

    with locked("kcat"):
        for package in names:
            if found() is None:
                _apt_get_install(package)
    name = found()
    if name is None:
        missing("needs kcat on PATH")
    return str(name)


def librdkafka() -> None:
    """Needs a C++ compiler and librdkafka's headers, which are installed like kcat."""
    need("cc", "c++")
    header = Path("/usr/include/librdkafka/rdkafkacpp.h")
    with locked("librdkafka"):
        if not header.exists():
            _apt_get_install("librdkafka-dev")
    if not header.exists():
        missing("needs the headers of librdkafka")


def _apt_get_install(package: str) -> None:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], env=quiet, capture_output=True, check=False)
        subprocess.run(["apt-get", "install", "-qy", package], env=quiet, capture_output=True, check=False)
