"""What users get when they install Ottla, with each of the tools that they install it with."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import ottla
from ottla.client import Client

from .conftest import ROOT, build

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
SOURCES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


def run(*command: object, env: dict[str, str], cwd: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def serves(command: Sequence[object], env: dict[str, str], cwd: Path) -> None:
    """The broker that a command starts answers a client, and stops on request."""
    words = [*map(str, command), "serve", "--port", "0", "--ephemeral", "--json"]
    with subprocess.Popen(words, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None and child.stderr is not None
            line = child.stdout.readline()
            assert line, child.stderr.read()
            started = json.loads(line)
            assert started["version"] == ottla.__version__

            async def ask() -> None:
                async with Client(started["bootstrap"]) as client:
                    assert (await client.refresh()).topics == {}

            asyncio.run(ask())
        finally:
            child.terminate()
        assert child.wait(30) == 0


def test_the_version_is_in_one_place(dist: list[Path]) -> None:
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    assert {path.name for path in dist} == {
        f"ottla-{ottla.__version__}-py3-none-any.whl",
        f"ottla-{ottla.__version__}.tar.gz",
    }


def test_the_metadata_is_complete() -> None:
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= PROJECT["urls"].keys()
    assert len({url.split("/")[3] for url in PROJECT["urls"].values()}) == 1
    lowest = re.search(r"3\.(\d+)", PROJECT["requires-python"])
    minors = [int(text.rpartition(".")[2]) for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert lowest is not None and minors == list(range(int(lowest[1]), max(minors) + 1))


def test_the_checks_of_the_index_pass(dist: list[Path], wheel: Path) -> None:
    for command in (["twine", "check", "--strict", *dist], ["check_wheel_contents", wheel]):
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_second_build_has_the_same_bytes(dist: list[Path], tmp_path: Path) -> None:
    """From another folder, with other file times and another umask."""
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in [*SOURCES, "/pyproject.toml", "/.gitignore"]:
        given, copied = ROOT / name[1:], copy / name[1:]
        shutil.copytree(given, copied) if given.is_dir() else shutil.copy(given, copied)
    for path in copy.rglob("*.py"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    again = build(copy, tmp_path / "dist", umask=0o077)
    assert [path.name for path in again] == [path.name for path in dist]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in dist]


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    package = ROOT / "src" / "ottla"
    expected = {
        f"ottla/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected
    assert {"ottla/py.typed", "ottla/console/static/index.html", "ottla/console/static/console.css"} <= names


def test_the_sdist_builds_the_same_wheel(dist: list[Path], wheel: Path, tmp_path: Path) -> None:
    archive = next(path for path in dist if path.name.endswith(".tar.gz"))
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    assert (tmp_path / "dist" / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that any user can enter. pytest's own folders are private, and each new pytest makes the outer one
    private again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.slow
def test_a_broker_installed_with_pip_serves(index: Path, public_folder: Path, bare_environment: dict[str, str]) -> None:
    """As an ordinary user, without a network and without a home folder that can be written."""
    home, read_only = public_folder / "home", public_folder / "read-only"
    for folder in (home, read_only):
        folder.mkdir()
        folder.chmod(0o555)
    env = {**bare_environment, "HOME": str(home)}
    run(sys.executable, "-m", "venv", "--without-pip", "venv", env=env, cwd=public_folder)
    programs = public_folder / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python"]
    run(*pip, "install", "--quiet", "--find-links", index, "ottla", env=env, cwd=public_folder)
    version = run(programs / "python", "-m", "ottla", "--version", env=env, cwd=public_folder)
    assert version.strip() == f"ottla {ottla.__version__}"
    at_home = list(home.iterdir())
    serves([*_as_nobody(), programs / "ottla"], env, read_only)
    assert list(read_only.iterdir()) == []
    assert list(home.iterdir()) == at_home


def _as_nobody() -> list[str]:
    """A command prefix that drops root, if the tests run as root."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uvx", "uv tool", "pipx"])
def test_a_broker_installed_with_a_tool_serves(
    index: Path, tool: str, tmp_path: Path, bare_environment: dict[str, str]
) -> None:
    bins = tmp_path / "bin"
    env = {
        **bare_environment,
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(bins),
        "UV_FIND_LINKS": str(index),
        "UV_NO_INDEX": "1",
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(bins),
        "PIPX_MAN_DIR": str(tmp_path / "man"),
        "PIP_FIND_LINKS": str(index),
        "PIPX_DEFAULT_BACKEND": "uv",
    }
    beside = Path(sys.executable).parent
    if tool == "uvx":
        serves([beside / "uvx", "--python", sys.executable, "--from", "ottla", "ottla"], env, tmp_path)
        return
    if tool == "uv tool":
        run(beside / "uv", "tool", "install", "--python", sys.executable, "ottla", env=env, cwd=tmp_path)
    else:
        run(sys.executable, "-m", "pipx", "install", "ottla", env=env, cwd=tmp_path)
    serves([bins / "ottla"], env, tmp_path)
