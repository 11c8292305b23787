"""Pipelines declared in a YAML file. They run one after the other; those that follow their topics run in parallel.

An entry has the options of its command under the same names, with `_` for `-`: `--to-topic` is `to_topic`, and
`--window 5m` is `window: 5m`. Options that a command accepts several times are mappings: `table: {o: orders.v1}`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, Final, cast

from ottla.durations import parse_duration, parse_time
from ottla.spark.pipelines import FUNCTIONS
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.jobs import WRITERS, Options, Progress, TableOptions, spark_of
from ottla.spark.pipelines.object_stores import check_location

PIPELINES: Final = ("archive", "compact", "upkeep", "verify", "replay", "stats", "parse", "snapshot", "sql", "quality")
_TOP: Final = {"bootstrap", "client_config", "master", "conf", "defaults", "pipelines"}
_OF_STREAMS: Final = {"follow", "interval_s", "max_records"}
# Options that a command accepts as text, and the corresponding arguments of the function. The argument names are
# accepted as well.
_FROM_TEXT: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "window": ("window_ms", lambda value: _milliseconds(value)),
    "delay": ("delay_ms", lambda value: _milliseconds(value)),
    "late_after": ("late_after_ms", lambda value: _milliseconds(value)),
    "interval": ("interval_s", lambda value: _milliseconds(value) / 1000),
    "expire": ("expire_ms", lambda value: _milliseconds(value)),
    "since": ("since_ms", lambda value: _moment(value)),
    "until": ("until_ms", lambda value: _moment(value)),
    "start": ("start", lambda value: value if value in ("earliest", "latest") else _moment(value)),
    "target_mb": ("target_bytes", lambda value: int(value) << 20),
    "table": ("tables", dict),
    "writer_schema": ("writer_schemas", dict),
    "catalog_option": ("catalog_options", dict),
    "registry_option": ("registry_options", dict),
    "data": ("source_options", lambda value: {"path": value}),
    "no_group": ("group", lambda value: None),
    "no_log": ("log", lambda value: not value),
}
# Set by the user who runs the file, not by the file.
_NOT_DECLARED: Final = {"spark", "stop", "on_progress", "on_warning"}


@dataclass(frozen=True, slots=True)
class Declared:
    """One entry of the file."""

    name: str
    pipeline: str
    arguments: dict[str, Any]

    @property
    def follows(self) -> bool:
        return bool(self.arguments.get("follow"))

    @property
    def source(self) -> str | None:
        """The source it reads from: kafka, ottla (even if it reads no topic), or None for any that is available."""
        if self.pipeline in ("compact", "upkeep", "replay"):
            return "ottla"
        chosen = self.arguments.get("source")
        return None if chosen is None else str(chosen)


def load(path: str) -> tuple[list[Declared], dict[str, Any]]:
    """The entries, and the options for Spark. The message of PipelineError shows the faulty place."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise PipelineError("PyYAML is not installed: pip install 'ottla[spark]'") from None
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(f"{path} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise PipelineError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not isinstance(content.get("pipelines"), list):
        raise PipelineError(f"{path} has no list named 'pipelines'")
    unknown = sorted(set(content) - _TOP)
    if unknown:
        raise PipelineError(f"{path}: '{unknown[0]}' is not known; the keys are {', '.join(sorted(_TOP))}")
    shared = {key: content[key] for key in ("bootstrap", "client_config") if key in content}
    shared |= content.get("defaults") or {}
    entries = [_entry(path, at, entry, shared) for at, entry in enumerate(content["pipelines"], 1)]
    names = [entry.name for entry in entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PipelineError(f"{path}: two pipelines are named '{twice}'")
    return entries, {key: content[key] for key in ("master", "conf") if key in content}


def _entry(path: str, number: int, entry: Any, shared: Mapping[str, Any]) -> Declared:
    where = f"{path}, pipeline {number}"
    if not isinstance(entry, dict) or entry.get("pipeline") not in PIPELINES:
        raise PipelineError(f"{where}: 'pipeline' is one of {', '.join(PIPELINES)}")
    pipeline = entry["pipeline"]
    own = {key: value for key, value in entry.items() if key not in ("pipeline", "name")}
    known = _parameters(pipeline)
    named = {name: made for name, made in _names(pipeline).items() if made[0] in known}
    unknown = sorted(set(own) - known - set(named))
    if unknown:
        shown = sorted({*(known - {target for target, _ in named.values()}), *named})
        raise PipelineError(f"{where}: {pipeline} has no option '{unknown[0]}'; it has {', '.join(shown)}")
    arguments: dict[str, Any] = {}
    for key, value in {**{key: value for key, value in shared.items() if key in {*known, *named}}, **own}.items():
        target, convert = named.get(key, (key, None))
        try:
            arguments[target] = value if convert is None else convert(value)
        except (ValueError, TypeError) as error:
            raise PipelineError(f"{where}: {key}: {error}") from None
    for name in ("out", "checkpoint", "archive"):
        check_location(arguments.get(name))
    missing = [name for name in _required(pipeline) if name not in arguments]
    if missing:
        raise PipelineError(f"{where}: {pipeline} needs '{missing[0]}'")
    return Declared(str(entry.get("name", f"{pipeline}-{number}")), pipeline, arguments)


def _names(pipeline: str) -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """The options whose names differ from the function's arguments."""
    return {**_FROM_TEXT, "schema": ("schemas", dict)} if pipeline == "sql" else _FROM_TEXT


def _milliseconds(value: Any) -> int:
    return parse_duration(str(value))


def _moment(value: Any) -> int:
    return parse_time(str(value), time.time_ns() // 1_000_000)


def function_of(pipeline: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f"ottla.spark.pipelines.{FUNCTIONS[pipeline]}"), pipeline)
    return found


def _parameters(pipeline: str) -> set[str]:
    own = {name for name in inspect.signature(function_of(pipeline)).parameters if name != "options"}
    if pipeline == "upkeep":  # reads no topic and needs no Spark
        return own
    if pipeline in WRITERS:
        return own | (set(TableOptions.__annotations__) - _NOT_DECLARED)
    return own | (set(Options.__annotations__) - _NOT_DECLARED - _OF_STREAMS)


def _required(pipeline: str) -> list[str]:
    kinds = inspect.signature(function_of(pipeline)).parameters.values()
    return [p.name for p in kinds if p.default is p.empty and p.kind is not p.VAR_KEYWORD]


def run_declared(
    entries: list[Declared], *, on_done: Callable[[Declared, Any], None] | None = None, **options: Any
) -> dict[str, Any]:
    """Run entries in order with one Spark. Those with `follow` then start together and run until stopped.

    Returns the results by name. The first failure ends the run; the error names the pipeline.
    """
    stop: Event = options.setdefault("stop", Event())
    options["spark"] = spark_of(cast(Options, options))
    for key in ("master", "conf"):
        options.pop(key, None)
    tell: Callable[[Progress], None] | None = options.get("on_progress")
    results: dict[str, Any] = {}

    def run(entry: Declared) -> Any:
        mine = {} if entry.pipeline == "upkeep" else dict(options)
        if tell is not None and mine:
            mine["on_progress"] = lambda progress: tell(replace(progress, pipeline=entry.name))
        try:
            known = _parameters(entry.pipeline)  # only some pipelines connect to a cluster
            given = {key: value for key, value in entry.arguments.items() if key in known}
            result = function_of(entry.pipeline)(**{**given, **mine})
        except PipelineError as error:
            raise PipelineError(f"{entry.name}: {error}") from None
        results[entry.name] = result
        if on_done is not None:
            on_done(entry, result)
        return result

    for entry in (entry for entry in entries if not entry.follows):
        if stop.is_set() or getattr(run(entry), "interrupted", False):
            return results
    _run_together([entry for entry in entries if entry.follows], run, stop)
    return results


def _run_together(entries: list[Declared], run: Callable[[Declared], Any], stop: Event) -> None:
    if not entries:
        return
    with ThreadPoolExecutor(len(entries)) as pool:
        waiting: set[Future[Any]] = {pool.submit(run, entry) for entry in entries}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        except BaseException:
            stop.set()
            raise
