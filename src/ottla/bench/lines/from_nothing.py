"""From nothing to a consumed record, for each common way to start a broker: uvx, the image, Testcontainers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ottla
from ottla.bench import containers
from ottla.bench.containers import CONTRACTS, Container, Contract
from ottla.bench.in_tests import consume_first
from ottla.bench.lines.topics import topic
from ottla.bench.model import Figure, NotMeasurable, Size, at_most, line
from ottla.bench.targets import SETTINGS, Maker, OttlaMaker, Spawned, Target

CHECKOUT = Path(__file__).parents[4]
IMAGE = Contract({f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in SETTINGS.items()})
TITLES = {
    "java": "Testcontainers, Java",
    "confluent": "Testcontainers, Java with Confluent's image",
    "python": "Testcontainers, Python",
    "go": "Testcontainers, Go",
    "node": "Testcontainers, Node.js",
    "dotnet": "Testcontainers, .NET",
}
BARS = (at_most(0.25),)


@line(
    "from-nothing",
    "from an empty folder to the first record consumed by a group",
    Figure("uvx_s", "s", False, BARS, title="uvx ottla serve, with a warm cache"),
    Figure("image_s", "s", False, BARS, title="the image's entry point"),
    *(Figure(f"{name}_s", "s", False, BARS, title=TITLES[name]) for name in CONTRACTS),
)
def from_nothing(target: Target, size: Size) -> dict[str, float]:
    maker = target.fresh()
    if not (CHECKOUT / "scripts" / "image-root").exists():
        raise NotMeasurable("needs a checkout of the repository")
    if not isinstance(maker, OttlaMaker):
        # Its image needs a container engine. This does the same as its entry point: format and start.
        seconds = _process(maker, maker.launch)
        return dict.fromkeys(["uvx_s", "image_s", *(f"{name}_s" for name in CONTRACTS)], seconds)
    figures = _uvx(target, maker)
    if containers.can_run():
        image = _image(target, maker)
        figures["image_s"] = _container(maker, image, IMAGE)
        for name, contract in CONTRACTS.items():
            figures[f"{name}_s"] = _container(maker, image, contract)
    if not figures:
        raise NotMeasurable("needs uvx, or root and namespaces")
    return figures


def _process(maker: Maker, launch: Callable[[Path, int], Spawned]) -> float:
    """Seconds for a broker that a command starts."""
    folder, port = maker.empty()
    started = time.perf_counter()
    broker = launch(folder, port)
    try:
        broker.await_ready()
        _consume(broker)
        return time.perf_counter() - started
    finally:
        broker.stop()


def _consume(broker: Target) -> None:
    with topic(broker, 1) as name:
        consume_first(broker.address, name, "first")


def _uvx(target: Target, maker: OttlaMaker) -> dict[str, float]:
    beside = Path(sys.executable).with_name("uvx")
    uvx = str(beside) if beside.exists() else shutil.which("uvx")
    if uvx is None:
        return {}
    wheels, is_new = _folder(target, maker, "wheels")
    given = ["--python", sys.executable, "--find-links", str(wheels)]
    package = ["--from", f"ottla=={ottla.__version__}", "ottla"]
    if is_new:
        uv = str(Path(uvx).with_name("uv"))
        subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", wheels, CHECKOUT], check=True)
        fill = [uvx, "--quiet", "--refresh-package", "ottla", *given, *package, "--version"]
        subprocess.run(fill, stdout=subprocess.DEVNULL, check=True)
    serve = [uvx, "--offline", *given, *package, "serve", "--ephemeral", "--no-console"]
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]

    def launch(folder: Path, port: int) -> Spawned:
        return maker.run([*serve, "--port", str(port), *settings], folder, port)

    return {"uvx_s": _process(maker, launch)}


def _image(target: Target, maker: OttlaMaker) -> Path:
    folder, is_new = _folder(target, maker, "image")
    if is_new:
        containers.assemble(CHECKOUT, folder / "root")
    return folder / "root"


def _folder(target: Target, maker: OttlaMaker, name: str) -> tuple[Path, bool]:
    """A temporary folder that all rounds of the line share, and whether it is new."""
    is_new = name not in target.state
    if is_new:
        maker.data.mkdir(parents=True, exist_ok=True)
        target.state[name] = tempfile.TemporaryDirectory(prefix=f"{name}-", dir=maker.data, ignore_cleanup_errors=True)
    return Path(target.state[name].name), is_new


def _container(maker: OttlaMaker, image: Path, contract: Contract) -> float:
    """Seconds for a container of the image, without the time to create its file system."""
    folder, _ = maker.empty()
    containers.unpack(image, folder / "root")
    host, _, port = contract.address.rpartition(":")
    broker = Target(maker.name, (host, int(port)), None)
    started = time.perf_counter()
    container = Container(folder / "root", contract.command, contract.env)
    try:
        if contract.script_path:
            container.copy_in(contract.script_path, contract.script)
        container.wait_for(contract.started)
        container.in_network(lambda: _consume(broker))
        return time.perf_counter() - started
    finally:
        container.kill()
        shutil.rmtree(folder, ignore_errors=True)
