"""Spark for `ottla pipeline`: its start and end, the handling of Ctrl-C, and the progress lines."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final

from ottla.cli import terminal
from ottla.cli.common import CommandError, parse_settings

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_TICK_S: Final = 0.5


@contextmanager
def signals_restored() -> Iterator[None]:
    """Ctrl-C and SIGTERM interrupt the block. Afterwards the earlier signal handlers are restored."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    _listen(interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _listen(handler: Callable[..., None]) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class Stop:
    """Ctrl-C, or SIGTERM: the first lets the current batch finish, the second ends immediately."""

    def __init__(self) -> None:
        self.event = Event()

    def __call__(self, *_: object) -> None:
        if self.event.is_set():
            raise KeyboardInterrupt
        self.event.set()
        # Not through sys.stderr: the signal may have come in the middle of a write to it.
        os.write(2, b"\nstopping after the current batch; press Ctrl-C again to stop at once\n")


@contextmanager
def spark_for(arguments: argparse.Namespace, on_signal: Callable[..., None] = interrupt) -> Iterator[Any]:
    """A session that logs to a file, so that the terminal shows only our lines."""
    from ottla.spark import session
    from ottla.spark.errors import SparkSetupError
    from ottla.spark.pipelines.login import REDACTED
    from ottla.spark.sessions import connector_is_missing

    conf: dict[str, str | int | bool] = {"spark.log.level": "ERROR", "spark.redaction.regex": REDACTED}
    conf |= parse_settings(arguments.conf)
    made: Any = None
    shared = _running()
    told_before = connector_is_missing()  # by an earlier command, less than a day ago
    warnings: list[str] = []
    # PySpark logs stack traces of errors that we report in one line, and of Ctrl-C.
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with _stderr_to(arguments.spark_log) as (log, shown), Waiting(shown, quiet=shared or arguments.json) as waiting:
            try:
                made = session(
                    master=arguments.master,
                    app_name=f"ottla pipeline {arguments.verb}",
                    config=conf,
                    connector=wants_connector(arguments),
                    on_step=waiting.begin,
                    on_warning=warnings.append,
                )
            except SparkSetupError:
                raise
            except Exception as error:
                raise CommandError(f"Spark does not start: {_last_words(log) or str(error).splitlines()[0]}") from None
        for text in [] if told_before else warnings:
            terminal.warn(text)
        _listen(on_signal)  # PySpark has installed its own handler, which cancels all jobs
        yield made
    finally:
        _listen(interrupt)
        if made is not None and not shared:
            made.stop()
        logging.disable(logged)


def wants_connector(arguments: argparse.Namespace) -> bool | None:
    """Whether to use Spark's official connector; None means only if it is available."""
    if arguments.verb in ("compact", "replay") or getattr(arguments, "data", None) or getattr(arguments, "no_log", 0):
        return False
    return {"kafka": True, "ottla": False}.get(getattr(arguments, "source", None) or "")


def _running() -> bool:
    """Whether this process already has a session, which we must not stop."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


class Waiting:
    """A line with the current step and its duration. It is redrawn on a terminal, and printed once elsewhere."""

    def __init__(self, stream: int, *, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._live = not quiet and os.isatty(stream) and os.environ.get("TERM") != "dumb"
        self._what = ""
        self._since = 0.0
        self._over = Event()
        self._ticker = Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Waiting:
        if self._live:
            self._ticker.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        if self._live:
            self._ticker.join()
            os.write(self._stream, b"\r\x1b[2K")
        if kind is None:
            self._end()

    def begin(self, what: str) -> None:
        """Start a new step, and end the one before it."""
        self._end()
        self._what, self._since = what, time.monotonic()

    def _end(self) -> None:
        if self._what and not self._quiet:
            clear = "\r\x1b[2K" if self._live else ""
            os.write(self._stream, f"{clear}{self._what}: {time.monotonic() - self._since:.1f} s\n".encode())

    def _tick(self) -> None:
        while not self._over.wait(_TICK_S):
            if self._what:
                line = f"\r\x1b[2K{self._what} … {time.monotonic() - self._since:.0f} s"
                os.write(self._stream, line.encode())


@contextmanager
def _stderr_to(path: str | None) -> Iterator[tuple[str, int]]:
    """The JVM inherits our standard error when it starts. Returns the file and the real standard error."""
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
            yield name, saved
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def _last_words(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    errors = [line for line in lines if "rror" in line or "xception" in line]
    return (errors or lines or [""])[0][:300]


class Bar:
    """A bar on a terminal, with the lag and the current rate. Pipelines that run in parallel share one."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._label = arguments.verb
        self._quiet = arguments.json
        self._seen: dict[str, Any] = {}
        self.line = self._fresh()

    def _fresh(self) -> terminal.Progress:
        return terminal.Progress(self._label, None, unit="records", quiet=self._quiet)

    def __enter__(self) -> Bar:
        self.line.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self.line.__exit__(failure[0])

    def show(self, progress: Any) -> None:
        self._seen[progress.pipeline] = progress
        bar, seen = self.line, list(self._seen.values())
        busy = [one for one in seen if one.lag] or [progress]
        lags = ", ".join(f"{one.pipeline} lag {terminal.human_count(one.lag)}" for one in busy)
        bar.label = f"{lags}  now {terminal.human_count(int(sum(one.records_per_second for one in busy)))}/s"
        bar.total = sum(one.total for one in seen)
        bar.advance(sum(one.records for one in seen) - bar.done)

    def ended(self, pipeline: str) -> None:
        """The next pipeline counts from zero, with its own bar."""
        self._seen.pop(pipeline, None)
        if not self._seen:
            self.line.__exit__(None)
            self.line = self._fresh()
