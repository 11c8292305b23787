"""`ottla serve`: a broker, or several, in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.cli import serve_console
from ottla.cli.parsers import subcommand
from ottla.cli.printable import LogFormatter
from ottla.config import Config, ConfigError
from ottla.console.inside import inside_of
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.log.files import Disk, MemoryDisk, PosixDisk
from ottla.server.broker import Broker, StartError
from ottla.server.net.busy_poll import pace_of_process
from ottla.server.net.listener import ListenError

if TYPE_CHECKING:
    import json

    import uvloop

    from ottla.cli import serve_control as serve_command
    from ottla.embedded.broker import Embedded
    from ottla.http import metrics
    from ottla.http.endpoint import HttpEndpoint
    from ottla.log import multi_dir_disk
    from ottla.multibroker.cluster import Cluster
    from ottla.workers import supervisor
else:
    json = lazy("json")
    metrics = lazy("ottla.http.metrics")
    multi_dir_disk = lazy("ottla.log.multi_dir_disk")
    serve_command = lazy("ottla.cli.serve_control")
    supervisor = lazy("ottla.workers.supervisor")
    uvloop = lazy("uvloop")

logger = logging.getLogger(__name__)

DEFAULT_PORT = 9092
DEFAULT_DATA = "./data"
BROKERS_MAX = 32
_PARENT_CHECK_S = 0.2
WORKERS_MAX = 32
"""Every worker has a socket to every other one; and a process a core is what they are for."""

_EPILOG = """\
Settings are taken in this order, the last one wins: the preset, the properties file, the
environment (OTTLA_LOG_RETENTION_MS=… for log.retention.ms), --set, and the options above.

examples:
  ottla serve                                   # on 127.0.0.1:9092, data in ./data
  ottla serve --port 0 --ephemeral --json       # a free port, nothing on disk
  ottla serve --data /srv/kafka --metrics 9100 --set log.retention.hours=24
  ottla serve server.properties                 # as Apache Kafka reads it
  ottla serve --brokers 3 --control 9099        # a cluster, for `ottla cluster` to trouble"""


def _number(text: str, what: str, low: int, high: int) -> int:
    if not text.isdecimal() or not low <= int(text) <= high:
        raise argparse.ArgumentTypeError(f"{text} is not a {what} ({low} to {high})")
    return int(text)


def _port(text: str) -> int:
    return _number(text, "port", 0, 65535)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", _port(port)


def _workers(text: str) -> int:
    return _number(text, "number of workers", 1, WORKERS_MAX)


def _brokers(text: str) -> int:
    return _number(text, "number of brokers", 1, BROKERS_MAX)


def add_parser(subparsers: Any) -> None:
    """Add `serve` to the command line."""
    parser = subcommand(
        subparsers,
        "serve",
        "run a broker in the foreground",
        "Run a broker in the foreground until SIGTERM or Ctrl-C.",
        epilog=_EPILOG,
    )
    option = parser.add_argument
    option("properties", nargs="?", metavar="server.properties", help="a Kafka-style properties file")
    option("--host", help="address to listen on (127.0.0.1 unless a properties file says otherwise)")
    option("--port", type=_port, help=f"port to listen on, 0 for a free one ({DEFAULT_PORT})")
    option("--data", metavar="FOLDER", help=f"the data folder, a Kafka log dir ({DEFAULT_DATA})")
    option("--ephemeral", action="store_true", help="keep everything in memory, nothing on disk")
    option(
        "--fsync",
        action="store_true",
        help="flush before each acknowledgement (log.flush.interval.messages=1)",
    )
    option(
        "--preset",
        choices=("dev", "kafka", "test"),
        help="which defaults: without Kafka's waits (dev, unless a file is named), Kafka's own, or for tests: "
        "quick to expire as well",
    )
    option(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="any broker setting; repeatable",
    )
    option(
        "--metrics",
        type=_address,
        metavar="[HOST:]PORT",
        help="serve Prometheus metrics, /health and /ready there (needs ottla[metrics])",
    )
    option(
        "--workers",
        type=_workers,
        default=1,
        metavar="N",
        help="broker processes that share the folder and its partitions, to use N cores (1)",
    )
    option(
        "--brokers",
        type=_brokers,
        default=1,
        metavar="N",
        help="a cluster of N brokers in this process, for tests: replicas, elections, fail-over (1)",
    )
    option(
        "--control",
        type=_port,
        metavar="PORT",
        help="for tests: the port through which `ottla faults` and programs on this machine inject faults "
        "(not with --workers)",
    )
    serve_console.add_options(parser, _port)
    option(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that started this one ends (not with --workers)",
    )
    option("--json", action="store_true", help="print the addresses as one line of JSON")
    option(
        "--log-level",
        type=str.upper,
        default="INFO",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="log level on standard error (INFO)",
    )


