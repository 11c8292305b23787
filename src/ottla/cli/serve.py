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
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.cli import serve_console, serve_registry, serve_setup
from ottla.cli.parsers import subcommand
from ottla.cli.printable import LogFormatter
from ottla.config import Config, ConfigError
from ottla.console.inside import inside_of
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy
from ottla.log.files import Disk, DiskFailure, MemoryDisk
from ottla.server.broker import Broker, StartError, disk_for
from ottla.server.net.busy_poll import pace_of_process
from ottla.server.net.listener import ListenError
from ottla.server.stop_signals import stop_event
from ottla.system import HAS_FORK, new_event_loop

if TYPE_CHECKING:
    import json

    from ottla.cli import daemon
    from ottla.cli import serve_control as serve_command
    from ottla.embedded.broker import Embedded
    from ottla.http import metrics
    from ottla.http.endpoint import HttpEndpoint
    from ottla.multibroker.cluster import Cluster
    from ottla.workers import supervisor
else:
    daemon = lazy("ottla.cli.daemon")
    json = lazy("json")
    metrics = lazy("ottla.http.metrics")
    serve_command = lazy("ottla.cli.serve_control")
    supervisor = lazy("ottla.workers.supervisor")

logger = logging.getLogger(__name__)

DEFAULT_PORT = 9092
_METRICS_PORT = 9094
DEFAULT_DATA = "./data"
BROKERS_MAX = 32
CONTROLLERS_MAX = 9
_PARENT_CHECK_S = 0.2
WORKERS_MAX = 32
"""The maximum number of workers. Each has a socket to every other one, and more workers than cores do not help."""

_EPILOG = """\
Settings are read in this order, and later ones win: the preset, the properties file, the
environment (OTTLA_LOG_RETENTION_MS=… for log.retention.ms), --set, and the options above.

examples:
  ottla serve                                   # on 127.0.0.1:9092, data in ./data
  ottla serve --port 0 --ephemeral --json       # a free port, nothing on disk
  ottla serve --data /srv/kafka --metrics 9100 --set log.retention.hours=24
  ottla serve --daemon                          # in the background, until `ottla stop`
  ottla serve server.properties                 # as Apache Kafka reads it
  ottla serve --topic orders:3:cleanup.policy=compact --seed-file orders.jsonl
  ottla serve --tls --user alice:secret         # certificates, and clients that log in
  ottla serve --brokers 3 --control 9099        # a cluster for tests, see `ottla cluster`"""


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


def _controllers(text: str) -> int:
    return _number(text, "number of controllers", 1, CONTROLLERS_MAX)


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
    option("--fsync", action="store_true", help="flush before each acknowledgement (log.flush.interval.messages=1)")
    option(
        "--preset",
        choices=("dev", "kafka", "test"),
        help="the defaults: dev (without Kafka's delays; used without a properties file), kafka (Kafka's "
        "own), or test (short delays and timeouts)",
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
        nargs="?",
        const=("127.0.0.1", _METRICS_PORT),
        metavar="[HOST:]PORT",
        help=f"serve Prometheus metrics, /health and /ready there ({_METRICS_PORT}; needs ottla[metrics])",
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
        "--controllers",
        type=_controllers,
        metavar="N",
        help="a quorum of N controllers that can fail, as in Kafka; without it, one controller that never fails",
    )
    option(
        "--combined",
        action="store_true",
        help="the first brokers are the controllers, too (process.roles=broker,controller)",
    )
    option(
        "--control",
        type=_port,
        metavar="PORT",
        help="for tests: a port for `ottla faults` and other programs on this machine that inject faults "
        "(not with --workers)",
    )
    serve_console.add_options(parser, _port)
    serve_registry.add_options(parser, _address)
    serve_setup.add_options(parser)
    option(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that started this one ends (not with --workers)",
    )
    option("--daemon", action="store_true", help="run in the background; `ottla stop` stops it")
    option("--json", action="store_true", help="print the addresses as one line of JSON")
    option(
        "--log-level",
        type=str.upper,
        default="INFO",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="log level on standard error (INFO)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve. Return 0 after a graceful stop, 1 if the broker cannot start, 2 for a wrong command line."""
    if arguments.daemon:
        return daemon.start(arguments)
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=arguments.log_level, handlers=[lines])
    try:
        setup = serve_setup.Setup(arguments)
        config = setup.secure(load_config(arguments), arguments)
        arguments.setup = setup
        if arguments.exit_with_parent:
            _exit_with_parent(arguments)
        if arguments.brokers > 1 or arguments.controllers is not None or arguments.combined:
            return _run_cluster(config, arguments)
        if arguments.workers > 1:
            return _run_workers(config, arguments)
        if arguments.control is not None:
            return _run_with_control(config, arguments)
        disk: Disk = MemoryDisk() if arguments.ephemeral else disk_for(config)
        where = "in memory" if arguments.ephemeral else f"data in {', '.join(config.log_dirs)}"
        return _run_on_loop(_serve(config, disk, where, arguments))
    except DiskFailure as error:
        print(f"ottla: {error}; choose another folder with --data, or use --ephemeral", file=sys.stderr)
        return 1
    except (ConfigError, ListenError, StartError, KafkaError) as error:
        print(f"ottla: {error}", file=sys.stderr)
        return 1


