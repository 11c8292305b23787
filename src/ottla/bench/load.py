"""The load generator: a child process, so that it does not delay the measurement and its CPU time is known.

    python -m ottla.bench.load SPEC     SPEC is JSON: {"load": NAME, "host": …, "port": …, …}

It prepares everything, prints `ready`, waits for a line on stdin, runs, and prints its result as JSON. `drive` is the
other end.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.bench.model import NotMeasurable, NotServed

Spec = dict[str, Any]
Result = dict[str, Any]
# A load gets its specification, prepares, and returns the function to time.
Load = Callable[[Spec], Callable[[], Result]]

MODULES = {
    "produce": "stream",
    "fetch": "stream",
    "walk": "stream",
    "lookup": "stream",
    "fill_stamped": "fill",
    "fill_keyed": "fill",
    "lookup_time": "fill",
    "crowd": "crowd",
    "beside": "beside",
    "steady": "beside",
    "deaf": "beside",
    "compacting": "beside",
    "asking": "asking",
    "probing": "probing",
    "requests": "requests",
    "commits": "requests",
    "member_requests": "members",
    "latency": "latency",
    "waking": "latency",
    "join": "members",
    "idle_groups": "members",
    "many_offsets": "loading",
    "transactions": "transactional",
    "rdkafka_produce": "rdkafka",
    "rdkafka_consume": "rdkafka",
    "rdkafka_latency": "rdkafka",
}


def find(name: str) -> Load:
    module = importlib.import_module(f"ottla.bench.loads.{MODULES[name]}")
    load: Load = getattr(module, name)
    return load


def main(argument: str) -> None:
    spec: Spec = json.loads(argument)
    try:
        timed = find(spec["load"])(spec)
        print("ready", flush=True)
        sys.stdin.readline()
        before = time.process_time()
        started = time.perf_counter()
        result = timed()
        result.setdefault("seconds", time.perf_counter() - started)
        result["client_cpu_seconds"] = time.process_time() - before
    except NotServed as missing:
        result = {"not_served": str(missing)}
    except NotMeasurable as missing:
        result = {"not_measurable": str(missing)}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
    # Threads that still wait for a broker must not keep the process alive.
    os._exit(0)


@dataclass(frozen=True, slots=True)
class Driven:
    """The result of a load, and the broker's CPU seconds during it (None if its process is not known)."""

    result: Result
    broker_cpu_seconds: float | None

    def __getitem__(self, key: str) -> Any:
        return self.result[key]

    @property
    def seconds(self) -> float:
        return float(self.result["seconds"])


def drive(target: Any, load: str, **options: Any) -> Driven:
    """Run one load on the target in a child process."""
    host, port = target.address
    spec = {"load": load, "host": host, "port": port, **options}
    command = [sys.executable, "-m", "ottla.bench.load", json.dumps(spec)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            first = child.stdout.readline()
            if first.strip() != "ready":
                return Driven(_checked(load, first), None)
            before = _cpu_seconds(target)
            child.stdin.write("go\n")
            child.stdin.flush()
            result = _checked(load, child.stdout.readline())
            after = _cpu_seconds(target)
        finally:
            child.kill()
    return Driven(result, None if before is None or after is None else after - before)


def _cpu_seconds(target: Any) -> float | None:
    try:
        return float(target.cpu_seconds())
    except NotMeasurable:
        return None


def _checked(load: str, text: str) -> Result:
    if not text.strip():
        raise RuntimeError(f"the load {load} ended without a result")
    result: Result = json.loads(text)
    if "not_served" in result:
        raise NotServed(result["not_served"])
    if "not_measurable" in result:
        raise NotMeasurable(result["not_measurable"])
    if "error" in result:
        raise RuntimeError(f"{load}: {result['error']}")
    return result


if __name__ == "__main__":
    main(sys.argv[1])