def _disk(config: Config) -> Disk:
    folders, metadata_folder = config.log_dirs, config["metadata.log.dir"]
    if len(folders) == 1 and metadata_folder == folders[0]:
        return PosixDisk(folders[0])
    return multi_dir_disk.MultiDirDisk(folders, metadata_folder)


def run(arguments: argparse.Namespace) -> int:
    """Serve; 0 after a graceful stop, 1 when the broker cannot start, 2 for a wrong command line."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=arguments.log_level, handlers=[lines])
    try:
        config = load_config(arguments)
        if (arguments.brokers > 1 or arguments.workers > 1 or arguments.control is not None) and len(
            config.log_dirs
        ) > 1:
            raise StartError("log.dirs names several folders: that goes with one broker, without workers and --control")
        if arguments.exit_with_parent:
            _exit_with_parent(arguments)
        if arguments.brokers > 1:
            return _run_cluster(config, arguments)
        if arguments.workers > 1:
            return _run_workers(config, arguments)
        if arguments.control is not None:
            return _run_with_control(config, arguments)
        disk: Disk = MemoryDisk() if arguments.ephemeral else _disk(config)
        where = "in memory" if arguments.ephemeral else f"data in {', '.join(config.log_dirs)}"
        return _run_on_loop(_serve(config, disk, where, arguments))
    except (ConfigError, ListenError, StartError, KafkaError) as error:
        print(f"ottla: {error}", file=sys.stderr)
        return 1


def load_config(arguments: argparse.Namespace) -> Config:
    """The broker's configuration from the command line, the environment and the file."""
    overrides: dict[str, str] = {}
    for setting in arguments.settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set takes KEY=VALUE, not {setting!r}")
        overrides[key.strip()] = value
    if arguments.fsync:
        overrides.setdefault("log.flush.interval.messages", "1")
    from_file = arguments.properties is not None
    config = Config.load(
        arguments.properties,
        overrides=overrides,
        environ=os.environ,
        preset=arguments.preset or (None if from_file else "dev"),
    )
    for warning in config.warnings:
        logger.warning("%s", warning)
    extra: dict[str, str] = {}
    if arguments.host is not None or arguments.port is not None or "listeners" not in config.static:
        first, *others = config.listeners
        # Without a word about it only this machine is served: a broker for tests has no business on the network.
        host = arguments.host or (first.host if "listeners" in config.static else "127.0.0.1")
        port = arguments.port if arguments.port is not None else first.port
        extra["listeners"] = ",".join(map(str, [first._replace(host=host, port=port), *others]))
    if arguments.data is not None or not {"log.dirs", "log.dir"} & config.static.keys():
        extra["log.dirs"] = arguments.data if arguments.data is not None else DEFAULT_DATA
    return config.with_static(extra) if extra else config


def _exit_with_parent(arguments: argparse.Namespace) -> None:
    """Stop as on SIGTERM when the parent is gone: a test that crashed leaves no broker behind."""
    if arguments.workers > 1:
        raise ConfigError("--exit-with-parent goes with one worker only: leave out --workers")
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="ottla-parent", daemon=True).start()


def _run_with_control(config: Config, arguments: argparse.Namespace) -> int:
    data = None if arguments.ephemeral else config.log_dirs[0]
    where = "in memory" if data is None else f"data in {data}"

    def announce(broker: Embedded, metrics_url: str | None, console_url: str | None) -> None:
        addresses = ", ".join(f"{host}:{port}" for host, port in broker.server.addresses)
        _announce(arguments, _names(config), addresses, where, metrics_url, broker.control_url, console_url)

    return asyncio.run(serve_command.serve_with_control(config, data, arguments, announce))


def _run_cluster(config: Config, arguments: argparse.Namespace) -> int:
    if arguments.workers > 1:
        raise ConfigError("--brokers is a cluster in one process: leave out --workers")
    data = None if arguments.ephemeral else config.log_dirs[0]
    return _run_on_loop(
        serve_command.serve_cluster(
            config, data, arguments, lambda cluster, *urls: _announce_cluster(arguments, cluster, data, *urls)
        )
    )


