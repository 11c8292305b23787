"""Measures the line about the schema registry: a broker with a registry in a separate Python process, over HTTP.

python -m ottla.bench.registry_job SCHEMAS VERSIONS REQUESTS
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import ottla
from ottla.bench import proc

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def schema_text(name: str, doc: str = "") -> str:
    fields = [{"name": f"field_{index}", "type": ["null", "string"], "default": None} for index in range(8)]
    return json.dumps({"type": "record", "name": name, "doc": doc, "fields": fields})


class Registry:
    """One connection to a registry."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": MEDIA_TYPE})
        response = self._connection.getresponse()
        found = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {found}")
        return found

    def register(self, subject: str, text: str) -> None:
        self.ask("POST", f"/subjects/{subject}/versions", {"schema": text})


def per_second(count: int, work: Callable[[int], object]) -> float:
    started = time.perf_counter()
    for number in range(count):
        work(number)
    return count / (time.perf_counter() - started)


def main(schemas: int, versions: int, requests: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        with ottla.serve(data=folder, preset="dev", registry=0) as broker:
            registry = Registry(broker.registry_url)
            registry.register("first", schema_text("First"))  # the first request loads the HTTP library
            registrations = per_second(schemas, lambda n: registry.register(f"s{n}", schema_text(f"S{n}")))
            look_ups = per_second(requests, lambda n: registry.ask("GET", f"/schemas/ids/{n % schemas + 1}"))
            registry.ask("PUT", "/config/versions", {"compatibility": "NONE"})
            for number in range(versions):
                registry.register("versions", schema_text("V", str(number)))
            registry.ask("PUT", "/config/versions", {"compatibility": "FULL_TRANSITIVE"})
            started = time.perf_counter()
            registry.register("versions", schema_text("V", "last"))
            transitive = time.perf_counter() - started
        with ottla.serve(data=folder, preset="dev", registry=0) as broker:
            before = proc.resident_mb(os.getpid())
            started = time.perf_counter()
            if broker.registry.by_id(1).id != 1:
                raise RuntimeError("the schemas are not there")
            start = time.perf_counter() - started
            memory = proc.resident_mb(os.getpid()) - before
    return {
        "registrations": registrations,
        "look_ups": look_ups,
        "transitive_ms": transitive * 1e3,
        "start_s": start,
        "memory_mb": memory,
    }


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
