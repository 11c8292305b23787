"""The code of docs/spark.md and docs/pipelines.md runs as it stands, on a topic and folders of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ottla.spark

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["spark.md", "pipelines.md"])
def test_the_python_of_a_page(
    page: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic(1, retention_ms=-1)
    send(topic, [(b"k%d" % (n % 2), b"v") for n in range(5)])
    before = spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    names: dict[str, Any] = {"__name__": "page"}
    try:
        for code in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
            mine = code.replace("127.0.0.1:9092", broker.bootstrap).replace('"orders"', f'"{topic}"')
            exec(mine.replace('"/data/', f'"{tmp_path}/'), names)
    finally:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", before)
    if page == "spark.md":
        assert spark.read.parquet(f"{tmp_path}/orders").count() == 5
        rows = spark.table("counts").collect()
        assert {(row.key, row.records, row.last) for row in rows} == {("k0", 3, 4), ("k1", 2, 3)}
    else:
        assert ottla.spark.verify(f"{tmp_path}/archive", bootstrap=broker.bootstrap, spark=spark).records == 5


def test_the_first_steps(
    spark: Any,
    broker: Any,
    unique: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As a new user types them; one Spark serves all of them here."""
    from ottla.cli.main import main

    topic = unique("orders").replace("-", "_")
    section = (DOCS / "pipelines.md").read_text().partition("## First steps")[2].partition("\n## ")[0]
    section = re.sub(r"\borders\b", topic, section).replace("127.0.0.1:9092", broker.bootstrap)
    records, commands, run = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    (declared,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", records], check=True, timeout=300)
    (tmp_path / "pipelines.yaml").write_text(declared)
    capfd.readouterr()
    said = []
    for line in (commands + run).splitlines():
        assert main(shlex.split(line)[1:]) == 0, capfd.readouterr().err
        said.append(capfd.readouterr().out)
    assert said[0].startswith("archived 1 001 records")
    assert said[1].endswith("each offset is in exactly one file\n")
    assert "; 1 record did not fit and went to" in said[2]
    assert re.search(r"^customer-\d+ +50$", said[5], re.MULTILINE), said[5]
    assert (tmp_path / "data" / "stats.html").exists()
    assert (tmp_path / "data" / "stats.png").exists()
