"""`ottla serve` as a user sees it: the line with its address, signals, and starts that fail."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from ottla.bench.client import Client
from ottla.errors import UnknownTopicOrPartition
from ottla.wire.messages import MetadataRequest

SERVE = [sys.executable, "-m", "ottla.cli.main", "serve"]
LISTENING = re.compile(r"listening on \S+?:(\d+)")


class Server:
    def __init__(self, *arguments: object, cwd: Path, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*SERVE, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []

    def wait_until_listening(self) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if found := LISTENING.search(line):
                return int(found[1])
        raise AssertionError(f"the broker did not start: {''.join(self.lines)}")

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.lines += self.process.stdout.readlines()
        self.process.stdout.close()
        return code


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[type[Server]]:
    started: list[Server] = []

    class Tracked(Server):
        def __init__(self, *arguments: object, env: dict[str, str] | None = None) -> None:
            super().__init__(*arguments, cwd=tmp_path, env=env)
            started.append(self)

    yield Tracked
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        if server.process.stdout is not None:
            server.process.stdout.close()


def refused(*arguments: object, cwd: Path) -> str:
    """The one line with which a start is refused."""
    done = subprocess.run(
        [*SERVE, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("ottla: ")
    return line


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_gracefully(serve: type[Server], tmp_path: Path, how: int) -> None:
    server = serve("--port", 0)
    socket.create_connection(("127.0.0.1", server.wait_until_listening())).close()
    assert server.stop(how) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists(), "the next start need not recover"


def test_programs_can_read_the_address_from_a_json_line(serve: type[Server]) -> None:
    server = serve("--port", 0, "--ephemeral", "--json", "--metrics", 0)
    assert server.process.stdout is not None
    found = json.loads(next(line for line in server.process.stdout if line.startswith("{")))
    assert found.keys() == {"version", "bootstrap", "listeners", "where", "metrics", "console"}
    assert found["listeners"] == {"PLAINTEXT": found["bootstrap"]}
    assert found["where"] == "in memory"
    host, _, port = found["bootstrap"].rpartition(":")
    socket.create_connection((host, int(port))).close()
    with urllib.request.urlopen(found["metrics"], timeout=60) as page:
        assert b"ottla_connections" in page.read()
    assert server.stop() == 0


@pytest.mark.parametrize("way", [["--ephemeral"], ["--control", 0], ["--workers", 2]])
def test_the_json_line_has_the_address_of_each_listener(serve: type[Server], way: list[object]) -> None:
    listeners = "ONE://127.0.0.1:0,TWO://127.0.0.1:0"
    security = "listener.security.protocol.map=ONE:PLAINTEXT,TWO:PLAINTEXT"
    names = ["--set", f"listeners={listeners}", "--set", security, "--set", "inter.broker.listener.name=ONE"]
    server = serve(*names, "--json", *way)
    assert server.process.stdout is not None
    found = json.loads(next(line for line in server.process.stdout if line.startswith("{")))
    assert found["listeners"].keys() == {"ONE", "TWO"}
    assert ",".join(found["listeners"].values()) == found["bootstrap"]
    assert server.stop() == 0


@pytest.mark.parametrize("way", [[], ["--control", 0], ["--workers", 2], ["--brokers", 2]])
@pytest.mark.parametrize(("preset", "codes"), [("test", [0, 0]), ("kafka", [UnknownTopicOrPartition.code, 0])])
def test_only_the_test_preset_creates_a_topic_within_the_first_request(
    serve: type[Server], way: list[object], preset: str, codes: list[int]
) -> None:
    port = serve("--port", 0, "--preset", preset, *way).wait_until_listening()
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")])
    with Client(("127.0.0.1", port)) as client:
        assert [client.call(wanted, 12).topics[0].error_code for _ in range(2)] == codes


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = refused("--port", taken.getsockname()[1], cwd=tmp_path)
        again = refused("--port", 0, "--metrics", taken.getsockname()[1], cwd=tmp_path)
    assert "cannot listen on 127.0.0.1:" in line
    assert again == line
    assert not (tmp_path / "data").exists(), "no file is changed"


def test_a_second_broker_on_the_same_folder(serve: type[Server], tmp_path: Path) -> None:
    first = serve("--port", 0, "--data", "d")
    first.wait_until_listening()
    before = sorted(path.name for path in (tmp_path / "d").rglob("*"))
    line = refused("--port", 0, "--data", "d", cwd=tmp_path)
    assert "in use" in line or "locked" in line or "another" in line, line
    assert sorted(path.name for path in (tmp_path / "d").rglob("*")) == before
    assert first.stop() == 0


def test_a_folder_that_is_not_a_log_dir(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("precious")
    line = refused("--port", 0, "--data", "home", cwd=tmp_path)
    assert f"the data folder {tmp_path / 'home'} has no meta.properties and is not empty (thesis.txt)" in line
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.txt"]


def test_several_folders(serve: type[Server], tmp_path: Path) -> None:
    server = serve("--port", 0, "--set", "log.dirs=one,two", "--set", "metadata.log.dir=three")
    server.wait_until_listening()
    assert "data in one, two" in server.lines[-1]
    assert server.stop() == 0
    assert sorted(path.parent.name for path in tmp_path.glob("*/meta.properties")) == ["one", "three", "two"]
    assert (tmp_path / "three" / "__cluster_metadata-0").is_dir()


def test_several_folders_with_workers(serve: type[Server], tmp_path: Path) -> None:
    settings = ("--set", "log.dirs=one,two", "--set", "metadata.log.dir=three")
    server = serve("--port", 0, *settings, "--workers", 2)
    server.wait_until_listening()
    assert "2 workers, data in one, two" in server.lines[-1]
    assert server.stop() == 0
    assert sorted(path.parent.name for path in tmp_path.glob("*/meta.properties")) == ["one", "three", "two"]
    assert (tmp_path / "three" / "__cluster_metadata-0").is_dir()


def test_a_file_instead_of_the_data_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = refused("--port", 0, "--data", "file", cwd=tmp_path)
    assert "file" in said
    assert said.endswith("; choose another folder with --data, or use --ephemeral"), said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "nonsense"], "KEY=VALUE"),
        (["missing.properties"], "missing.properties"),
        (["--set", "listeners=PLAINTEXT://127.0.0.1:x"], "listeners"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, arguments: list[str], named: str) -> None:
    assert named in refused(*arguments, cwd=tmp_path)
    assert not (tmp_path / "data").exists()


def test_settings_from_file_environment_and_command_line(serve: type[Server], tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs=from-file\nnum.partitions=3\nno.such.setting=1\n"
    )
    server = serve(
        "server.properties", "--set", "num.partitions=5", env={"OTTLA_LOG_DIRS": str(tmp_path / "from-environment")}
    )
    server.wait_until_listening()
    assert server.stop() == 0
    assert (tmp_path / "from-environment" / "meta.properties").exists()
    assert not (tmp_path / "from-file").exists()
    warnings = [line for line in server.lines if "no.such.setting" in line]
    assert len(warnings) == 1, server.lines


def test_ephemeral_leaves_no_file(serve: type[Server], tmp_path: Path) -> None:
    server = serve("--ephemeral", "--port", 0)
    server.wait_until_listening()
    assert server.stop() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_killed_broker_starts_again(serve: type[Server]) -> None:
    first = serve("--port", 0)
    port = first.wait_until_listening()
    first.process.kill()
    first.process.wait()
    again = serve("--port", port)
    assert again.wait_until_listening() == port
    assert again.stop() == 0


@pytest.mark.slow
def test_every_example_configuration_starts(serve: type[Server], tmp_path: Path) -> None:
    configs = Path(__file__).resolve().parents[2] / "configs"
    # The secured one needs certificates, which the tests of security make.
    examples = sorted(path for path in configs.glob("*.properties") if "keystore" not in path.read_text())
    assert len(examples) > 3
    for example in examples:
        # Unchanged, but on free ports, because its own ports may be in use.
        free = tmp_path / example.name
        free.write_text(re.sub(r"(://[\w.]*):\d+", r"\1:0", example.read_text()))
        server = serve(free, "--data", tmp_path / example.stem)
        server.wait_until_listening()
        assert server.stop() == 0


class TestConsole:
    def test_its_address_is_printed_and_serves_the_page(self, serve: type[Server]) -> None:
        server = serve("--port", 0, "--ephemeral", "--console", 0)
        server.wait_until_listening()
        assert server.process.stdout is not None
        url = server.process.stdout.readline().partition("console at ")[2].strip()
        with urllib.request.urlopen(f"{url}/api/v1/overview", timeout=30) as answer:
            assert json.load(answer)["topics"] == 0

    def test_a_second_console_uses_another_port(self, serve: type[Server]) -> None:
        urls = {console_of(serve("--port", 0, "--ephemeral", "--json")) for _ in range(2)}
        assert len(urls) == 2
        assert None not in urls

    def test_a_port_that_was_asked_for_must_be_free(self, serve: type[Server]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            server = serve("--port", 0, "--ephemeral", "--console", taken.getsockname()[1])
            assert server.process.wait(30) == 1

    @pytest.mark.parametrize("options", [("--no-console",), ("--preset", "kafka")])
    def test_options_without_a_console(self, serve: type[Server], options: tuple[str, ...]) -> None:
        assert console_of(serve("--port", 0, "--ephemeral", "--json", *options)) is None

    def test_a_read_only_console_changes_nothing(self, serve: type[Server]) -> None:
        url = console_of(serve("--port", 0, "--ephemeral", "--json", "--console", 0, "--console-read-only"))
        with pytest.raises(HTTPError, match="403"):
            urllib.request.urlopen(f"{url}/api/v1/topics", b'{"name": "t"}', timeout=30)


def console_of(server: Server) -> str | None:
    """The console's address, from the line of JSON; None if there is none."""
    assert server.process.stdout is not None
    found = json.loads(next(line for line in server.process.stdout if line.startswith("{")))
    url: str | None = found.get("console")
    return url


def test_a_broker_ends_with_its_parent(tmp_path: Path) -> None:
    """The parent starts a broker, prints its process id and address, and ends without stopping it."""
    code = (
        "import subprocess, sys;"
        "child = subprocess.Popen([*sys.argv[1:], '--exit-with-parent'], stdout=subprocess.PIPE, text=True);"
        "print(child.stdout.readline())"
    )
    command = [sys.executable, "-c", code, *SERVE, "--port", "0", "--ephemeral", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    host, _, port = json.loads(done.stdout)["bootstrap"].rpartition(":")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return
        time.sleep(0.05)
    raise AssertionError("the broker is still there")


def test_workers_do_not_exit_with_a_parent(tmp_path: Path) -> None:
    command = [*SERVE, "--port", "0", "--workers", "2", "--exit-with-parent"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 1 and "cannot be combined with --workers" in done.stderr
