"""`ottla bench`: options, brokers and output."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ottla.bench import lines as _lines  # noqa: F401  (fills the table)
from ottla.bench import plot, report
from ottla.bench.model import LINES, Line, Size, select
from ottla.bench.runner import TRIES, Results, run, to_stderr, warm_up
from ottla.bench.targets import CommandMaker, KafkaMaker, Maker, OttlaMaker, Target, parse_bootstrap

PAGE = Path("docs/performance.md")
PLOT = Path("docs/performance.svg")


def listing(lines: list[Line]) -> str:
    rows = []
    for line in lines:
        rows.append(f"{line.name:26} {line.title}")
        for figure in line.figures:
            if figure.bars:
                rows.append(f"{'':26}   {figure.title or figure.key} ({figure.unit}): {report.bars(figure)}")
    return "\n".join(rows)


def project_root() -> Path:
    """The checkout that this package runs from, with its scripts and docs."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "scripts" / "kafka-start").exists() else Path.cwd()


def makers(arguments: argparse.Namespace, data: Path) -> list[Maker]:
    """Makers for the brokers in --brokers; the same kind twice shows the noise of the machine."""
    made: list[Maker] = []
    scripts = project_root() / "scripts"
    script = arguments.kafka_start or scripts / "kafka-start"
    kfake = f"{shlex.quote(str(scripts / 'kfake-start'))} {{port}}"
    commands = {"kfake": kfake, **named_commands(arguments.broker_commands)}
    for kind in filter(None, arguments.brokers.split(",")):
        same = sum(maker.name.rpartition("#")[0] == kind or maker.name == kind for maker in made)
        name = f"{kind}#{same + 1}" if same else kind
        if kind == "ottla":
            made.append(OttlaMaker(name, data, arguments.base_port, tuple(arguments.serve)))
        elif kind == "kafka":
            if not Path(script).exists():
                raise ValueError(f"{script} is missing; name it with --kafka-start, or leave kafka out of --brokers")
            made.append(KafkaMaker(name, data, arguments.base_port, Path(script)))
        elif kind in commands:
            made.append(CommandMaker(name, data, arguments.base_port, commands[kind]))
        else:
            raise ValueError(
                f"--brokers knows ottla, kafka and kfake, not {kind!r}; others come with --command {kind}=… or "
                "--bootstrap NAME=HOST:PORT"
            )
    return made


def named_commands(texts: list[str]) -> dict[str, str]:
    """{name: command} from --command NAME=COMMAND."""
    found = {}
    for text in texts:
        name, equals, command = text.partition("=")
        if not (name and equals and command.strip()):
            raise ValueError(f"--command {text!r} is not NAME=COMMAND")
        found[name] = command
    return found


def broker_versions(targets: list[Target]) -> dict[str, str]:
    if not any(isinstance(target.maker, KafkaMaker) for target in targets):
        return {}
    return {"Apache Kafka": os.environ.get("KAFKA_VERSION", "4.3.1")}


def bench(arguments: argparse.Namespace) -> int:
    lines = select(LINES.values(), arguments.only)
    if arguments.list:
        print(listing(lines))
        return 0
    if arguments.write and arguments.quick:
        raise ValueError("--write keeps what was measured at full size; leave out --quick")
    size = Size(quick=arguments.quick)
    with ExitStack() as stack:
        # Apache Kafka outlives its parent process, so a benchmark must stop its brokers even after a signal.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        stack.callback(signal.signal, signal.SIGTERM, before)
        folder = arguments.data or stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-"))
        targets: list[Target] = []
        for maker in makers(arguments, Path(folder)):
            to_stderr(f"starting {maker.name}")
            started = maker.start()
            stack.callback(started.stop)
            targets.append(started)
        targets += map(parse_bootstrap, arguments.bootstrap)
        if not targets:
            raise ValueError("no broker to measure; see --brokers and --bootstrap")
        for target in targets:
            warm_up(target, size)
        tries = TRIES if arguments.check else 1
        results = run(lines, targets, size, repeats=arguments.repeat, tries=tries)
        write(arguments, results, broker_versions(targets))
    print(report.text_table(results))
    print(report.summary(results))
    return results.exit_code() if arguments.check else 0


def write(arguments: argparse.Namespace, results: Results, versions: dict[str, str]) -> None:
    if arguments.json:
        arguments.json.write_text(report.as_json(results, versions))
    if arguments.svg:
        arguments.svg.write_text(plot.svg(results))
    if arguments.write:
        root = project_root()
        (root / PLOT).write_text(plot.svg(results))
        (root / PAGE).write_text(report.markdown(results, versions, PLOT.name, len(LINES)))
        to_stderr(f"wrote {PAGE} and {PLOT}")


def run_command(arguments: argparse.Namespace) -> int:
    try:
        return bench(arguments)
    except BrokenPipeError:
        raise  # the reader of our output has closed it; the command line handles that
    except (ValueError, OSError, RuntimeError) as error:
        print(f"ottla bench: {error}", file=sys.stderr)
        return 2
