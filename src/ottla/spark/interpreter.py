"""The Python that Spark starts on this machine for tasks, plans and streams.

Spark puts PySpark at the front of PYTHONPATH as zip files without bytecode, so each process compiles PySpark when it
starts. That costs about 1.5 s of CPU time for every stream, out of the ten seconds that Spark waits for a process. If
the installed PySpark is the same version, a short script starts Python without the zip files.
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
# Made by Ottla: starts Python with the installed PySpark instead of the zip files that Spark puts before it.
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
    """Set PYSPARK_PYTHON to the Python that Spark starts, unless the user has set it."""
    said = os.environ.get(VARIABLE, sys.executable)
    # An earlier session, or the parent process, may have set it.
    if said == sys.executable or Path(said).name.startswith(_NAME):
        os.environ[VARIABLE] = (starter() if local else None) or sys.executable


def starter(cache: Path | None = None) -> str | None:
    """The script, which is created if it is missing. None if it cannot be used."""
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
    except OSError:  # the home folder is not writable
        return None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{_NAME}")
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(handle, 0o755)
    # A process that starts the script must find a complete file that is not open for writing.
    os.replace(name, path)