def _announce_cluster(
    arguments: argparse.Namespace,
    cluster: Cluster,
    data: str | None,
    metrics_url: str | None,
    console_url: str | None,
) -> None:
    where = "in memory" if data is None else f"data in {data}"
    control_url = None if arguments.control is None else cluster.control_url
    if arguments.json:
        found = {
            "version": __version__,
            "bootstrap": cluster.bootstrap,
            "where": where,
            "metrics": metrics_url,
            "control": control_url,
            "console": console_url,
            "brokers": {str(number): broker.listener_addresses for number, broker in cluster.brokers.items()},
        }
        _print_json(found)
        return
    if metrics_url is not None:
        print(f"ottla {__version__}: metrics on {metrics_url}", flush=True)
    steer = "" if control_url is None else f", control at {control_url}"
    addresses = ", ".join(
        cluster.bootstrap_for(name) for name in next(iter(cluster.brokers.values())).listener_addresses
    )
    print(f"ottla {__version__}: {arguments.brokers} brokers listening on {addresses} ({where}){steer}", flush=True)
    serve_console.print_console(console_url, arguments)


def _run_workers(config: Config, arguments: argparse.Namespace) -> int:
    for option, given in (("ephemeral", arguments.ephemeral), ("control", arguments.control is not None)):
        if given:
            raise ConfigError(f"--{option} goes with one worker only, not with --workers {arguments.workers}")
    where = f"{arguments.workers} workers, data in {config.log_dirs[0]}"
    tasks: list[asyncio.Task[None]] = []

    async def announce(addresses: str, metrics_url: str | None) -> None:
        try:
            async with serve_console.console_of_workers(config, addresses, arguments) as console_url:
                _announce(arguments, _names(config), addresses, where, metrics_url, console_url=console_url)
                await asyncio.Event().wait()  # until the supervisor ends, and cancels this
        except ListenError as error:
            logger.error("no console: %s", error)
            _announce(arguments, _names(config), addresses, where, metrics_url)

    def ready(addresses: str, metrics_url: str | None) -> None:
        tasks.append(asyncio.get_running_loop().create_task(announce(addresses, metrics_url)))

    return supervisor.serve_workers(config, arguments.workers, ready, arguments.metrics)


def _announce(
    arguments: argparse.Namespace,
    listeners: Iterable[str],
    addresses: str,
    where: str,
    metrics_url: str | None = None,
    control_url: str | None = None,
    console_url: str | None = None,
) -> None:
    """The line that tells people and programs that clients are served; addresses in the order of the listeners."""
    if arguments.json:
        found = {
            "version": __version__,
            "bootstrap": addresses.replace(" ", ""),
            "listeners": dict(zip(listeners, addresses.split(", "), strict=True)),
            "where": where,
            "metrics": metrics_url,
        }
        if control_url is not None:
            found["control"] = control_url
        if console_url is not None:
            found["console"] = console_url
        _print_json(found)
        return
    if metrics_url is not None:
        print(f"ottla {__version__}: metrics on {metrics_url}", flush=True)
    steer = "" if control_url is None else f", control at {control_url}"
    print(f"ottla {__version__}: listening on {addresses} ({where}){steer}", flush=True)
    serve_console.print_console(console_url, arguments)
    # The image adds the lines that programs wait for with Apache Kafka's image.
    getattr(arguments, "on_started", lambda: None)()


def _names(config: Config) -> list[str]:
    return [listener.name for listener in config.listeners]


def _print_json(found: dict[str, Any]) -> None:
    print(json.dumps(found, ensure_ascii=False), flush=True)


def _run_on_loop(work: Coroutine[Any, Any, int]) -> int:
    """With uvloop, if it is there."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


async def _serve(config: Config, disk: Disk, where: str, arguments: argparse.Namespace) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    gc.disable()  # as while the modules were imported
    try:
        broker = Broker(config, disk=disk)
        broker.pace = pace_of_process()
        endpoint = _metrics_endpoint(broker, arguments.metrics) if arguments.metrics is not None else None
        if endpoint is not None:
            await endpoint.start()
        await broker.start()
    finally:
        gc.freeze()
        gc.enable()
    addresses = ", ".join(f"{host}:{port}" for host, port in broker.addresses)
    metrics_url = None if endpoint is None else f"{endpoint.url}/metrics"
    try:
        async with serve_console.console_of(inside_of(broker), arguments) as console_url:
            _announce(arguments, _names(config), addresses, where, metrics_url, console_url=console_url)
            await stopped.wait()
    finally:
        await broker.stop()
    if endpoint is not None:
        await endpoint.stop()
    return 0


def _metrics_endpoint(broker: Broker, address: tuple[str, int]) -> HttpEndpoint:
    try:
        return metrics.metrics_endpoint(broker, *address)
    except RuntimeError as error:
        raise StartError(str(error)) from error
