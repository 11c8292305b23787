"""`ottla pipeline`: moves records between topics and tables, with Spark."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from ottla.cli import terminal
from ottla.cli.common import FAILED, OK, CommandError, UsageError, guarded, parse_time, subcommand, verbs
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
    add_upkeep,
    add_verify,
)
from ottla.cli.pipeline_run import run_file
from ottla.cli.pipeline_shown import answer_table, connection_options, finish, interrupted, pairs, plain_row, speed
from ottla.cli.pipeline_spark import Bar, Stop, interrupt, signals_restored, spark_for


def add_parser(subparsers: Any) -> None:
    """Add `pipeline` to the command line."""
    parser = subcommand(
        subparsers,
        "pipeline",
        "archive, replay, count, parse and query topics with Spark",
        "Pipelines between topics and tables, on Spark: on this machine, or on a cluster with --master. Needs Java and "
        "`pip install 'ottla[spark]'`. Run the same command again to continue where it stopped.",
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
    """The options and the function of each verb."""
    return {
        "archive": (add_archive, _archive),
        "verify": (add_verify, _verify),
        "compact": (add_compact, _compact),
        "upkeep": (add_upkeep, _upkeep),
        "replay": (add_replay, _replay),
        "stats": (add_stats, _stats),
        "parse": (add_parse, _parse),
        "snapshot": (add_snapshot, _snapshot),
        "sql": (add_sql, _sql),
        "quality": (add_quality, _quality),
        "run": (add_run, run_file),
    }


def _translated(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    from ottla.spark.errors import SparkSetupError
    from ottla.spark.pipelines.errors import PipelineError, explain
    from ottla.spark.pipelines.object_stores import check_location

    with signals_restored():
        try:
            for name in ("out", "checkpoint", "archive"):
                check_location(getattr(arguments, name, None))
            return verb(arguments)
        except (PipelineError, SparkSetupError) as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(str(explain(error))) from None


def _reading_options(arguments: argparse.Namespace) -> dict[str, Any]:
    found = connection_options(arguments)
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
    if hasattr(arguments, "table_name"):
        found |= _table_options(arguments)
    if getattr(arguments, "interval", None) is not None:
        found["interval_s"] = arguments.interval / 1000
    return found


def _table_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Check the options immediately: a wrong format or catalog can be found without Spark."""
    from ottla.spark.pipelines.formats import check_format
    from ottla.spark.pipelines.tables import check_target

    found = {name: getattr(arguments, name) for name in ("format", "catalog", "table_name")}
    found["catalog_options"] = pairs(arguments.catalog_option, "--catalog-option")
    target = check_format(**found)
    if arguments.out is not None and arguments.verb != "sql":  # whose table may be Spark's own
        check_target(arguments.out, arguments.verb, target)
    return {name: value for name, value in found.items() if value}


