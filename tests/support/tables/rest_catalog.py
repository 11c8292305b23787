"""A small Iceberg REST catalog in this process, which can only create, load and commit tables."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata


class RestCatalog:
    """Use as a context manager; `address` is the value for --catalog."""

    def __init__(self) -> None:
        self.tables: dict[str, tuple[int, Any]] = {}
        self.namespaces: set[str] = set()
        self.lost_answers = 0
        """This many commits succeed, but are answered with an error."""
        self.tokens: list[str | None] = []
        self._lock = threading.Lock()
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Quiet."""

            def do_GET(self) -> None:
                self._handle(None)

            def do_POST(self) -> None:
                self._handle(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def do_HEAD(self) -> None:
                self._handle(None)

            def _handle(self, body: Any) -> None:
                catalog.tokens.append(self.headers.get("Authorization"))
                path = self.path.partition("?")[0].removeprefix("/v1/").split("/")
                code, answer = catalog.answer(self.command, path, body)
                content = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RestCatalog:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        with self._lock:
            match path:
                case ["config"]:
                    return 200, {"defaults": {}, "overrides": {}}
                case ["namespaces"]:
                    name = ".".join(body["namespace"])
                    if name in self.namespaces:
                        return _error(409, "AlreadyExistsException", "the namespace is there")
                    self.namespaces.add(name)
                    return 200, {"namespace": body["namespace"], "properties": {}}
                case ["namespaces", name]:
                    return (200, {"namespace": [name], "properties": {}}) if name in self.namespaces else _missing()
                case ["namespaces", name, "tables"]:
                    return self._create(f"{name}.{body['name']}", body)
                case ["namespaces", name, "tables", table]:
                    if f"{name}.{table}" not in self.tables:
                        return _missing()
                    if method == "POST":
                        return self._commit(f"{name}.{table}", body)
                    return 200, self._shown(f"{name}.{table}")
        return _missing()

    def _shown(self, name: str) -> dict[str, Any]:
        number, metadata = self.tables[name]
        location = f"{metadata.location}/metadata/{number:05d}.metadata.json"
        return {"metadata-location": location, "metadata": json.loads(metadata.model_dump_json()), "config": {}}

    def _create(self, name: str, body: Any) -> tuple[int, Any]:
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema

        spec = PartitionSpec(**body["partition-spec"])
        made = new_table_metadata(
            Schema(**body["schema"]), spec, UNSORTED_SORT_ORDER, body["location"], dict(body["properties"])
        )
        self.tables[name] = (0, made)
        return 200, self._shown(name)

    def _commit(self, name: str, body: Any) -> tuple[int, Any]:
        number, current = self.tables[name]
        request = CommitTableRequest(**body)
        try:
            for requirement in request.requirements:
                requirement.validate(current)
        except CommitFailedException as error:
            return _error(409, "CommitFailedException", str(error))
        self.tables[name] = (number + 1, update_table_metadata(current, request.updates))
        if self.lost_answers:
            self.lost_answers -= 1
            return _error(500, "InternalServerError", "the answer is lost")
        return 200, self._shown(name)


def _missing() -> tuple[int, Any]:
    return _error(404, "NoSuchTableException", "there is none")


def _error(code: int, kind: str, text: str) -> tuple[int, Any]:
    return code, {"error": {"message": text, "type": kind, "code": code}}
