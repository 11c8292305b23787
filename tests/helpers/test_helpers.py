"""The helpers for other languages, each with its own tests, run as users run them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.interop.toolchains import CACHE, ROOT, digest, locked, need, run, rustup

HELPERS = ROOT / "helpers"
PAGE = ROOT / "docs" / "other-languages.md"
ENVIRONMENT = {**os.environ, "OTTLA_COMMAND": f"{sys.executable} -m ottla"}


@pytest.fixture
def copied() -> Callable[[str], Path]:
    """A copy of a helper where its tools may write files, which later runs reuse."""

    def copy(name: str) -> Path:
        folder = CACHE / f"helper-{name}"
        shutil.copytree(HELPERS / name, folder, dirs_exist_ok=True)
        return folder

    return copy


def shown(language: str) -> str:
    """The example on the page about other languages, which is compiled with the helper's own tests."""
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), flags=re.S | re.M)
    return str(code)


@pytest.mark.go
def test_go(copied: Callable[[str], Path]) -> None:
    need("go")
    with locked("helper-go"):
        folder = copied("go")
        example = shown("go").replace("import ottlatest", 'import "testing"\nimport "time"\nimport ottlatest')
        wrapped = f"package test\n\n{example}\nfunc runBilling(bootstrap string) {{}}\n".replace(
            "TestBilling", "example"
        )
        (folder / "test" / "shown_test.go").write_text(f"{wrapped}\nvar _ = example\n")
        run(["go", "vet", "./..."], cwd=folder, env=ENVIRONMENT)
        run(["go", "test", "-count=1", "./..."], cwd=folder / "test", env=ENVIRONMENT)


@pytest.mark.node
def test_node(copied: Callable[[str], Path]) -> None:
    need("node", "npm")
    with locked("helper-node"):
        folder = copied("node")
        done = folder / f".installed-{digest([HELPERS / 'node' / 'package.json'])}"
        if not done.exists():
            run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], cwd=folder)
            done.touch()
        run(["npm", "test"], cwd=folder, env=ENVIRONMENT)


@pytest.mark.jvm
def test_java(copied: Callable[[str], Path]) -> None:
    need("java", "mvn")
    with locked("helper-java"):
        folder = copied("java")
        spring = "org.springframework.test.context"
        imports = [
            "java.time.Duration",
            "org.junit.jupiter.api.Test",
            "org.junit.jupiter.api.extension.RegisterExtension",
            f"{spring}.DynamicPropertyRegistry",
            f"{spring}.DynamicPropertySource",
        ]
        lines = "".join(f"import {name};\n" for name in imports)
        # By its name it is not a test class for Maven: it is only compiled.
        example = f"package io.github.ottla;\n\n{lines}\nabstract class Shown {{\n{shown('java')}}}\n"
        (folder / "src/test/java/io/github/ottla/Shown.java").write_text(example)
        run(["mvn", "-q", "-B", "-C", "test"], cwd=folder, env=ENVIRONMENT)


@pytest.mark.slow
def test_rust(copied: Callable[[str], Path]) -> None:
    need("cargo")
    with locked("helper-rust"):
        folder = copied("rust")
        ignored = '#[test]\n#[ignore = "it is compiled only"]\n'
        example = f"use std::time::Duration;\n\n{ignored}fn shown() {{\n{shown('rust')}}}\n"
        (folder / "tests" / "shown.rs").write_text(example)
        run(["cargo", "test", "-q", "--locked"], cwd=folder, env={**ENVIRONMENT, **rustup()})
