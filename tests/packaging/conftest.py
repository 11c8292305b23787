"""The package as it would be published: built once, with a folder of everything that it needs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(source: Path, target: Path, **options: Any) -> list[Path]:
    """The sdist and the wheel of a checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", target]
    subprocess.run(command, cwd=source, check=True, capture_output=True, **options)
    return sorted(target.iterdir())


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def wheel(dist: list[Path]) -> Path:
    return next(path for path in dist if path.suffix == ".whl")


@pytest.fixture(scope="session")
def index(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to install from without a network. It contains only wheels, so no compiler is needed."""
    folder = tmp_path_factory.mktemp("index")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", folder, wheel]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def bare_environment(tmp_path: Path) -> dict[str, str]:
    """No settings of this machine's pip or uv, and no folder of the user that can be written."""
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(home), "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
