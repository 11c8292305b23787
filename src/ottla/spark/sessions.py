"""One call to a Spark session that can read and write Kafka topics."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.spark import interpreter
from ottla.spark.errors import SparkSetupError
from ottla.spark.jars import CONNECTOR, connector_jars, has_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA: Final = 17
Setting = str | int | bool

# On one machine there is no address to announce and nobody looks at the web page of a short job.
_LOCAL: Final[dict[str, Setting]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": max(2, os.cpu_count() or 2),
}
_ALWAYS: Final[dict[str, Setting]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": False,
}


def session(
    *,
    master: str | None = None,
    app_name: str = "ottla",
    connector: bool | None = None,
    config: Mapping[str, Setting] | None = None,
    on_warning: Callable[[str], None] = warnings.warn,
    on_step: Callable[[str], None] | None = None,
) -> SparkSession:
    """A Spark session with `format("kafka")` (the official connector) and `format("ottla")` (Ottla's own).

    `master` is `local[*]` unless given here, in $SPARK_MASTER or by spark-submit; `spark://HOST:PORT`, `yarn` and
    `k8s://…` work alike (Ottla must be installed where the executors run). Where the official connector cannot be
    fetched, `on_warning` gets one line and the session has `format("ottla")` alone; with `connector=True` that is an
    error, and `connector=False` does not look for it. `config` holds any Spark settings and wins over the defaults:
    time zone UTC, no web page and as many shuffle partitions as cores for a local master.

    A session that is there already is given back with `format("ottla")` added to it. SparkSetupError says in one line
    when PySpark or Java is missing.
    """
    pyspark = _pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        return active
    check_java()
    tell = on_step or (lambda _: None)
    settings = dict(_ALWAYS)
    chosen = master or os.environ.get("SPARK_MASTER")
    if chosen is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # which spark-submit sets
        chosen = "local[*]"
    local = chosen is not None and chosen.startswith("local")
    if local:
        settings |= _LOCAL
    interpreter.choose(local=local)
    settings |= dict(config or {})
    if connector is not False:
        if not has_jars(pyspark):
            tell("fetching Spark's Kafka connector with Maven")
        jars = _jars(pyspark, required=connector is True, on_warning=on_warning)
        named = ",".join([*filter(None, [str(settings.get("spark.jars", ""))]), *jars])
        if named:
            settings["spark.jars"] = named
    builder = SparkSession.builder.appName(app_name)
    if chosen is not None:
        builder = builder.master(chosen)
    for key, value in settings.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else str(value))
    tell(f"starting Spark {pyspark}" + (f" on {chosen}" if chosen else ""))
    made = builder.getOrCreate()
    register(made)
    return made


def _jars(version: str, *, required: bool, on_warning: Callable[[str], None]) -> list[str]:
    try:
        return [str(jar) for jar in connector_jars(version)]
    except SparkSetupError as error:
        if required:
            raise
        reason = str(error).partition(". ")[0]
        on_warning(f"{reason}; Ottla's own source reads instead (--source ottla says so without this warning)")
        return []


def register(spark: SparkSession) -> None:
    """Add `format("ottla")` to a session."""
    _pyspark()
    from ottla.spark.source import OttlaDataSource

    # Off by default, and a source that can take filters is refused while it is off.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(OttlaDataSource)


def has_connector(spark: SparkSession) -> bool:
    """Whether the session was started with the official connector."""
    settings = spark.sparkContext.getConf()
    named = f"{settings.get('spark.jars', '')},{settings.get('spark.jars.packages', '')}"
    return CONNECTOR.partition("_")[0] in named


def _pyspark() -> str:
    """The installed version; 4.0 is the first with Python data sources."""
    try:
        import pyspark
    except ImportError:
        raise SparkSetupError("PySpark is not installed; install it with: pip install 'ottla[spark]'") from None
    version: str = pyspark.__version__
    if int(version.partition(".")[0]) < 4:
        raise SparkSetupError(f"PySpark {version} is too old: Ottla needs 4.0 or newer (pip install 'ottla[spark]')")
    return version


def check_java() -> None:
    """SparkSetupError unless a Java that Spark can use is there."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
        raise SparkSetupError(f"Spark needs Java {LEAST_JAVA} or newer, and {where}; install a JDK or set JAVA_HOME")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkSetupError(f"Spark needs Java {LEAST_JAVA} or newer, and {java} does not run: {error}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is None or int(found[1]) < LEAST_JAVA:
        what = f"Java {found[1]}" if found else "no Java"
        raise SparkSetupError(f"Spark needs Java {LEAST_JAVA} or newer, and {java} is {what}")
