"""Names and messages from clients cannot forge a log line or control a terminal."""

import io
import json
import logging
from typing import Any

import pytest

from ottla.cli import terminal
from ottla.cli.printable import LogFormatter, escaped, escaped_lines

HOSTILE = "t\n2026-01-01 00:00:00,000 INFO all is well\x1b[2J\x9b31m\u202egnp.exe\r\t\x00\u2028"
SHOWN = "t\\n2026-01-01 00:00:00,000 INFO all is well\\x1b[2J\\x9b31m\\u202egnp.exe\\r\\t\\x00\\u2028"


def test_control_characters_are_escaped_and_other_text_is_not() -> None:
    assert escaped(HOSTILE) == SHOWN
    assert escaped("Überweisungen 支付 🙂 café") == "Überweisungen 支付 🙂 café"
    assert escaped_lines("one\n\ttwo\x1b[0m") == "one\n\ttwo\\x1b[0m"


def logged(*arguments: object, exc_info: Any = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter("%(levelname)s %(message)s"))
    handler.handle(logging.LogRecord("n", logging.INFO, __file__, 1, "%s is denied", arguments, exc_info))
    return stream.getvalue()


def test_a_name_in_the_log_stays_on_its_line() -> None:
    assert logged(HOSTILE) == f"INFO {SHOWN} is denied\n"


def test_no_line_of_a_traceback_looks_like_a_message() -> None:
    error = ValueError(HOSTILE)
    lines = logged("x", exc_info=(ValueError, error, None)).splitlines()
    assert lines[0] == "INFO x is denied"
    assert all(line.startswith("  ") for line in lines[1:])
    assert "\x1b" not in "".join(lines)


def test_tables_show_names_and_obey_only_their_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "colours", lambda stream: True)
    table = terminal.table(("GROUP", "STATE"), [(HOSTILE, terminal.paint("Stable\x1b[2J", "green"))])
    _, row = table.split("\n")
    assert row == f"{SHOWN}  \x1b[32mStable\\x1b[2J\x1b[0m"


def test_json_for_a_terminal_holds_no_controls(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_json([HOSTILE])
    printed = capsys.readouterr().out.strip("\n")
    assert json.loads(printed) == [HOSTILE]
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in printed)
