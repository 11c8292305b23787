"""Runs examples/clients with many releases of each client, and keeps the results for docs/compatibility.md.

    scripts/compatibility [CLIENT …]     all clients, or only these; takes about ten minutes

Each program writes three records and reads them in a consumer group. Packages come from the usual registries.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import ottla

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "clients"
RESULTS = ROOT / "docs" / "compatibility.json"
TIMEOUT_S = 1200


class ClientRow(NamedTuple):
    language: str
    program: str
    versions: tuple[str, ...]
    run: Callable[[str, str, str, list[str], Path], list[list[str]]]
    """Commands for (package, program, version, arguments, folder); the last command must print ok."""


def with_uv(package: str, program: str, version: str, arguments: list[str], folder: Path) -> list[list[str]]:
    extra = ["--with", "async-timeout", "--with", "setuptools<81", "--with", "six"]
    command = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project", "--python", sys.executable]
    return [[*command, *extra, "--with", f"{package}=={version}", "python", str(EXAMPLES / program), *arguments]]


def with_go(package: str, program: str, version: str, arguments: list[str], folder: Path) -> list[list[str]]:
    shutil.copy(EXAMPLES / program, folder / "main.go")
    (folder / "go.mod").write_text(f"module example\n\ngo 1.21\n\nrequire {package} {version}\n")
    return [["go", "mod", "tidy"], ["go", "build", "-o", "example", "."], ["./example", *arguments]]


def with_node(package: str, program: str, version: str, arguments: list[str], folder: Path) -> list[list[str]]:
    shutil.copy(EXAMPLES / program, folder)
    (folder / "package.json").write_text("{}")
    # The package `node` brings Node.js itself: newer clients need more than a system may have.
    install = ["npm", "install", "--silent", f"{package}@{version}", "node@22"]
    return [install, ["node_modules/.bin/node", program, *arguments]]


def with_java(package: str, program: str, version: str, arguments: list[str], folder: Path) -> list[list[str]]:
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>"
        f"<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>{package}</artifactId>"
        f"<version>{version}</version></dependency></dependencies></project>"
    )
    return [
        ["mvn", "-q", "-B", "-C", "dependency:copy-dependencies", "-DoutputDirectory=lib"],
        ["javac", "-cp", "lib/*", "-d", ".", str(EXAMPLES / program)],
        ["java", "-cp", "lib/*:.", "RoundTrip", *arguments],
    ]


def with_streams(package: str, program: str, version: str, arguments: list[str], folder: Path) -> list[list[str]]:
    fetch, _, _ = with_java(package, program, version, arguments, folder)
    compile_ = ["javac", "-cp", "lib/*", "-d", ".", str(EXAMPLES / program)]
    return [fetch, compile_, ["java", "-cp", "lib/*:.", "Upper", *arguments]]


def with_spring(package: str, program: str, version: str, arguments: list[str], folder: Path) -> list[list[str]]:
    boot = "<groupId>org.springframework.boot</groupId>"
    (folder / "pom.xml").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><parent>{boot}<artifactId>{package}</artifactId><version>{version}"
        "</version></parent><groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>"
        f"<dependency>{boot}<artifactId>spring-boot-starter</artifactId></dependency><dependency>"
        "<groupId>org.springframework.kafka</groupId><artifactId>spring-kafka</artifactId></dependency>"
        "</dependencies></project>"
    )
    settings = [f"--spring.kafka.bootstrap-servers={arguments[0]}", f"--shop.topic={arguments[1]}"]
    return [
        ["mvn", "-q", "-B", "-C", "dependency:copy-dependencies", "-DoutputDirectory=lib"],
        ["javac", "-parameters", "-cp", "lib/*", "-d", ".", str(EXAMPLES / program)],
        ["java", "-cp", "lib/*:.", "shop.Shop", "--logging.level.root=WARN", *settings],
    ]


def with_compiler(package: str, program: str, version: str, arguments: list[str], folder: Path) -> list[list[str]]:
    """Use the librdkafka of the system; the version is the one that its package manager installed."""
    compiler, library = ("c++", "-lrdkafka++") if program.endswith(".cpp") else ("cc", "-lrdkafka")
    return [[compiler, "-o", "example", str(EXAMPLES / program), library], ["./example", *arguments]]


def with_cargo(package: str, program: str, version: str, arguments: list[str], folder: Path) -> list[list[str]]:
    (folder / "src").mkdir()
    shutil.copy(EXAMPLES / program, folder / "src" / "main.rs")
    manifest = '[package]\nname = "example"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n'
    (folder / "Cargo.toml").write_text(f'{manifest}{package} = "={version}"\n')
    return [["cargo", "build", "--quiet"], ["target/debug/example", *arguments]]


CLIENTS: dict[str, ClientRow] = {
    "kafka-python": ClientRow("Python", "kafka_python.py", ("2.0.6", "2.1.6", "2.2.21", "2.3.3", "3.0.12"), with_uv),
    "aiokafka": ClientRow("Python", "aiokafka_client.py", ("0.9.0", "0.10.0", "0.11.0", "0.12.0", "0.14.0"), with_uv),
    "confluent-kafka": ClientRow("Python", "confluent.py", ("2.0.2", "2.3.0", "2.6.1", "2.10.1", "2.16.1"), with_uv),
    "github.com/twmb/franz-go": ClientRow("Go", "franz_go.go", ("v1.14.0", "v1.17.1", "v1.19.5", "v1.22.2"), with_go),
    "github.com/IBM/sarama": ClientRow("Go", "sarama.go", ("v1.41.3", "v1.43.3", "v1.46.3", "v1.61.1"), with_go),
    "github.com/segmentio/kafka-go": ClientRow("Go", "kafka_go.go", ("v0.4.42", "v0.4.47", "v0.4.51"), with_go),
    "kafkajs": ClientRow("Node.js", "kafkajs.js", ("1.16.0", "2.0.2", "2.1.0", "2.2.4"), with_node),
    "@platformatic/kafka": ClientRow("Node.js", "platformatic.mjs", ("1.20.0", "1.35.0", "2.4.0", "2.12.1"), with_node),
    "kafka-clients": ClientRow(
        "Java", "RoundTrip.java", ("2.1.1", "2.8.2", "3.0.2", "3.6.2", "3.9.1", "4.0.0", "4.3.1"), with_java
    ),
    "kafka-streams": ClientRow("Java", "Upper.java", ("4.3.1",), with_streams),
    "spring-boot-starter-parent": ClientRow("Java", "Shop.java", ("3.5.6",), with_spring),
    "librdkafka (C)": ClientRow("C", "librdkafka.c", ("2.0.2",), with_compiler),
    "librdkafka (C++)": ClientRow("C++", "librdkafka.cpp", ("2.0.2",), with_compiler),
    "rdkafka": ClientRow("Rust", "rdkafka.rs", ("0.38.0",), with_cargo),
}


def outcome(package: str, row: ClientRow, version: str, bootstrap: str) -> str:
    """`ok`, or the last line of output, which contains the reason."""
    topic = "".join(letter if letter.isalnum() else "-" for letter in f"{package}-{version}").strip("-")
    with tempfile.TemporaryDirectory() as folder:
        for command in row.run(package, row.program, version, [bootstrap, topic], Path(folder)):
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            if done.returncode:
                break
    said = (done.stdout if not done.returncode else done.stderr).strip().splitlines()
    return said[-1] if said else f"exit code {done.returncode}"


def main() -> int:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = 0
    for package, row in CLIENTS.items():
        if sys.argv[1:] and package not in sys.argv[1:]:
            continue
        versions = {}
        for version in row.versions:
            with ottla.spawn(partitions=1) as broker:
                versions[version] = outcome(package, row, version, broker.bootstrap)
            failed += versions[version] != "ok"
            print(f"{package} {version}: {versions[version]}", flush=True)
        results[package] = {"language": row.language, "date": f"{datetime.now(UTC):%Y-%m-%d}", "versions": versions}
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