def load_config(arguments: argparse.Namespace) -> Config:
    """The broker's configuration from the command line, the environment and the file."""
    if arguments.ephemeral and arguments.data is not None and arguments.workers == 1:  # workers refuse --ephemeral
        raise ConfigError("--ephemeral keeps everything in memory: remove --data or --ephemeral")
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
        # By default only this machine is served: a broker for tests should not be on the network.
        host = arguments.host or (first.host if "listeners" in config.static else "127.0.0.1")
        port = arguments.port if arguments.port is not None else first.port
        extra["listeners"] = ",".join(map(str, [first._replace(host=host, port=port), *others]))
    if arguments.data is not None or not {"log.dirs", "log.dir"} & config.static.keys():
        extra["log.dirs"] = arguments.data if arguments.data is not None else DEFAULT_DATA
    return config.with_static(extra) if extra else config


def _exit_with_parent(arguments: argparse.Namespace) -> None:
    """Stop as on SIGTERM when the parent process ends, so that a crashed test does not leave a broker running."""
    if arguments.workers > 1:
        raise ConfigError("--exit-with-parent cannot be combined with --workers")
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="ottla-parent", daemon=True).start()


def _run_with_control(config: Config, arguments: argparse.Namespace) -> int:
    data = None if arguments.ephemeral else config.log_dirs
    where = "in memory" if data is None else f"data in {', '.join(data)}"

    def announce(broker: Embedded, metrics_url: str | None, console_url: str | None) -> None:
        addresses = ", ".join(f"{host}:{port}" for host, port in broker.server.addresses)
        registry_url = None if arguments.registry is None else broker.registry_url
        urls = (metrics_url, broker.control_url, console_url, registry_url)
        _announce(arguments, _names(config), addresses, where, *urls)

    return asyncio.run(serve_command.serve_with_control(config, data, arguments, announce))


def _run_cluster(config: Config, arguments: argparse.Namespace) -> int:
    if arguments.workers > 1:
        raise ConfigError("--brokers runs a cluster in one process and cannot be combined with --workers")
    data = None if arguments.ephemeral else config.log_dirs
    return _run_on_loop(
        serve_command.serve_cluster(
            config, data, arguments, lambda cluster, *urls: _announce_cluster(arguments, cluster, data, *urls)
        )
    )


def _announce_cluster(
    arguments: argparse.Namespace,
    cluster: Cluster,
    data: Sequence[str] | None,
    metrics_url: str | None,
    console_url: str | None,
) -> None:
    where = "in memory" if data is None else f"data in {', '.join(data)}"
    control_url = None if arguments.control is None else cluster.control_url
    registry_url = None if arguments.registry is None else cluster.registry_url
    if arguments.json:
        found: dict[str, Any] = {
            "version": __version__,
            "bootstrap": cluster.bootstrap,
            "where": where,
            "metrics": metrics_url,
            "control": control_url,
            "console": console_url,
            "registry": registry_url,
            "brokers": {str(number): broker.listener_addresses for number, broker in cluster.brokers.items()},
        }
        if cluster.controllers:
            found["controllers"] = {
                name: "{}:{}".format(*controller.address) for name, controller in cluster.controllers.items()
            }
        _print_json(found | arguments.setup.announced())
        return
    if metrics_url is not None:
        print(f"ottla {__version__}: metrics on {metrics_url}", flush=True)
    steer = "" if control_url is None else f", control at {control_url}"
    addresses = ", ".join(
        cluster.bootstrap_for(name) for name in next(iter(cluster.brokers.values())).listener_addresses
    )
    count = f"{arguments.brokers} broker{'s' * (arguments.brokers > 1)}"
    print(f"ottla {__version__}: {count} listening on {addresses} ({where}){steer}", flush=True)
    if cluster.controllers:
        controllers = cluster.bootstrap_controllers
        print(f"ottla {__version__}: {len(cluster.controllers)} controllers listening on {controllers}", flush=True)
    serve_console.print_console(console_url, arguments)
    serve_registry.print_registry(registry_url)
    arguments.setup.print_security()


