"""One console for all workers: a client of theirs beside them."""

import json
import subprocess
import sys
from pathlib import Path

from support.console import Console


def test_workers_have_one_console(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--workers", "2", "--port", "0", "--console", "0"]
    with subprocess.Popen(
        [*command, "--json", "--data", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            console = Console(json.loads(child.stdout.readline())["console"])
            assert len(console.get("/overview")["brokers"]) == 2
            assert console.ask("POST", "/topics", {"name": "orders", "partitions": 4}).status == 200
            for partition in range(4):
                body = {"value": {"text": "v"}, "partition": partition}
                assert console.ask("POST", "/topics/orders/records", body).status == 200
            assert len(console.get("/topics/orders/records")["records"]) == 4
            refused = console.ask("GET", "/requests")
            assert refused.status == 404
            assert "Serve with one worker" in refused.data["error"]
        finally:
            child.terminate()
    assert child.returncode == 0
