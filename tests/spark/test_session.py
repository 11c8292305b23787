"""One call to a session, and one clear line when something that it needs is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import SparkSetupError, connector_jars, interpreter
from ottla.spark.jars import WANTED, is_missing
from ottla.spark.sessions import check_java, has_connector


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_session_knows_both_formats(spark: Any) -> None:
    assert has_connector(spark)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    # What is there is given back; a stream that ran before may have left a session of its own in it.
    assert ottla.spark.session().sparkContext is spark.sparkContext


def test_importing_the_package_imports_no_spark() -> None:
    code = "import ottla.spark, sys; print([n for n in ('pyspark', 'pyarrow', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkSetupError, match=r"^Spark needs Java 17 or newer, and there is no java on PATH[^\n]*$"):
        check_java()


def test_java_home_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkSetupError, match=r"JAVA_HOME is .*, which has no bin/java"):
        check_java()


@pytest.mark.parametrize(("version", "named"), [("11.0.2", "Java 11"), ("1.8.0_392", "Java 8")])
def test_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, named: str) -> None:
    script(tmp_path / "bin" / "java", f"""echo 'openjdk version "{version}"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkSetupError, match=f"is {named}"):
        check_java()


def test_no_maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkSetupError, match=r"^Maven \(mvn\) is not on PATH[^\n]*connector=False"):
        connector_jars("4.2.0", cache=tmp_path / "cache")


def test_maven_that_fails_is_quoted_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "mvn", "echo '[ERROR] no such artifact'; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(SparkSetupError, match=r"could not fetch spark-sql-kafka-0-10_2.13 9.9.9: \[ERROR\] no such"):
        connector_jars("9.9.9", cache=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".spark-connector-9.9.9.lock"]


NOT_FOUND = "[ERROR] Failed to execute goal on project x: Could not find artifact org.apache.spark:{name}:jar:{version}"


def fake_maven(folder: Path, *, has: str = "") -> Path:
    """Maven with a repository that has one version of the connector, or none; gives the file that counts its runs."""
    makes = "; ".join(f'touch "$out/{name}-{has}.jar"' for name in WANTED)
    missing = NOT_FOUND.format(name="spark-sql-kafka-0-10_2.13", version="?")
    script(
        folder / "bin" / "mvn",
        f"""echo run >> {folder}/runs
for word; do case $word in -f) ;; *pom.xml) pom=$word ;; -DoutputDirectory=*) out=${{word#*=}} ;; esac; done
grep -q '<version>{has or "none"}</version>' $pom || {{ echo '{missing}'; exit 1; }}
mkdir -p $out; {makes}""",
    )
    return folder / "runs"


def test_the_connector_of_an_earlier_patch_release_stands_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_maven(tmp_path, has="4.1.3")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    jars = connector_jars("4.1.5", cache=tmp_path / "cache")
    assert sorted(jar.name for jar in jars) == sorted(f"{name}-4.1.3.jar" for name in WANTED)


