"""The packages of the image and of a release are locked by hashes, and pip refuses all others."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .conftest import ROOT

LOCKS = sorted((ROOT / "scripts" / "locks").glob("*.txt"))
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def locked(path: Path) -> dict[str, Requirement]:
    lines = (line.removesuffix(" \\") for line in path.read_text().splitlines() if not line.startswith(" "))
    return {canonicalize_name(each.name): each for each in map(Requirement, lines)}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_each_package_has_one_version_and_hashes_and_no_address(path: Path) -> None:
    """Hashes are the same on every index and mirror; an address belongs to only one of them."""
    lines = path.read_text().splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(" "):
            assert HASH.fullmatch(line)
        else:
            assert re.match(r"[a-z0-9-]+==\S+ ", line) and line.endswith(" \\") and following.startswith(" ")


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_the_versions_are_those_that_tests_run_with(path: Path) -> None:
    lines = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    tested = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    for name, requirement in locked(path).items():
        assert str(requirement.specifier) == f"=={tested.get(name, '')}" or name not in tested


def test_the_lock_of_the_image_fits_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ("metrics", "regex", "security")
    packages = locked(ROOT / "scripts" / "locks" / "image.txt")
    optional = (text for name in extras for text in project["optional-dependencies"][name])
    for text in [*project["dependencies"], *optional]:
        wanted = Requirement(text)
        (version,) = packages[canonicalize_name(wanted.name)].specifier
        assert wanted.specifier.contains(version.version), f"{text}: run scripts/lock"


@pytest.mark.slow
def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    shutil.copy(ROOT / "scripts" / "install-locked", tmp_path)
    lock = (ROOT / "scripts" / "locks" / "build.txt").read_text()
    (tmp_path / "locks" / "build.txt").write_text(re.sub(r"sha256:\w+", f"sha256:{'0' * 64}", lock))
    command = [tmp_path / "install-locked", "build", tmp_path / "made", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["image-root", "release"])
def test_scripts_that_ship_install_nothing_without_hashes(name: str) -> None:
    text = (ROOT / "scripts" / name).read_text()
    assert "install-locked" in text
    assert all("--no-index" in call for call in re.findall(r"pip install(?:.*\\\n)*.*", text))


def test_a_release_names_the_bases_of_the_image_by_digest(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\ncase $* in *slim) echo sha256:51 ;; *) echo sha256:f0 ;; esac\n")
    docker.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [ROOT / "scripts" / "image-bases"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "BUILD_BASE=python:3.13@sha256:f0\nBASE=python:3.13-slim@sha256:51\n"
    docker.write_text("#!/bin/sh\necho nothing\n")
    refused = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1 and "no digest for python:3.13" in refused.stderr
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "scripts/image-bases" in workflow and "build-args:" in workflow
