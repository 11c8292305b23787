"""The options of `ottla pipeline`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.cli.common import add_connection, add_json, argument, parse_duration, subcommand, words_go_to


def _spark_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("spark")
    group.add_argument("--master", metavar="URL", help="where Spark runs: local[*] (default), spark://…, yarn, k8s://…")
    group.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; repeatable"
    )
    group.add_argument("--spark-log", metavar="FILE", help="write Spark's own log to this file")


def _source_option(group: Any) -> None:
    group.add_argument(
        "--source",
        choices=("kafka", "ottla"),
        help="the source: Spark's official connector (default, if available), or Ottla's own",
    )


def _reading(parser: argparse.ArgumentParser, *, stream: bool = True) -> None:
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--start", metavar="WHERE", help="where the first run starts: earliest (default), latest, a time, or -2h"
    )
    group.add_argument(
        "--isolation", choices=("read_committed", "read_uncommitted"), default="read_committed", help="(read_committed)"
    )
    _source_option(group)
    group.add_argument(
        "--data", metavar="DIR", help="read the segment files of this data folder instead of asking the broker"
    )
    group.add_argument("--checkpoint", metavar="DIR", help="where the pipeline keeps its progress")
    group.add_argument("--group", metavar="NAME", help="the consumer group that shows the progress")
    group.add_argument("--no-group", action="store_true", help="do not commit to a group")
    if not stream:
        return
    group.add_argument("--max-records", type=int, metavar="N", help="the largest micro-batch (2000000)")
    group.add_argument(
        "--on-data-loss",
        choices=("warn", "fail"),
        default="warn",
        help="what to do if retention removed records before they were read (warn)",
    )
    group.add_argument("--follow", action="store_true", help="continue with new records until Ctrl-C")
    group.add_argument(
        "--interval",
        type=argument(parse_duration),
        metavar="DURATION",
        help="time between micro-batches with --follow (5s)",
    )


def _table_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("table")
    group.add_argument(
        "--format",
        metavar="FORMAT",
        help="parquet, delta or iceberg (default: the format of the existing table, or parquet)",
    )
    group.add_argument(
        "--catalog",
        metavar="CATALOG",
        help="the Iceberg catalog: sql (SQLite in the table's folder; default), hadoop, a database's URL, or "
        "http://… (REST)",
    )
    group.add_argument(
        "--catalog-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property of the catalog, with ${env:NAME} for secrets; repeatable",
    )
    group.add_argument("--table-name", metavar="NAME", help="the name in the catalog: NAMESPACE.TABLE (default.FOLDER)")


def _registry_options(parser: argparse.ArgumentParser, subject: str) -> None:
    group = parser.add_argument_group("schema registry")
    group.add_argument("--registry", metavar="URL", help="a schema registry with Confluent's API")
    group.add_argument(
        "--registry-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="basic.auth.user.info, bearer.auth.token or ssl.ca.location, with ${env:NAME} for secrets; repeatable",
    )
    group.add_argument("--subject", metavar="NAME", help=f"the subject of the schemas ({subject})")


@contextmanager
def _pipeline(
    kinds: Any,
    name: str,
    help_text: str,
    description: str = "",
    *,
    examples: tuple[str, ...],
    topics: bool = True,
    reads: str | None = "stream",
    out: str | None = None,
    table: bool = False,
) -> Iterator[argparse.ArgumentParser]:
    """A verb: the topics it reads and the table it keeps, then its own options, then those that all verbs share."""
    parser = subcommand(kinds, name, help_text, description, examples)
    if topics:
        parser.add_argument("topics", nargs="+", metavar="TOPIC", help="names or shell patterns")
        words_go_to(parser, "topics")
    if out is not None:
        parser.add_argument("--out", required=True, metavar="DIR", help=out)
    yield parser
    if table:
        _table_options(parser)
    if reads is not None:
        _reading(parser, stream=reads == "stream")
    add_json(parser)
    _spark_options(parser)
    add_connection(parser)


def add_archive(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "archive",
        "copy topics to Parquet files, each offset in exactly one",
        "Copy topics to Parquet files below DIR/topic=…/date=…/, named topic-partition-first-last.parquet; as plain "
        "files, or as a Delta or Iceberg table. If you run it again, even after a crash, it continues exactly where "
        "it stopped.",
        examples=(
            "ottla pipeline archive orders --out /data/archive",
            "ottla pipeline archive 'orders*' payments --out /data/archive --follow --interval 1m",
            "ottla pipeline archive orders --out /data/lake/orders --format delta",
            "ottla pipeline archive orders --out /data/lake/orders --format iceberg --catalog http://catalog:8181",
            "ottla pipeline archive orders --out s3://bucket/orders --format delta --master spark://head:7077",
        ),
        out="a folder, s3://BUCKET/PATH for Delta and Iceberg, or a URL of Hadoop",
        table=True,
    ) as parser:
        parser.add_argument(
            "--compression",
            choices=("snappy", "zstd", "gzip", "lz4", "none"),
            default="snappy",
            help="of the files (snappy)",
        )
        parser.add_argument(
            "--decode",
            action="store_true",
            help="add the fields of the values as columns, using the schemas of --registry (Delta and Iceberg)",
        )
        _registry_options(parser, "TOPIC-value")


def add_verify(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "verify",
        "prove that each offset of an archive is in exactly one file",
        "Check that the files hold what their names say, that no offset is in two files, and that no record of the log "
        "is missing. Exit code 1 if something is wrong.",
        examples=("ottla pipeline verify /data/archive", "ottla pipeline verify /data/archive --content"),
        topics=False,
        reads=None,
    ) as parser:
        parser.add_argument("archive", metavar="DIR")
        parser.add_argument(
            "--content", action="store_true", help="compare keys, values, headers and times with the log"
        )
        parser.add_argument("--no-log", action="store_true", help="check only the files, without a broker")
        _source_option(parser)


def add_compact(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "compact",
        "merge small files of an archive",
        "Merge neighbouring files of a partition and day until they are large enough. Each offset stays in exactly "
        "one file.",
        examples=("ottla pipeline compact /data/archive --target-mb 256",),
        topics=False,
        reads=None,
    ) as parser:
        parser.add_argument("archive", metavar="DIR")
        parser.add_argument("--target-mb", type=int, default=128, metavar="N", help="the size to reach (128)")
        parser.add_argument("--dry-run", action="store_true", help="only say how many files would be merged")


def add_upkeep(kinds: Any) -> None:
    parser = subcommand(
        kinds,
        "upkeep",
        "remove old versions of a table, and unused files",
        "Delta and Iceberg keep the files of earlier versions, and a killed writer leaves files that no commit "
        "uses. Remove both when they are old. Does not start Spark.",
        examples=(
            "ottla pipeline upkeep /data/lake/orders --dry-run",
            "ottla pipeline upkeep /data/lake/customers --expire 2d",
        ),
    )
    parser.add_argument("table", metavar="DIR")
    parser.add_argument(
        "--expire",
        type=argument(parse_duration),
        default=7 * 86_400_000,
        metavar="DURATION",
        help="the minimum age of the versions and unused files to remove (7d)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_json(parser)


def add_replay(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "replay",
        "write an archive back to a topic",
        "Write archived records to a topic with their keys, values, headers, timestamps, partitions and order, in "
        "transactions. The same command continues where it stopped, even after a crash; nothing is written twice.",
        examples=(
            "ottla pipeline replay /data/archive --to-topic orders-again",
            "ottla pipeline replay /data/archive --prefix replayed. --speed 10      # ten times as fast as it was",
            "ottla pipeline replay /data/archive --only orders --to-topic test --rate 500 --since -2h",
        ),
        topics=False,
        reads=None,
    ) as parser:
        parser.add_argument("archive", metavar="DIR")
        parser.add_argument(
            "--to-topic", metavar="TOPIC", help="the target (default: the topic's own name); created if missing"
        )
        parser.add_argument("--prefix", default="", help="prefix of the target topics, if there are several")
        parser.add_argument("--only", metavar="TOPIC", help="one of the archived topics")
        parser.add_argument(
            "--speed",
            type=float,
            default=0.0,
            metavar="X",
            help="1: original speed, 10: ten times as fast (default: no pauses)",
        )
        parser.add_argument("--rate", type=float, default=0.0, metavar="N", help="records per second instead")
        parser.add_argument("--since", metavar="TIME", help="only records after this time")
        parser.add_argument("--until", metavar="TIME", help="only records before this time")
        parser.add_argument(
            "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help="of batches (none)"
        )
        parser.add_argument(
            "--again", action="store_true", help="start from the beginning, even if it was replayed before"
        )
        parser.add_argument("--group", metavar="NAME", help="the consumer group that keeps and shows the progress")


def add_stats(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "stats",
        "count records, rates, sizes, keys and lateness by windows of time",
        "Keep a table of windows of event time for each topic: records, bytes, rates, distinct keys, lateness. A "
        "window is final when the watermark has passed it; later records are counted as dropped.",
        examples=(
            "ottla pipeline stats orders --out /data/stats --report stats.html",
            "ottla pipeline stats 'orders*' --out /data/stats --window 5m --delay 1h --to-topic topic-stats --follow",
        ),
        out="the table",
        table=True,
    ) as parser:
        parser.add_argument(
            "--window",
            type=argument(parse_duration),
            default=60_000,
            metavar="DURATION",
            help="length of a window (1m)",
        )
        parser.add_argument(
            "--delay",
            type=argument(parse_duration),
            default=600_000,
            metavar="DURATION",
            help="how late a record may be and still be counted (10m)",
        )
        parser.add_argument(
            "--late-after",
            type=argument(parse_duration),
            metavar="DURATION",
            help="a record counts as late if it is this far behind the latest earlier one (1s)",
        )
        parser.add_argument("--to-topic", metavar="TOPIC", help="send changed windows there as well, as JSON")
        parser.add_argument("--report", metavar="FILE", help="draw the windows: .html or .png")


def add_parse(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "parse",
        "write values as typed columns, and bad records to a dead-letter topic",
        "Write values as typed columns to a table. Records that do not match the schema go to a dead-letter topic, "
        "unchanged, with the reason in their headers.",
        examples=(
            "ottla pipeline parse orders --out /data/o --value-format json --schema 'id BIGINT NOT NULL, price DOUBLE'",
            "ottla pipeline parse orders --out /data/o --value-format avro --schema order.avsc --framing confluent",
            "ottla pipeline parse orders --out /data/o --value-format protobuf --schema shop.desc --message shop.Order",
            "ottla pipeline parse orders --out /data/o --format delta --registry http://127.0.0.1:8081",
        ),
        out="the table",
        table=True,
    ) as parser:
        parser.add_argument(
            "--value-format",
            default="",
            choices=("json", "avro", "protobuf"),
            help="what the values are; needed without --registry",
        )
        parser.add_argument(
            "--schema",
            default="",
            metavar="SCHEMA",
            help="DDL, a JSON Schema or an Avro schema, as text or in a file; a .proto file or a descriptor set",
        )
        parser.add_argument("--message", default="", metavar="NAME", help="the Protobuf message: package.Name")
        parser.add_argument(
            "--framing",
            choices=("plain", "confluent"),
            default="plain",
            help="whether a schema id comes before the value",
        )
        parser.add_argument(
            "--writer-schema",
            action="append",
            default=[],
            metavar="ID=FILE",
            help="the Avro schema that values with this id were written with; repeatable",
        )
        parser.add_argument("--dead-letters", metavar="TOPIC", help="for bad records (TOPIC.dead-letters)")
        _registry_options(parser, "TOPIC-value")


def add_snapshot(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "snapshot",
        "keep the latest value of each key in a table",
        "Keep a table of the latest value of each key; tombstones remove their keys.",
        examples=(
            "ottla pipeline snapshot customers --out /data/customers",
            "ottla pipeline snapshot shop.public.customers --out /data/customers --envelope debezium --format iceberg",
        ),
        out="the table",
        table=True,
    ) as parser:
        parser.add_argument(
            "--envelope",
            choices=("plain", "debezium"),
            default="plain",
            help="what the values are: rows (default), or Debezium's change events in JSON",
        )
        parser.add_argument(
            "--merge",
            choices=("copy-on-write", "merge-on-read"),
            default="copy-on-write",
            help="rewrite files with rows of changed keys (default), or, for Iceberg, only mark those rows as deleted",
        )


def add_sql(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "sql",
        "run a query over topics as tables",
        "Run a query in which topics are tables (with _ for . and - in their names), and print its rows, or write them "
        "to a table or a topic. Columns: key, value, topic, partition, offset, timestamp, headers.",
        examples=(
            "ottla pipeline sql 'select key, count(*) from orders group by key'",
            "ottla pipeline sql 'select sum(price) from orders' --schema 'orders=price DOUBLE'",
            "ottla pipeline sql 'select key, value from orders where key is not null' --to-topic keyed-orders",
            "ottla pipeline sql 'select * from o' --table o=orders.v1 --stream --checkpoint c --out /data/o",
        ),
        topics=False,
        table=True,
    ) as parser:
        parser.add_argument("query", metavar="QUERY", help="or - for standard input")
        parser.add_argument(
            "--table", action="append", default=[], metavar="NAME=TOPIC", help="another name for a topic"
        )
        parser.add_argument(
            "--schema",
            action="append",
            default=[],
            metavar="TABLE=DDL",
            help="columns of the JSON in the values, or a file",
        )
        parser.add_argument("--binary", action="store_true", help="show keys and values as bytes, not as text")
        parser.add_argument("--out", metavar="DIR", help="write a table there")
        parser.add_argument("--to-topic", metavar="TOPIC", help="write to this topic")
        parser.add_argument("--limit", type=int, default=1000, metavar="N", help="the most rows to print (1000)")
        parser.add_argument("--stream", action="store_true", help="continue from --checkpoint with new records")
        _registry_options(parser, "of --to-topic: TOPIC-value")


def add_quality(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "quality",
        "find duplicates, gaps, timestamps out of order and null keys",
        examples=(
            "ottla pipeline quality orders",
            "ottla pipeline quality orders --fail --json                 # exit code 1 if something was found",
        ),
        reads="once",
    ) as parser:
        parser.add_argument("--out", metavar="DIR", help="write all findings there as Parquet")
        parser.add_argument("--fail", action="store_true", help="exit code 1 if something was found")


def add_run(kinds: Any) -> None:
    with _pipeline(
        kinds,
        "run",
        "run the pipelines that a YAML file declares",
        "Run the pipelines of a YAML file in order, in one Spark session. Those with `follow` run in parallel "
        "until Ctrl-C.",
        examples=("ottla pipeline run pipelines.yaml", "ottla pipeline run pipelines.yaml --check"),
        topics=False,
        reads=None,
    ) as parser:
        parser.add_argument("file", metavar="FILE")
        parser.add_argument("--check", action="store_true", help="only check the file")
        parser.add_argument(
            "--fail", action="store_true", help="exit code 1 if there are findings, dead letters or lost records"
        )
