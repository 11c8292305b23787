"""The Python that Spark starts on this machine for tasks, plans and streams.

Spark puts PySpark in front of PYTHONPATH as zip files. They hold no bytecode, so each process compiles PySpark when it
starts: about 1.5 s of processor time, once for every stream, of the ten seconds that Spark waits for a process. Where
the installed PySpark is the same, a script of a few lines starts Python without them.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

from ottla.spark.jars import cache_folder

VARIABLE: Final = "PYSPARK_PYTHON"

_SCRIPT: Final = """#!/bin/sh
# Made by Ottla: starts Python with the installed PySpark instead of the zip files that Spark puts in front of it.
set -f
IFS=:
path=
for part in $PYTHONPATH; do
  case $part in
    {spark}/python/lib/*.zip | {spark}/jars/*.jar) ;;
    *) path=$path${{path:+:}}$part ;;
  esac
done
PYTHONPATH=$path
export PYTHONPATH
unset IFS
exec {python} "$@"
"""

_NAME: Final = "spark-python-"


def choose(*, local: bool) -> None:
    """Say in PYSPARK_PYTHON which Python Spark starts, unless the user said it."""
    said = os.environ.get(VARIABLE, sys.executable)
    # A session before this one, or the process that started this one, may have chosen.
    if said == sys.executable or Path(said).name.startswith(_NAME):
        os.environ[VARIABLE] = (starter() if local else None) or sys.executable


def starter(cache: Path | None = None) -> str | None:
    """The script, made when it is not there; None where it would not do."""
    import pyspark

    spark = Path(pyspark.__file__).parent
    if os.name != "posix" or os.environ.get("SPARK_HOME", str(spark)) != str(spark) or not spark.is_dir():
        return None
    text = _SCRIPT.format(spark=shlex.quote(str(spark)), python=shlex.quote(sys.executable))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = (cache_folder() if cache is None else cache) / f"{_NAME}{digest}"
    try:
        if not path.exists():
            _write(path, text)
        return str(path) if path.read_text() == text and os.access(path, os.X_OK) else None
    except OSError:  # a home that cannot be written to
        return None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{_NAME}")
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(handle, 0o755)
    # Whoever starts it finds a whole file that nobody has open for writing.
    os.replace(name, path)
