"""Spark on Ottla and on any Kafka cluster, through PySpark: `pip install "ottla[spark]"`.

`session()` returns a Spark session with the official connector (`format("kafka")`) and Ottla's own source and sink
(`format("ottla")`); `register()` adds the latter to an existing session. `archive`, `replay`, `stats`,
`parse`, `snapshot`, `sql` and `quality` are whole pipelines. `await_stream()` runs a stream of your own, and starts it
again if the machine was too busy to start it. Importing this package does not import Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.spark.errors import SparkSetupError
from ottla.spark.jars import connector_jars
from ottla.spark.pipelines import FUNCTIONS
from ottla.spark.queries import await_stream
from ottla.spark.sessions import register, session

if TYPE_CHECKING:
    from ottla.spark.pipelines.archive import archive
    from ottla.spark.pipelines.compact import compact
    from ottla.spark.pipelines.errors import PipelineError
    from ottla.spark.pipelines.parse import parse
    from ottla.spark.pipelines.quality import quality
    from ottla.spark.pipelines.replay import replay
    from ottla.spark.pipelines.snapshot import read_snapshot, snapshot
    from ottla.spark.pipelines.sql import sql
    from ottla.spark.pipelines.stats import read_stats, stats
    from ottla.spark.pipelines.upkeep import upkeep
    from ottla.spark.pipelines.verify import verify

__all__ = [
    "PipelineError",
    "SparkSetupError",
    "archive",
    "await_stream",
    "compact",
    "connector_jars",
    "parse",
    "quality",
    "read_snapshot",
    "read_stats",
    "register",
    "replay",
    "session",
    "snapshot",
    "sql",
    "stats",
    "upkeep",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a pipeline when its name is first used."""
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ottla.spark.pipelines.{FUNCTIONS[name]}"), name)
