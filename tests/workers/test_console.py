"""One console for all workers, which also shows their internal state."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from ottla.registry.http_client import HttpRegistry
from support.console import Console


def check_insides(console: Console) -> None:
    """Data that only single workers have is collected from all of them."""
    ends = {}
    for partition in range(4):
        storage = console.get(f"/topics/orders/partitions/{partition}/storage")
        ends[partition] = storage["end_offset"]
        assert len(console.get(f"/topics/orders/partitions/{partition}/batches")) == 1
    assert ends == dict.fromkeys(range(4), 1)
    found = console.get("/replicas", topic="orders")["partitions"]
    assert [part["replicas"][0]["end_offset"] for part in found] == [1] * 4
    assert console.ask("GET", "/topics/nope/partitions/0/storage").status == 404

    with urlopen(f"{console.url}/api/v1/requests/live", timeout=20) as events:
        for partition in range(4):  # led by different workers
            body = {"value": {"text": "v"}, "partition": partition}
            assert console.ask("POST", "/topics/orders/records", body).status == 200
        seen: dict[int, dict[str, Any]] = {}
        while len({each["broker"] for each in seen.values() if each["api"] == "Produce"}) < 2:
            line = events.readline()
            if line.startswith(b"data: ["):
                seen |= {each["number"]: each for each in json.loads(line[6:])}
        for number, each in seen.items():
            if each["api"] == "Produce":
                assert console.get(f"/requests/{number}")["broker"] == each["broker"]
    assert {each["broker"] for each in console.get("/connections")} == {1, 2}
    assert console.get("/overview")["connections"] >= 2
    assert console.ask("GET", "/powers").status == 404
    assert console.get("/transaction-history")["events"] == []


def check_schemas(console: Console, registry_url: str) -> None:
    """The console shows the registry of the same broker, and decodes records with it."""
    registry = HttpRegistry(registry_url)
    schema = {"schema": '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'}
    assert registry.ask("POST", "/subjects/orders-value/versions", schema)["id"] == 1
    registry.close()
    assert [each["subject"] for each in console.get("/schemas")["subjects"]] == ["orders-value"]
    framed = base64.b64encode(b"\0\0\0\0\x01\x0e").decode()
    body = {"value": {"base64": framed}, "partition": 0}
    assert console.ask("POST", "/topics/orders/records", body).status == 200
    records = console.get("/topics/orders/records", partition=0)["records"]
    assert any('"id": 7' in json.dumps(record) for record in records), records


def test_workers_have_one_console(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--workers", "2", "--port", "0", "--console", "0"]
    with subprocess.Popen(
        [*command, "--registry", "0", "--json", "--data", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            said = json.loads(child.stdout.readline())
            console = Console(said["console"])
            assert len(console.get("/overview")["brokers"]) == 2
            assert console.ask("POST", "/topics", {"name": "orders", "partitions": 4}).status == 200
            for partition in range(4):
                body = {"value": {"text": "v"}, "partition": partition}
                assert console.ask("POST", "/topics/orders/records", body).status == 200
            assert len(console.get("/topics/orders/records")["records"]) == 4
            check_insides(console)
            check_schemas(console, said["registry"])
        finally:
            child.terminate()
    assert child.returncode == 0
