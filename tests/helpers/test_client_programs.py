"""The programs of examples/clients do a round trip on a broker, each with the client that the tests use anyway.

Three of them are only checked, because their clients take too long to install; `scripts/compatibility` runs those too.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from support.interop.toolchains import (
    HERE,
    JAVA,
    ROOT,
    compiled_java,
    kafka_jars,
    librdkafka,
    locked,
    need,
    node_modules,
    run,
    rustup,
    streams_jar,
)

PROGRAMS = ROOT / "examples" / "clients"
PYTHON = ("kafka_python.py", "aiokafka_client.py", "confluent.py")
GO = ("franz_go.go", "sarama.go", "kafka_go.go")
NATIVE = {"librdkafka.c": ("cc", "-lrdkafka"), "librdkafka.cpp": ("c++", "-lrdkafka++")}
OTHERS = ("RoundTrip.java", "Upper.java", "kafkajs.js")
CHECKED_ONLY = ("Shop.java", "platformatic.mjs", "rdkafka.rs")

pytestmark = pytest.mark.slow


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with ottla.serve(partitions=1) as broker:
        yield broker.bootstrap


def test_every_program_is_here() -> None:
    named = {*PYTHON, *GO, *NATIVE, *OTHERS, *CHECKED_ONLY}
    assert named == {path.name for path in PROGRAMS.iterdir()}


@pytest.mark.parametrize("program", PYTHON)
def test_a_python_program_runs(program: str, bootstrap: str) -> None:
    assert run([sys.executable, PROGRAMS / program, bootstrap, "orders"]).endswith("ok\n")


@pytest.mark.go
@pytest.mark.parametrize("program", GO)
def test_a_go_program_runs(program: str, bootstrap: str, tmp_path: Path) -> None:
    need("go")
    with locked("go"):
        # In the folder of the drivers, so that the versions of the clients are those of its go.mod.
        run(["go", "build", "-o", tmp_path / "program", PROGRAMS / program], cwd=HERE / "go")
    assert run([tmp_path / "program", bootstrap, "orders"]).endswith("ok\n")


@pytest.mark.jvm
def test_the_java_program_runs(bootstrap: str) -> None:
    jars = kafka_jars()
    classes = compiled_java([PROGRAMS / "RoundTrip.java"], f"{jars}/*")
    assert run([*JAVA, "-cp", f"{classes}:{jars}/*", "RoundTrip", bootstrap, "orders"]).endswith("ok\n")


@pytest.mark.jvm
def test_the_kafka_streams_program_runs(bootstrap: str) -> None:
    jars = f"{kafka_jars()}/*:{streams_jar()}"
    classes = compiled_java([PROGRAMS / "Upper.java"], jars)
    assert "HELLO 0\nHELLO 1\nHELLO 2\nok\n" in run([*JAVA, "-cp", f"{classes}:{jars}", "Upper", bootstrap, "orders"])


@pytest.mark.node
def test_the_kafkajs_program_runs(bootstrap: str) -> None:
    environment = {**os.environ, "NODE_PATH": str(node_modules())}
    assert run(["node", PROGRAMS / "kafkajs.js", bootstrap, "orders"], env=environment).endswith("ok\n")


@pytest.mark.parametrize("program", NATIVE)
def test_a_program_with_librdkafka_runs(program: str, bootstrap: str, tmp_path: Path) -> None:
    librdkafka()
    compiler, library = NATIVE[program]
    run([compiler, "-Wall", "-Werror", "-o", tmp_path / "program", PROGRAMS / program, library])
    assert run([tmp_path / "program", bootstrap, "orders"]).endswith("ok\n")


@pytest.mark.jvm
def test_the_spring_boot_program_is_valid_java(tmp_path: Path) -> None:
    """Without Spring's jars, the compiler may report only missing names of Spring."""
    need("javac")
    command = ["javac", "-d", str(tmp_path), "-Xmaxerrs", "1000", str(PROGRAMS / "Shop.java")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    errors = re.findall(r"error: (.*)", done.stderr)
    assert errors
    assert [
        error for error in errors if not re.match(r"package org\.springframework\.|cannot find symbol", error)
    ] == []
    missing = set(re.findall(r"symbol: +(?:class|variable) (\w+)", done.stderr))
    imported = set(re.findall(r"import org\.springframework\.[\w.]+\.(\w+);", (PROGRAMS / "Shop.java").read_text()))
    assert missing <= imported


@pytest.mark.node
def test_the_platformatic_program_is_valid_javascript() -> None:
    need("node")
    run(["node", "--check", PROGRAMS / "platformatic.mjs"])


def test_the_rust_program_is_valid_and_formatted() -> None:
    need("rustfmt")
    run(["rustfmt", "--check", "--edition", "2021", PROGRAMS / "rdkafka.rs"], env={**os.environ, **rustup()})
