"""Files for other systems: compose, Kubernetes, the GitHub Action, workflows, releases."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import ottla
from ottla.config import Config
from ottla.image.environment import from_environment
from support.interop import toolchains
from support.ports import free_ports
from support.wire import Wire

from .conftest import ROOT

ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
YAML_FILES = sorted(
    path
    for pattern in (
        "*.yml",
        "*.yaml",
        "*.cff",
        ".*.yaml",
        ".github/**/*.yml",
        "examples/**/*.yml",
        "examples/**/*.yaml",
    )
    for path in ROOT.glob(pattern)
)


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_can_be_read(path: Path) -> None:
    assert all(document for document in yaml.safe_load_all(path.read_text()))


@pytest.mark.go
@pytest.mark.slow
def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    toolchains.need("go")
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(workflows) >= 3
    command = ["go", "run", ACTIONLINT, "-no-color", *workflows]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflows_try_every_python_that_the_package_names() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = {text.rpartition(" ")[2] for text in classifiers if re.search(r":: 3\.\d+$", text)}
    matrix = load(".github/workflows/tests.yml")["jobs"]["fast"]["strategy"]["matrix"]
    assert named <= set(matrix["python"])


def test_the_compose_file_makes_a_configuration(tmp_path: Path) -> None:
    broker = load("examples/compose/compose.yaml")["services"]["broker"]
    found = from_environment(broker["environment"])
    config = Config.load(None, overrides=found.settings, environ={}, preset="kafka")
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT", "INTERNAL"]
    assert [str(listener) for listener in config.advertised_listeners] == [
        "PLAINTEXT://localhost:9092",
        "INTERNAL://broker:19092",
    ]
    assert list(config.warnings) == []


def test_the_stateful_set_makes_a_configuration() -> None:
    _, stateful_set = yaml.safe_load_all((ROOT / "examples/kubernetes/ottla.yaml").read_text())
    container = stateful_set["spec"]["template"]["spec"]["containers"][0]
    found = from_environment({each["name"]: each["value"] for each in container["env"]})
    config = Config.load(None, overrides=found.settings, environ={}, preset="kafka")
    (mount,) = container["volumeMounts"]
    assert config.log_dirs[0].startswith(mount["mountPath"] + "/")  # a new volume has lost+found in it
    assert list(config.warnings) == []


def test_the_action_starts_a_broker_and_gives_its_address(tmp_path: Path) -> None:
    action = load("action.yml")
    (step,) = action["runs"]["steps"]
    given = {"package": "", "port": "0", "options": "--set num.partitions=3"}
    assert given.keys() == action["inputs"].keys()
    values = {
        name: given[re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", text)[1]]  # type: ignore[index]
        for name, text in step["env"].items()
    }
    output = tmp_path / "output"
    env = {
        **os.environ,
        **values,
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(output),
        "RUNNER_TEMP": str(tmp_path),
        "OTTLA_ACTION_PYTHON": sys.executable,
    }
    subprocess.run(["bash", "-e", "-c", step["run"]], env=env, cwd=tmp_path, check=True, timeout=60)
    results = dict(line.split("=", 1) for line in output.read_text().splitlines())
    try:
        host, _, port = results["bootstrap"].rpartition(":")
        with Wire((host, int(port))) as wire:
            created = wire.metadata("orders", create=True)
            assert created.topics[0].name == "orders"
    finally:
        os.kill(int(results["pid"]), signal.SIGTERM)


def test_the_action_says_why_a_broker_does_not_start(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "OTTLA_ACTION_PACKAGE": "",
        "OTTLA_ACTION_PORT": "0",
        "OTTLA_ACTION_OPTIONS": "--set num.partitions=many",
        "OTTLA_ACTION_PYTHON": sys.executable,
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "RUNNER_TEMP": str(tmp_path),
    }
    command = [ROOT / "scripts" / "action-start"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "::error::Ottla did not start" in done.stdout and "num.partitions" in done.stderr


def _started_by_the_entry_point(entry_point: Path, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Like a container's first process: processes that the script starts must outlive it, and its command must run."""
    command = [entry_point, "echo", "the container continues"]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.slow
def test_the_feature_of_a_dev_container_starts_a_broker(
    wheel: Path, index: Path, tmp_path: Path, bare_environment: dict[str, str]
) -> None:
    folder = ROOT / "examples" / "devcontainer" / "ottla"
    feature = json.loads((folder / "devcontainer-feature.json").read_text())
    (port,) = free_ports()
    options = {"package": str(wheel), "port": str(port), "options": "--topic orders:3"}
    assert options.keys() == feature["options"].keys()
    env = {
        **bare_environment,
        **{name.upper(): value for name, value in options.items()},
        "PIP_FIND_LINKS": str(index),
        "PREFIX": str(tmp_path / "prefix"),
        "PYTHON": sys.executable,
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    subprocess.run(["sh", folder / "install.sh"], env=env, cwd=tmp_path, check=True, timeout=120)
    entry_point = tmp_path / "prefix" / Path(feature["entrypoint"]).relative_to("/usr/local")
    said = _started_by_the_entry_point(entry_point, env, tmp_path).stdout
    try:
        assert f"listening on 127.0.0.1:{port}" in said and said.endswith("the container continues\n")
        with Wire(("127.0.0.1", port)) as wire:
            assert [len(topic.partitions) for topic in wire.metadata("orders").topics] == [3]
        again = _started_by_the_entry_point(entry_point, env, tmp_path)
        assert again.stdout == "the container continues\n" and "in use" in again.stderr
    finally:
        stop = [tmp_path / "prefix" / "bin" / "ottla", "stop", str(port)]
        subprocess.run(stop, env=env, check=True, timeout=60)


def test_the_dev_container_uses_the_feature_and_its_options() -> None:
    folder = ROOT / "examples" / "devcontainer"
    lines = (folder / "devcontainer.json").read_text().splitlines()
    container = json.loads("\n".join(line for line in lines if not line.startswith("//")))
    ((name, options),) = container["features"].items()
    feature = json.loads((folder / name / "devcontainer-feature.json").read_text())
    assert feature["id"] == name.removeprefix("./")
    assert options.keys() <= feature["options"].keys()
    assert container["forwardPorts"] == [int(feature["options"]["port"]["default"])]


def test_a_dev_container_without_a_usable_python_says_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    script = ROOT / "examples" / "devcontainer" / "ottla" / "install.sh"
    env = {"PATH": str(tmp_path), "PYTHON": "python", "PREFIX": str(tmp_path / "prefix")}
    done = subprocess.run(["/bin/sh", script], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "features/python" in done.stderr
    assert not (tmp_path / "prefix").exists()


@pytest.mark.slow
def test_a_release_is_tried_without_an_upload(tmp_path: Path) -> None:
    command = [ROOT / "scripts" / "release", "--dry-run", tmp_path / "dist"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"would tag v{ottla.__version__} and upload:" in done.stdout
    made = {path.name for path in (tmp_path / "dist").iterdir()}
    wheel, sdist = f"ottla-{ottla.__version__}-py3-none-any.whl", f"ottla-{ottla.__version__}.tar.gz"
    assert made == {wheel, sdist, "SHA256SUMS", "NOTES.md"}
    assert "### Added" in (tmp_path / "dist" / "NOTES.md").read_text()


def test_a_release_without_dry_run_is_refused() -> None:
    done = subprocess.run([ROOT / "scripts" / "release"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--dry-run" in done.stderr


def test_one_address_of_the_repository() -> None:
    home = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    assert load("CITATION.cff")["repository-code"] == home
    assert home in (ROOT / "Dockerfile").read_text()