def test_a_connector_that_is_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line without Maven's own words; the repositories are not asked again at once."""
    runs = fake_maven(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    line = r"^Spark's Kafka connector 4\.3\.1 is in none of the repositories that Maven asks$"
    for _ in range(2):
        with pytest.raises(SparkSetupError, match=line):
            connector_jars("4.3.1", cache=tmp_path / "cache")
    assert runs.read_text().count("run") == 2  # 4.3.1 and 4.3.0, once each
    assert is_missing("4.3.1", tmp_path / "cache")
    assert not is_missing("4.3.0", tmp_path / "cache")


def test_repositories_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(tmp_path / "bin" / "mvn", "echo '[ERROR] Could not transfer artifact x: Connection refused'; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(
        SparkSetupError, match=r"^Maven cannot reach its repositories to fetch Spark's Kafka connector$"
    ):
        connector_jars("4.3.0", cache=tmp_path / "cache")


def test_without_the_connector_the_first_command_works(
    broker: Any, make_topic: Any, send: Any, until: Any, admin: Any, tmp_path: Path
) -> None:
    """A Spark whose connector is not available reads with Ottla's own source, and says so in one line."""
    topic = make_topic(1)
    until(lambda: topic in admin.list_topics(timeout=60).topics, "the topic")
    send(topic, [(b"k", b"v")] * 3)
    fake_maven(tmp_path)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)}
    words = ["archive", topic, "--out", str(tmp_path / "a"), "-b", broker.bootstrap, "--master", "local[2]"]
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("archived 3 records")
    fetched, started, warned = done.stderr.splitlines()
    assert fetched.startswith("fetching Spark's Kafka connector with Maven: ")
    assert started.startswith("starting Spark 4.2.0 on local[2]: ")
    assert started.endswith(" s")
    assert "is in none of the repositories that Maven asks; Ottla's own source reads instead" in warned

    refused = subprocess.run(
        [*command, "--source", "kafka"], capture_output=True, text=True, env=environment, timeout=600
    )
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert "is in none of the repositories" in line, "nothing is fetched, and no message says that it is"


def test_an_older_token_provider_stands_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a mirror without the newest token provider answers; jars are fetched once."""
    makes = "; ".join(f'touch "$out/{name}-1.jar"' for name in WANTED)
    script(
        tmp_path / "bin" / "mvn",
        f"""echo run >> {tmp_path}/runs
for word in "$@"; do case $word in -DoutputDirectory=*) out=${{word#*=}};; *pom.xml) pom=$word;; esac; done
[ $(grep -c '<version>4.0.0<' "$pom") = 1 ] || {{ echo '[ERROR] missing'; exit 1; }}
mkdir -p "$out"; {makes}""",
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    first = connector_jars("4.7.0", cache=tmp_path / "cache")
    assert [jar.name for jar in first] == sorted(f"{name}-1.jar" for name in WANTED)
    assert connector_jars("4.7.0", cache=tmp_path / "cache") == first
    assert (tmp_path / "runs").read_text().splitlines() == ["run", "run"]


def test_spark_starts_python_without_the_zip_files_of_pyspark(tmp_path: Path) -> None:
    import pyspark

    starter = interpreter.starter(tmp_path / "cache")
    assert starter is not None
    assert interpreter.starter(tmp_path / "cache") == starter
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [Path(starter).name]
    home = Path(pyspark.__file__).parent
    mine = tmp_path / "my modules"
    path = f"{home}/python/lib/pyspark.zip:{home}/python/lib/py4j-src.zip:{mine}:{home}/jars/spark-core.jar:/other/*"
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, sys.argv[1:], sep='\\n')"
    done = subprocess.run(
        [starter, "-c", code, "a b", "*"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [f"{mine}:/other/*", sys.executable, "['a b', '*']"]


def test_which_python_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv(interpreter.VARIABLE, raising=False)
    interpreter.choose(local=True)
    assert Path(os.environ[interpreter.VARIABLE]).parent == tmp_path / "ottla"
    interpreter.choose(local=False)  # other machines have no such file
    assert os.environ[interpreter.VARIABLE] == sys.executable
    monkeypatch.setenv(interpreter.VARIABLE, "/opt/python")
    interpreter.choose(local=True)
    assert os.environ[interpreter.VARIABLE] == "/opt/python"


def test_no_script_where_it_would_not_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert interpreter.starter(tmp_path / "file" / "cache") is None
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))  # another Spark than the installed one
    assert interpreter.starter(tmp_path / "cache") is None


def test_the_processes_of_a_session_import_compiled_pyspark(spark: Any) -> None:
    def where(_: Any) -> Any:
        import pyspark

        yield pyspark.__file__

    if not Path(spark.sparkContext.pythonExec).name.startswith("spark-python-"):
        pytest.skip("PYSPARK_PYTHON was set, or the cache folder cannot be written to")
    [found] = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
    assert ".zip" not in found
