"""Creates a Spark session that can read and write Kafka topics."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.spark import interpreter
from ottla.spark.errors import SparkSetupError
from ottla.spark.jars import CONNECTOR, connector_jars, has_jars, is_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA: Final = 17
REMOTE: Final = "sc://"
"""The prefix of the address of a Spark Connect server."""
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
Setting = str | int | bool
T = TypeVar("T")

# A single machine needs no announced address, and a short job needs no web page.
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

    `master` is `local[*]` unless set here, in $SPARK_MASTER or by spark-submit; `spark://HOST:PORT`, `yarn` and
    `k8s://…` also work (Ottla must be installed where the executors run), and so does a Spark Connect server,
    `sc://HOST:PORT`. If the official connector cannot be fetched, `on_warning` is called with one line and the session
    only has `format("ottla")`. With `connector=True` this is an error, and `connector=False` does not look for the
    connector. `config` contains Spark settings that override the defaults: time zone UTC, no web page and as many
    shuffle partitions as cores for a local master.

    An existing session is returned, with `format("ottla")` added to it. Raises SparkSetupError with a one-line message
    if PySpark or Java is missing.
    """
    pyspark = _pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        return active
    chosen = master or os.environ.get("SPARK_MASTER")
    if chosen is not None and chosen.startswith(REMOTE):
        return _remote(chosen, app_name, config or {}, on_step)
    check_java()
    tell = on_step or (lambda _: None)
    settings = dict(_ALWAYS)
    if chosen is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # set by spark-submit
        chosen = "local[*]"
    local = chosen is not None and chosen.startswith("local")
    if local:
        settings |= _LOCAL
    interpreter.choose(local=local)
    settings |= dict(config or {})
    if connector is not False:
        if not has_jars(pyspark) and not is_missing(pyspark):
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


def _remote(
    url: str, app_name: str, config: Mapping[str, Setting], on_step: Callable[[str], None] | None
) -> SparkSession:
    """A session of Spark Connect. The settings of its server cannot be changed from here."""
    from importlib.util import find_spec

    from pyspark.sql import SparkSession

    missing = [name for name in ("pandas", "grpc", "grpc_status") if find_spec(name) is None]
    if missing:
        raise SparkSetupError(f"Spark Connect needs the package {missing[0]}: pip install 'pyspark[connect]'")
    if on_step is not None:
        on_step(f"connecting to Spark at {url}")
    made = SparkSession.builder.appName(app_name).remote(url).getOrCreate()
    made.conf.set("spark.sql.session.timeZone", "UTC")
    for key, value in config.items():
        if key.startswith("spark.sql."):
            made.conf.set(key, str(value))
    register(made)
    return made


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[Callable[[Callable[[], T]], T]]:
    """A function that runs work in its own thread. Ctrl-C in this thread ends the jobs of that work, and no others."""
    name = f"ottla-{uuid.uuid4().hex}"
    remote = is_remote(spark)

    def named(work: Callable[[], T]) -> T:
        # Makes the session active in this thread. Otherwise Spark does not find Python data sources.
        spark.createDataFrame([], "n int")
        if remote:
            spark.addTag(name)
        else:
            spark.sparkContext.setJobGroup(name, "ottla", interruptOnCancel=True)
        return work()

    try:
        yield named
    except KeyboardInterrupt:
        with suppress(Exception):  # the session may be ending, too
            if remote:
                spark.interruptTag(name)
            else:
                spark.sparkContext.cancelJobGroup(name)
        raise


def _jars(version: str, *, required: bool, on_warning: Callable[[str], None]) -> list[str]:
    try:
        return [str(jar) for jar in connector_jars(version)]
    except SparkSetupError as error:
        if required:
            raise
        reason = str(error).partition(". ")[0]
        on_warning(f"{reason}; Ottla's own source reads instead (choose it with --source ottla)")
        return []


def register(spark: SparkSession) -> None:
    """Add `format("ottla")` to a session."""
    _pyspark()
    from ottla.spark.source import OttlaDataSource

    # This is off by default, and then Spark refuses a source that accepts filters. A declarative pipeline cannot set it
    # here, so its own file contains it.
    if spark.conf.get(_PUSHDOWN, "false") != "true":
        spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(OttlaDataSource)


def is_remote(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect, with Spark in another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that run at the same time."""
    if is_remote(spark):
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    return max(1, int(spark.sparkContext.defaultParallelism))


def connector_is_missing() -> bool:
    """Whether it is already known that no repository has the official connector for the installed Spark."""
    return is_missing(_pyspark())


def has_connector(spark: SparkSession) -> bool:
    """Whether the session was started with the official connector."""
    settings = spark.conf if is_remote(spark) else spark.sparkContext.getConf()
    named = f"{settings.get('spark.jars', '')},{settings.get('spark.jars.packages', '')}"
    return CONNECTOR.partition("_")[0] in named


def _pyspark() -> str:
    """The installed version. 4.0 is the first with Python data sources."""
    try:
        import pyspark
    except ImportError:
        raise SparkSetupError("PySpark is not installed; install it with: pip install 'ottla[spark]'") from None
    version: str = pyspark.__version__
    if int(version.partition(".")[0]) < 4:
        raise SparkSetupError(f"PySpark {version} is too old: Ottla needs 4.0 or newer (pip install 'ottla[spark]')")
    return version


def check_java() -> None:
    """Raise SparkSetupError unless there is a Java that Spark can use."""
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
