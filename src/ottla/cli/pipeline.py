"""`ottla pipeline`: what leaves topics for analysis, and what comes back, through Spark."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any, Final

from ottla.cli import terminal
from ottla.cli.common import (
    FAILED,
    INTERRUPTED,
    OK,
    CommandError,
    UsageError,
    bootstrap_of,
    guarded,
    parse_settings,
    parse_time,
    subcommand,
    verbs,
)
from ottla.cli.pipeline_options import (
    add_archive,
    add_compact,
    add_parse,
    add_quality,
    add_replay,
    add_run,
    add_snapshot,
    add_sql,
    add_stats,
    add_verify,
)


def add_parser(subparsers: Any) -> None:
    """Add `pipeline` to the command line."""
    parser = subcommand(
        subparsers,
        "pipeline",
        "archive, replay, count, parse and query topics with Spark",
        "Pipelines between topics and tables, on Spark: on this machine, or on a cluster with --master. Needs Java and "
        "`pip install 'ottla[spark]'`. Each goes on where it stopped when the same command is run again.",
        examples=(
            "ottla pipeline archive orders --out /data/orders",
            "ottla pipeline sql 'select key, count(*) from orders group by key'",
            "ottla pipeline run pipelines.yaml",
        ),
    )
    kinds = verbs(parser)
    for add, _ in _verbs().values():
        add(kinds)


def run(arguments: argparse.Namespace) -> int:
    return guarded(lambda: _translated(arguments, _verbs()[arguments.verb][1]))


def _verbs() -> dict[str, tuple[Callable[[Any], None], Callable[[argparse.Namespace], int]]]:
    """The options of each verb, and what it does."""
    return {
        "archive": (add_archive, _archive),
        "verify": (add_verify, _verify),
        "compact": (add_compact, _compact),
        "replay": (add_replay, _replay),
        "stats": (add_stats, _stats),
        "parse": (add_parse, _parse),
        "snapshot": (add_snapshot, _snapshot),
        "sql": (add_sql, _sql),
        "quality": (add_quality, _quality),
        "run": (add_run, _run_file),
    }


def _translated(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    from ottla.spark.errors import SparkSetupError
    from ottla.spark.pipelines.errors import PipelineError, explain

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    _listen(_interrupt)
    try:
        return verb(arguments)
    except (PipelineError, SparkSetupError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(str(explain(error))) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def _listen(handler: Callable[..., None]) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class _Stop:
    """Ctrl-C, or SIGTERM: the first lets the batch under way come to its end, the next ends at once."""

    def __init__(self) -> None:
        self.event = Event()

    def __call__(self, *_: object) -> None:
        if self.event.is_set():
            raise KeyboardInterrupt
        self.event.set()
        # Not through sys.stderr: the handler may have come in the middle of a write to it.
        os.write(2, b"\nstopping behind the batch under way; once more stops at once\n")


# --- options and Spark -----------------------------------------------------------------------------------------------


def _connection_options(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap": bootstrap_of(arguments)}
    if arguments.client_config:
        from ottla.spark.pipelines.login import client_properties

        found["client_config"] = client_properties(arguments.client_config)
    return found


def _reading_options(arguments: argparse.Namespace) -> dict[str, Any]:
    found = _connection_options(arguments)
    found |= {"isolation": arguments.isolation, "on_warning": terminal.warn, "source": arguments.source}
    if arguments.start not in (None, "earliest", "latest"):
        try:
            found["start"] = parse_time(arguments.start, int(time.time() * 1000))
        except ValueError as error:
            raise UsageError(f"--start: {error}") from None
    elif arguments.start:
        found["start"] = arguments.start
    if arguments.data:
        found["source"] = "ottla"
        found["source_options"] = {"path": arguments.data}
    if arguments.no_group:
        found["group"] = None
    elif arguments.group:
        found["group"] = arguments.group
    for name in ("checkpoint", "max_records", "on_data_loss", "follow"):
        value = getattr(arguments, name, None)
        if value is not None:
            found[name] = value
    if getattr(arguments, "interval", None) is not None:
        found["interval_s"] = arguments.interval / 1000
    return found


@contextmanager
def _spark(arguments: argparse.Namespace, on_signal: Callable[..., None] = _interrupt) -> Iterator[Any]:
    """A session whose chatter goes to a file, so that the terminal shows our lines only."""
    from ottla.spark import session
    from ottla.spark.errors import SparkSetupError
    from ottla.spark.pipelines.login import REDACTED

    conf: dict[str, str | int | bool] = {"spark.log.level": "ERROR", "spark.redaction.regex": REDACTED}
    conf |= parse_settings(arguments.conf)
    made: Any = None
    shared = _running()
    # PySpark logs stacks of what we tell in one line, and of Ctrl-C.
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with _stderr_to(arguments.spark_log) as log:
            try:
                name = f"ottla pipeline {arguments.verb}"
                made = session(
                    master=arguments.master, app_name=name, config=conf, connector=_wants_connector(arguments)
                )
            except SparkSetupError:
                raise
            except Exception as error:
                raise CommandError(f"Spark does not start: {_last_words(log) or str(error).splitlines()[0]}") from None
        _listen(on_signal)  # PySpark has put its own in place, which cancels all jobs
        yield made
    finally:
        _listen(_interrupt)
        if made is not None and not shared:
            made.stop()
        logging.disable(logged)


def _wants_connector(arguments: argparse.Namespace) -> bool:
    """Its jars come through Maven on the first use; who reads with Ottla's own source, or no topic, needs none."""
    if arguments.verb in ("compact", "replay"):
        return False
    return getattr(arguments, "source", "kafka") == "kafka" and not getattr(arguments, "data", None)


