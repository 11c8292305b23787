"""In a pseudo-terminal: colours, progress and questions, and none of them elsewhere."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ESCAPE = "\x1b["


class Terminal:
    """A command whose output, errors and input are one terminal, as a person has it."""

    def __init__(self, arguments: list[str], environment: dict[str, str], *, stdout: int | None = None) -> None:
        self.master, slave = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *arguments],
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        os.close(slave)

    def read(self, until: Callable[[str], bool], timeout_s: float = 30) -> str:
        deadline = time.monotonic() + timeout_s
        while not until(self.text) and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode()
                except OSError:  # how Linux reports that the other side is closed
                    break
        return self.text

    def answer(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> tuple[int, str]:
        self.read(lambda _: False)
        code = self.process.wait(30)
        os.close(self.master)
        return code, self.text


@pytest.fixture
def in_terminal(broker: Any) -> Callable[..., Terminal]:
    def run(*arguments: object, stdout: int | None = None, **environment: str) -> Terminal:
        environment = {"OTTLA_BOOTSTRAP": broker.bootstrap, "NO_COLOR": "", **environment}
        return Terminal([str(argument) for argument in arguments], environment, stdout=stdout)

    return run


def test_colours_on_a_terminal_only(in_terminal: Any, cli: Any, topic: str) -> None:
    code, text = in_terminal("topics", "describe", topic).end()
    assert code == 0
    assert ESCAPE + "1m" in text
    assert ESCAPE not in in_terminal("topics", "describe", topic, NO_COLOR="1").end()[1]
    assert ESCAPE not in in_terminal("topics", "describe", topic, TERM="dumb").end()[1]
    assert ESCAPE not in cli("topics", "describe", topic).out, "a pipe gets plain text"


def test_errors_are_red(in_terminal: Any, unique: Callable[[str], str]) -> None:
    code, text = in_terminal("consume", unique("nope")).end()
    assert code == 1
    assert f"{ESCAPE}31mottla:{ESCAPE}0m no topic is named" in text


def test_records_are_printed_without_control_characters(in_terminal: Any, cli: Any, topic: str) -> None:
    cli("produce", topic, "-k", "key", "-H", "h=1", "-v", "\x1b]0;title\x07text")
    code, text = in_terminal("consume", topic, NO_COLOR="1").end()
    assert code == 0
    assert "key  [h=1]  \\x1b]0;title\\x07text" in text, "a record must not control the terminal"
    assert in_terminal("consume", topic, "-f", "raw", NO_COLOR="1").end()[1].startswith("\x1b]0;title\x07text")


def test_a_progress_bar(in_terminal: Any, cli: Any, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes((b"x" * 100 + b"\n") * 20_000)
    code, text = in_terminal("produce", topic, "-i", path).end()
    assert code == 0
    assert "\r\x1b[2Kproduce" in text
    assert "100%" in text
    assert "wrote 20 000 records" in text
    with (tmp_path / "out").open("wb") as out:
        code, text = in_terminal("consume", topic, stdout=out.fileno()).end()
    assert code == 0
    assert "consume" in text
    assert "100%" in text
    assert (tmp_path / "out").stat().st_size == path.stat().st_size
    assert cli("produce", topic, "-i", path).err == "", "no bar without a terminal"


def test_deleting_by_pattern_asks_for_confirmation(in_terminal: Any, cli: Any, topic: str) -> None:
    terminal = in_terminal("topics", "delete", f"{topic[:-2]}*")
    assert "delete 1 topic with" in terminal.read(lambda text: "[y/N]" in text)
    terminal.answer("n\n")
    assert terminal.end()[0] == 1
    assert topic in cli("topics", "list", "--names").out
    terminal = in_terminal("topics", "delete", f"{topic[:-2]}*")
    terminal.read(lambda text: "[y/N]" in text)
    terminal.answer("y\n")
    assert terminal.end()[0] == 0


def test_typed_lines_are_produced(in_terminal: Any, cli: Any, topic: str, eventually: Any) -> None:
    terminal = in_terminal("produce", topic, "-p", 0)
    terminal.answer("first\n")
    eventually(lambda: cli("consume", topic, "-f", "raw").out == "first\n", "a line to be sent before the end of input")
    terminal.answer("second\n\x04")
    code, text = terminal.end()
    assert code == 0
    assert "wrote 2 records" in text
    assert cli("consume", topic, "-f", "raw").out == "first\nsecond\n"


def test_json_is_indented_for_people(in_terminal: Any, topic: str) -> None:
    assert '[\r\n  {\r\n    "name"' in in_terminal("topics", "list", topic, "--json").end()[1]