def _run_workers(config: Config, arguments: argparse.Namespace) -> int:
    for option, given in (("ephemeral", arguments.ephemeral), ("control", arguments.control is not None)):
        if given:
            raise ConfigError(f"--{option} cannot be combined with --workers {arguments.workers}")
    if not HAS_FORK:
        raise ConfigError("--workers needs a system that can fork processes, such as Linux or macOS; run without it")
    serve_registry.check_workers(config, arguments)
    where = f"{arguments.workers} workers, data in {', '.join(config.log_dirs)}"
    tasks: list[asyncio.Task[None]] = []

    async def announce(addresses: str, metrics_url: str | None) -> None:
        bootstrap = serve_console.first_address(config, addresses)
        try:
            async with (
                serve_registry.registry_of_workers(bootstrap, arguments) as registry,
                serve_console.console_of_workers(config, bootstrap, consoles, arguments, registry) as console_url,
            ):
                await arguments.setup.prepare_at(bootstrap)
                urls = (metrics_url, None, console_url, None if registry is None else registry.url)
                _announce(arguments, _names(config), addresses, where, *urls)
                await asyncio.Event().wait()  # until the supervisor ends and cancels this task
        except ListenError as error:
            logger.error("no console and no registry: %s", error)
            _announce(arguments, _names(config), addresses, where, metrics_url)

    def ready(addresses: str, metrics_url: str | None) -> None:
        tasks.append(asyncio.get_running_loop().create_task(announce(addresses, metrics_url)))

    consoles = serve_console.WorkerConsoles(arguments.workers) if serve_console.has_console(arguments) else None
    beside = None if consoles is None else consoles.endpoint
    return supervisor.serve_workers(config, arguments.workers, ready, arguments.metrics, beside)


def _announce(
    arguments: argparse.Namespace,
    listeners: Iterable[str],
    addresses: str,
    where: str,
    metrics_url: str | None = None,
    control_url: str | None = None,
    console_url: str | None = None,
    registry_url: str | None = None,
) -> None:
    """Print the line that reports that clients are served, with the addresses in the order of the listeners."""
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
        if registry_url is not None:
            found["registry"] = registry_url
        _print_json(found | arguments.setup.announced())
        return
    if metrics_url is not None:
        print(f"ottla {__version__}: metrics on {metrics_url}", flush=True)
    steer = "" if control_url is None else f", control at {control_url}"
    print(f"ottla {__version__}: listening on {addresses} ({where}){steer}", flush=True)
    serve_console.print_console(console_url, arguments)
    serve_registry.print_registry(registry_url)
    arguments.setup.print_security()
    # The image adds the lines that programs wait for with Apache Kafka's image.
    getattr(arguments, "on_started", lambda: None)()


def _names(config: Config) -> list[str]:
    return [listener.name for listener in config.listeners]


def _print_json(found: dict[str, Any]) -> None:
    print(json.dumps(found, ensure_ascii=False), flush=True)


def _run_on_loop(work: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


async def _serve(config: Config, disk: Disk, where: str, arguments: argparse.Namespace) -> int:
    stopped = stop_event()
    gc.disable()  # it was also off while the modules were imported
    try:
        broker = Broker(config, disk=disk)
        broker.on_halt = stopped.set
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
        inside = inside_of(broker)
        async with (
            serve_console.console_of(inside, arguments) as console_url,
            serve_registry.registry_of(inside, arguments) as registry_url,
        ):
            await arguments.setup.prepare_inside(inside)
            _announce(arguments, _names(config), addresses, where, metrics_url, None, console_url, registry_url)
            await stopped.wait()
    finally:
        await broker.stop()
    if endpoint is not None:
        await endpoint.stop()
    return 1 if broker.has_halted else 0


def _metrics_endpoint(broker: Broker, address: tuple[str, int]) -> HttpEndpoint:
    try:
        return metrics.metrics_endpoint(broker, *address)
    except RuntimeError as error:
        raise StartError(str(error)) from error