def _running() -> bool:
    """Whether there is a session in this process already, which is not ours to stop."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


@contextmanager
def _stderr_to(path: str | None) -> Iterator[str]:
    """The JVM inherits our standard error when it starts, and keeps it."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryDirectory() as folder:
        name = path or os.path.join(folder, "spark.log")
        try:
            sink = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            os.close(saved)
            raise CommandError(f"--spark-log {name}: {error.strerror}") from None
        os.dup2(sink, 2)
        os.close(sink)
        try:
            yield name
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def _last_words(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    errors = [line for line in lines if "rror" in line or "xception" in line]
    return (errors or lines or [""])[0][:300]


class _Bar:
    """A bar on a terminal, with the lag and the rate of late beside it; several pipelines share one."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._bar = terminal.Progress(arguments.verb, None, unit="records", quiet=arguments.json)
        self._seen: dict[str, Any] = {}

    def __enter__(self) -> Callable[[Any], None]:
        self._bar.__enter__()
        return self._show

    def __exit__(self, *failure: object) -> None:
        self._bar.__exit__(failure[0])

    def _show(self, progress: Any) -> None:
        self._seen[progress.pipeline] = progress
        bar, seen = self._bar, list(self._seen.values())
        busy = [one for one in seen if one.lag] or [progress]
        lags = ", ".join(f"{one.pipeline} lag {terminal.human_count(one.lag)}" for one in busy)
        bar.label = f"{lags}  now {terminal.human_count(int(sum(one.records_per_second for one in busy)))}/s"
        bar.total = sum(one.total for one in seen)
        bar.advance(sum(one.records for one in seen) - bar.done)


def _run(arguments: argparse.Namespace, work: Callable[..., Any], **more: Any) -> Any:
    """Start Spark, run a pipeline with a bar, and give what it gave."""
    # Everything that can be refused without Spark is refused before its seconds of starting.
    options = {**_reading_options(arguments), **more}
    stop = _Stop()
    with _spark(arguments, stop) as spark, _Bar(arguments) as show:
        return work(spark=spark, on_progress=show, stop=stop.event, **options)


def _check_topics(arguments: argparse.Namespace) -> None:
    from ottla.spark.pipelines.topics import Cluster

    options = _connection_options(arguments)
    Cluster(options["bootstrap"], options.get("client_config", {}), arguments.timeout).resolve(arguments.topics)


# --- what they print -------------------------------------------------------------------------------------------------


def _finish(arguments: argparse.Namespace, summary: Any, text: str) -> int:
    if arguments.json:
        terminal.print_json(summary_json(summary))
    else:
        print(text)
        for loss in summary.lost:
            print(f"lost: {loss.topic}-{loss.partition} {loss.first} to {loss.end - 1}")
    return _interrupted() if summary.interrupted else OK


def _interrupted() -> int:
    terminal.note("interrupted; the same command goes on from here")
    return INTERRUPTED


def summary_json(summary: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(summary), "records_per_second": round(summary.records_per_second, 1)}


def _speed(summary: Any) -> str:
    rate = terminal.human_count(int(summary.records_per_second))
    return f"{terminal.counted(summary.records, 'record')} in {summary.seconds:.1f} s ({rate}/s)"


def _archive(arguments: argparse.Namespace) -> int:
    from ottla.spark import archive

    _check_topics(arguments)
    done = _run(arguments, archive, topics=arguments.topics, out=arguments.out, compression=arguments.compression)
    more = done.details
    text = (
        f"archived {_speed(done)} to {more['out']}: {terminal.counted(more['files'], 'file')}, "
        f"{terminal.human_bytes(more['bytes'])}, {terminal.counted(more['archived'], 'record')} in all"
    )
    return _finish(arguments, done, text)


def _verify(arguments: argparse.Namespace) -> int:
    from ottla.spark import verify
    from ottla.spark.pipelines.verify import as_dict

    with _spark(arguments) as spark:
        options = {**_connection_options(arguments), "source": arguments.source, "spark": spark}
        found = verify(arguments.archive, log=not arguments.no_log, content=arguments.content, **options)
    if arguments.json:
        terminal.print_json(as_dict(found))
        return OK if found.ok else FAILED
    head = ("TOPIC", "PARTITION", "BEGIN", "END", "FILES", "RECORDS", "GAPS", "GONE", "MISSING", "TWICE")
    rows = [
        (p.topic, p.partition, p.begin, p.end, p.files, p.records, p.gaps, p.gone, p.missing, p.duplicates)
        for p in found.partitions
    ]
    print(terminal.table(head, rows, right=head[1:]))
    for problem in found.problems:
        terminal.fail(problem)
    if found.ok:
        print("each offset is in exactly one file" + ("" if found.against_log else " (not compared with the log)"))
    return OK if found.ok else FAILED


def _compact(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ottla.spark import compact

    with _spark(arguments) as spark:
        done = compact(arguments.archive, target_bytes=arguments.target_mb << 20, spark=spark)
    if arguments.json:
        terminal.print_json(asdict(done))
    else:
        print(
            f"merged {terminal.counted(done.merged, 'file')}: {done.files_before} files are {done.files_after} now, "
            f"{terminal.human_bytes(done.bytes_before)} are {terminal.human_bytes(done.bytes_after)}"
        )
    return OK


def _replay(arguments: argparse.Namespace) -> int:
    from ottla.spark import replay

    now_ms = int(time.time() * 1000)
    try:
        limits: dict[str, Any] = {
            name: None if text is None else parse_time(text, now_ms)
            for name, text in (("since_ms", arguments.since), ("until_ms", arguments.until))
        }
    except ValueError as error:
        raise UsageError(str(error)) from None
    stop = _Stop()
    connection = _connection_options(arguments)
    with _spark(arguments, stop) as spark, _Bar(arguments) as show:
        done = replay(
            arguments.archive,
            topic=arguments.to_topic,
            prefix=arguments.prefix,
            only=arguments.only,
            speed=arguments.speed,
            rate=arguments.rate,
            compression=arguments.compression,
            again=arguments.again,
            group=arguments.group,
            spark=spark,
            on_progress=show,
            stop=stop.event,
            **limits,
            **connection,
        )
    return _finish(arguments, done, f"replayed {_speed(done)} to {', '.join(done.topics)}")


def _stats(arguments: argparse.Namespace) -> int:
    from ottla.spark import stats
    from ottla.spark.pipelines.report import check_report

    check_report(arguments.report)
    _check_topics(arguments)
    done = _run(
        arguments,
        stats,
        topics=arguments.topics,
        out=arguments.out,
        window_ms=arguments.window,
        delay_ms=arguments.delay,
        to_topic=arguments.to_topic,
        report=arguments.report,
    )
    text = f"counted {_speed(done)} into {done.details['out']}"
    if arguments.report:
        text += f"; report: {arguments.report}"
    return _finish(arguments, done, text)


def _parse(arguments: argparse.Namespace) -> int:
    from ottla.spark import parse
    from ottla.spark.pipelines.decoders import load_decoding

    how = {name: getattr(arguments, name) for name in ("format", "schema", "message", "framing")}
    how["writer_schemas"] = _pairs(arguments.writer_schema, "--writer-schema")
    load_decoding(**how)
    _check_topics(arguments)
    done = _run(
        arguments, parse, topics=arguments.topics, out=arguments.out, dead_letters=arguments.dead_letters, **how
    )
    more = done.details
    text = f"parsed {_speed(done)} into {more['out']}"
    if more["bad"]:
        text += f"; {terminal.counted(more['bad'], 'record')} did not fit and went to {more['dead_letters']}"
    return _finish(arguments, done, text)


def _snapshot(arguments: argparse.Namespace) -> int:
    from ottla.spark import snapshot

    _check_topics(arguments)
    done = _run(arguments, snapshot, topics=arguments.topics, out=arguments.out)
    keys = terminal.counted(done.details["keys"], "key")
    return _finish(arguments, done, f"read {_speed(done)}; {keys} in {done.details['out']}")


def _pairs(given: list[str], option: str) -> dict[str, str]:
    try:
        return parse_settings(given)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def _sql(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ottla.spark import sql

    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    reading = _reading_options(arguments)
    stop = _Stop()
    with _spark(arguments, stop if arguments.stream else _interrupt) as spark, _Bar(arguments) as show:
        answer = sql(
            query,
            tables=_pairs(arguments.table, "--table"),
            schemas=_pairs(arguments.schema, "--schema"),
            binary=arguments.binary,
            out=arguments.out,
            to_topic=arguments.to_topic,
            limit=arguments.limit,
            stream=arguments.stream,
            spark=spark,
            on_progress=show,
            stop=stop.event,
            **reading,
        )
    if arguments.json:
        terminal.print_json({**asdict(answer), "rows": [_plain(row) for row in answer.rows]})
    elif answer.written_to is not None:
        print(f"written to {answer.written_to} in {answer.seconds:.1f} s")
    else:
        print(terminal.table(answer.columns, [list(_plain(row).values()) for row in answer.rows]))
        if answer.truncated:
            terminal.note(f"only the first {arguments.limit} rows are shown; --limit shows more")
    return _interrupted() if answer.interrupted else OK


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values that JSON and a table can show."""
    return {key: _shown(value) for key, value in row.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _shown(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _quality(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ottla.spark import quality
    from ottla.spark.pipelines.quality import KINDS

    _check_topics(arguments)
    with _spark(arguments) as spark:
        found = quality(arguments.topics, out=arguments.out, spark=spark, **_reading_options(arguments))
    if arguments.json:
        terminal.print_json({"clean": found.clean, **asdict(found)})
    else:
        head = ("TOPIC", "PARTITION", "RECORDS", "DUPLICATES", "GAPS", "OUT OF ORDER", "NULL KEYS")
        rows = [
            (p.topic, p.partition, p.records, p.duplicates, p.gaps, p.out_of_order, p.null_keys)
            for p in found.partitions
        ]
        print(terminal.table(head, rows, right=head[1:]))
        for kind in KINDS:
            for one in found.examples.get(kind, ())[:1]:
                print(f"{kind.replace('_', ' ')}: first at {one['topic']}-{one['partition']} offset {one['offset']}")
    return FAILED if arguments.fail and not found.clean else OK


def _run_file(arguments: argparse.Namespace) -> int:
    from ottla.spark.pipelines.declared import Declared, load, run_declared

    entries, session_options = load(arguments.file)
    if arguments.check:
        for entry in entries:
            print(f"{entry.name}: {entry.pipeline}")
        return OK
    arguments.master = arguments.master or session_options.get("master")
    arguments.conf = [*(f"{key}={value}" for key, value in session_options.get("conf", {}).items()), *arguments.conf]
    # The command line wins over the file, and the file over the environment.
    connection = _connection_options(arguments)
    fallback = {} if arguments.bootstrap else {"bootstrap": connection.pop("bootstrap")}
    chosen = [Declared(e.name, e.pipeline, {**fallback, **e.arguments, **connection}) for e in entries]
    arguments.source = "kafka" if any(entry.needs_connector for entry in chosen) else "ottla"
    shown: list[dict[str, Any]] = []

    def on_done(entry: Declared, result: Any) -> None:
        shown.append({"name": entry.name, "pipeline": entry.pipeline, **_result_json(result)})
        if not arguments.json:
            print(f"{entry.name}: {_one_line(result)}", flush=True)

    stop = _Stop()
    with _spark(arguments, stop) as spark, _Bar(arguments) as show:
        results = run_declared(
            chosen, on_done=on_done, spark=spark, on_progress=show, on_warning=terminal.warn, stop=stop.event
        )
    if arguments.json:
        terminal.print_json(shown)
    if stop.event.is_set():
        return _interrupted()
    return FAILED if any(getattr(result, "ok", True) is False for result in results.values()) else OK


def _result_json(result: Any) -> dict[str, Any]:
    from dataclasses import asdict

    found = asdict(result)
    if "rows" in found:
        found["rows"] = [_plain(row) for row in found["rows"]]
    return found


def _one_line(result: Any) -> str:
    if hasattr(result, "records_per_second"):
        return _speed(result)
    if hasattr(result, "ok"):
        return "each offset is in exactly one file" if result.ok else "; ".join(result.problems)
    if hasattr(result, "clean"):
        return "nothing odd" if result.clean else "found something odd"
    return "done"