def _registry_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the registry; empty if no registry is chosen."""
    if arguments.registry is None:
        if arguments.subject is not None or arguments.registry_option:
            raise UsageError("--subject and --registry-option need a registry: add --registry URL")
        return {}
    options = pairs(arguments.registry_option, "--registry-option")
    return {"registry": arguments.registry, "registry_options": options, "subject": arguments.subject}


def _run(arguments: argparse.Namespace, work: Callable[..., Any], **more: Any) -> Any:
    """Start Spark, run a pipeline with a progress bar, and return its result."""
    # Make all checks that do not need Spark before Spark starts, which takes seconds.
    options = {**_reading_options(arguments), **more}
    stop = Stop()
    with spark_for(arguments, stop) as spark, Bar(arguments) as bar:
        return work(spark=spark, on_progress=bar.show, stop=stop.event, **options)


def _check_topics(arguments: argparse.Namespace) -> None:
    from ottla.spark.pipelines.topics import BlockingClient

    options = connection_options(arguments)
    BlockingClient(options["bootstrap"], options.get("client_config", {}), arguments.timeout).resolve(arguments.topics)


def _archive(arguments: argparse.Namespace) -> int:
    from ottla.spark import archive

    if arguments.decode != (arguments.registry is not None):
        raise UsageError("values are decoded with the schemas of a registry: add both --decode and --registry")
    _check_topics(arguments)
    how = {"compression": arguments.compression, "decode": arguments.decode, **_registry_options(arguments)}
    done = _run(arguments, archive, topics=arguments.topics, out=arguments.out, **how)
    more = done.details
    text = (
        f"archived {speed(done)} to {more['out']}: {terminal.counted(more['files'], 'file')}, "
        f"{terminal.human_bytes(more['bytes'])}, {terminal.counted(more['archived'], 'record')} in all"
    )
    return finish(arguments, done, text)


def _verify(arguments: argparse.Namespace) -> int:
    from ottla.spark import verify
    from ottla.spark.pipelines.archive import check_archive
    from ottla.spark.pipelines.verify import as_dict

    check_archive(arguments.archive)
    with spark_for(arguments) as spark:
        options = {**connection_options(arguments), "source": arguments.source, "spark": spark}
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
    from ottla.spark.pipelines.archive import check_archive

    check_archive(arguments.archive)
    target_bytes = arguments.target_mb << 20
    if arguments.dry_run:
        done = compact(arguments.archive, target_bytes=target_bytes, dry_run=True)
    else:
        with spark_for(arguments) as spark:
            done = compact(arguments.archive, target_bytes=target_bytes, spark=spark)
    if arguments.json:
        terminal.print_json(asdict(done))
    elif done.dry_run:
        print(
            f"{terminal.counted(done.merged, 'file')} would be merged: {done.files_before} files would be "
            f"{done.files_after}"
        )
    else:
        print(
            f"merged {terminal.counted(done.merged, 'file')}: {done.files_before} files are {done.files_after} now, "
            f"{terminal.human_bytes(done.bytes_before)} are {terminal.human_bytes(done.bytes_after)}"
        )
    return OK


def _upkeep(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ottla.spark import upkeep

    done = upkeep(arguments.table, expire_ms=arguments.expire, dry_run=arguments.dry_run)
    if arguments.json:
        terminal.print_json(asdict(done))
        return OK
    for path in done.files if done.dry_run else ():
        print(path)
    what = f"{terminal.counted(done.versions, 'version')} and {terminal.counted(len(done.files), 'file')}"
    print(f"{what} ({terminal.human_bytes(done.bytes)}) {'would be' if done.dry_run else 'were'} removed")
    return OK


def _replay(arguments: argparse.Namespace) -> int:
    from ottla.spark import replay
    from ottla.spark.pipelines.archive import check_archive

    check_archive(arguments.archive)
    now_ms = int(time.time() * 1000)
    try:
        limits: dict[str, Any] = {
            name: None if text is None else parse_time(text, now_ms)
            for name, text in (("since_ms", arguments.since), ("until_ms", arguments.until))
        }
    except ValueError as error:
        raise UsageError(str(error)) from None
    stop = Stop()
    connection = connection_options(arguments)
    with spark_for(arguments, stop) as spark, Bar(arguments) as bar:
        done = replay(
            arguments.archive,
            to_topic=arguments.to_topic,
            prefix=arguments.prefix,
            only=arguments.only,
            speed=arguments.speed,
            rate=arguments.rate,
            compression=arguments.compression,
            again=arguments.again,
            group=arguments.group,
            spark=spark,
            on_progress=bar.show,
            stop=stop.event,
            **limits,
            **connection,
        )
    return finish(arguments, done, f"replayed {speed(done)} to {', '.join(done.topics)}")


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
        late_after_ms=arguments.late_after,
        to_topic=arguments.to_topic,
        report=arguments.report,
    )
    text = f"counted {speed(done)} into {done.details['out']}"
    if arguments.report:
        text += f"; report: {arguments.report}"
    return finish(arguments, done, text)


def _parse(arguments: argparse.Namespace) -> int:
    from ottla.spark import parse
    from ottla.spark.pipelines.decoders import load_decoding
    from ottla.spark.pipelines.registered import registered

    how = {name: getattr(arguments, name) for name in ("schema", "message", "framing")}
    how["writer_schemas"] = pairs(arguments.writer_schema, "--writer-schema")
    registry = _registry_options(arguments)
    if registry:
        named = [registry[name] for name in ("registry", "registry_options", "subject")]
        registered(named[0], named[1], named[2], arguments.topics, arguments.message)
    elif not arguments.value_format or not arguments.schema:
        raise UsageError("parse needs --value-format and --schema, or --registry")
    else:
        load_decoding(arguments.value_format, **how)
    how |= {"value_format": arguments.value_format, **registry}
    _check_topics(arguments)
    done = _run(
        arguments, parse, topics=arguments.topics, out=arguments.out, dead_letters=arguments.dead_letters, **how
    )
    more = done.details
    text = f"parsed {speed(done)} into {more['out']}"
    if more["bad"]:
        text += f"; {terminal.counted(more['bad'], 'record')} did not fit and went to {more['dead_letters']}"
    return finish(arguments, done, text)


def _snapshot(arguments: argparse.Namespace) -> int:
    from ottla.spark import snapshot

    _check_topics(arguments)
    how = {"envelope": arguments.envelope, "merge": arguments.merge}
    done = _run(arguments, snapshot, topics=arguments.topics, out=arguments.out, **how)
    keys = terminal.counted(done.details["keys"], "key")
    return finish(arguments, done, f"read {speed(done)}; {keys} in {done.details['out']}")


def _sql(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ottla.spark import sql
    from ottla.spark.pipelines.sql import check_query

    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    asked: dict[str, Any] = {
        "tables": pairs(arguments.table, "--table"),
        "schemas": pairs(arguments.schema, "--schema"),
        "out": arguments.out,
        "to_topic": arguments.to_topic,
        "stream": arguments.stream,
        **_reading_options(arguments),
    }
    check_query(query, **asked)
    stop = Stop()
    with spark_for(arguments, stop if arguments.stream else interrupt) as spark, Bar(arguments) as bar:
        answer = sql(
            query,
            binary=arguments.binary,
            limit=arguments.limit,
            spark=spark,
            on_progress=bar.show,
            stop=stop.event,
            **_registry_options(arguments),
            **asked,
        )
    if arguments.json:
        terminal.print_json({**asdict(answer), "rows": [plain_row(row) for row in answer.rows]})
    elif answer.written_to is not None:
        print(f"written to {answer.written_to} in {answer.seconds:.1f} s")
    else:
        print(answer_table(answer))
        if answer.truncated:
            terminal.note(f"only the first {arguments.limit} rows are shown; --limit shows more")
    return interrupted() if answer.interrupted else OK


def _quality(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ottla.spark import quality
    from ottla.spark.pipelines.quality import KINDS

    _check_topics(arguments)
    with spark_for(arguments) as spark:
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
