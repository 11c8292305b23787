"""The shared parts of the commands: options, the connection, parsers for times and offsets, and one-line errors."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import contexts, terminal
from ottla.cli.parsers import subcommand as subcommand
from ottla.client import Client, Security
from ottla.client.connection import ClientError
from ottla.client.security import READ
from ottla.config import TOPIC_KEYS, ConfigError
from ottla.config.properties import read_properties
from ottla.durations import parse_duration as parse_duration
from ottla.durations import parse_time as parse_time
from ottla.errors import KafkaError
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import difflib

    from ottla.client import Client, Security
    from ottla.errors import KafkaError
else:
    difflib = lazy("difflib")

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP"

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


class CommandError(Exception):
    """Ends a command with one line and exit code 1."""


class UsageError(CommandError):
    """A wrong command line: exit code 2."""


def verbs(parser: argparse.ArgumentParser) -> Any:
    return parser.add_subparsers(dest="verb", metavar="VERB", required=True)


def add_connection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"bootstrap brokers, separated by commas (${BOOTSTRAP_VARIABLE}, the context, or {DEFAULT_BOOTSTRAP})",
    )
    group.add_argument(
        "--client-config",
        metavar="FILE",
        help="a Kafka client's properties: security.protocol, sasl.*, ssl.* (PEM)",
    )
    group.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="how long to retry before giving up (30)"
    )


def words_go_to(parser: argparse.ArgumentParser, name: str) -> None:
    """Words that come after options are added to the positional list of this name; see `main`."""
    parser.set_defaults(words_go_to=name)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def target_of(arguments: argparse.Namespace) -> contexts.Context:
    """The cluster from the options, the environment or the saved context, in this order."""
    named = arguments.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE)
    if named:
        return contexts.Context(named, arguments.client_config)
    try:
        context = contexts.current_context() or contexts.Context(DEFAULT_BOOTSTRAP)
    except contexts.ContextError as error:
        raise CommandError(str(error)) from None
    return context._replace(client_config=arguments.client_config or context.client_config)


def connect(arguments: argparse.Namespace, bootstrap: str | None = None, config: str | None = None) -> Client:
    """The client for these options; nothing is sent yet."""
    target = target_of(arguments) if bootstrap is None else contexts.Context(bootstrap, arguments.client_config)
    try:
        return Client(
            target.bootstrap,
            security=load_security(config if config is not None else target.client_config),
            retry_timeout_s=arguments.timeout,
            when_refused=lambda: terminal.note(
                f"nothing listens at {target.bootstrap} yet; retrying for {arguments.timeout:g} s (--timeout)"
            ),
        )
    except ValueError as error:
        raise UsageError(f"--bootstrap: {error}") from None


def load_security(path: str | None) -> Security:
    if path is None:
        return Security()
    try:
        properties = {key: text for key, (text, _) in read_properties(path).items()}
        _warn_of_misspelt(path, properties)
        return Security.from_properties(properties)
    except (ConfigError, ValueError, OSError) as error:
        raise CommandError(f"--client-config {path}: {error}") from None


def _warn_of_misspelt(path: str, properties: dict[str, str]) -> None:
    """Warn about a property that looks misspelled. Other properties that Ottla does not use are fine."""
    for key in properties.keys() - set(READ):
        if close := difflib.get_close_matches(key, READ, n=1, cutoff=0.9):
            terminal.warn(f"{path}: {key} is ignored; did you mean {close[0]}?")


def run_async(main: Coroutine[Any, Any, int]) -> int:
    """Run a command's coroutine. An error becomes one line and an exit code."""
    return guarded(lambda: asyncio.run(main))


def guarded(main: Callable[[], int]) -> int:
    try:
        code = main()
        sys.stdout.flush()
        return code
    except UsageError as error:
        terminal.fail(str(error))
        return USAGE
    except (CommandError, ClientError) as error:
        terminal.fail(_with_hint(str(error)))
        return FAILED
    except KafkaError as error:
        terminal.fail(explained(error))
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe, as in `ottla consume … | head`. Python must not try to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _with_hint(text: str) -> str:
    if text.startswith("cannot connect to"):
        return f"{text}; is a broker running there? Choose another cluster with --bootstrap or ${BOOTSTRAP_VARIABLE}"
    if text.endswith("closed the connection"):
        return f"{text}; if it requires TLS or SASL, configure them with --client-config"
    return text


def explained(error: KafkaError) -> str:
    """The broker's error with Kafka's name for it, and a suggestion if a setting is unknown."""
    text = error.message if error.name in error.message else f"{error.message} ({error.name})"
    before, colon, name = error.message.partition("config name: ")
    if before != "Unknown topic " or not colon:
        return text
    close = difflib.get_close_matches(name, list(TOPIC_KEYS), n=1)
    return f"{text}; did you mean {close[0]}?" if close else text


def report_results(results: dict[str, Any], done: Callable[[str, Any], str], as_json: bool, **extra: Any) -> int:
    """Print a result for each name: successes on stdout, failures on stderr. Return 1 if anything failed."""
    failed = False
    entries: list[dict[str, Any]] = []
    for name, result in results.items():
        if isinstance(result, KafkaError):
            failed = True
            entries.append({"name": name, "error": result.name, "message": result.message})
            if not as_json:
                terminal.fail(f"{name}: {explained(result)}")
        else:
            fields = result._asdict() if hasattr(result, "_asdict") else {}
            entries.append({"name": name, **fields, "error": None, **extra})
            if not as_json:
                print(done(name, result))
    if as_json:
        terminal.print_json(entries)
    return FAILED if failed else OK


# --- words for times, offsets and partitions -------------------------------------------------------------------------


def parse_numbers(text: str) -> list[int]:
    """Parse `0,2,5-7` into a list."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(f"'{text}' is not a list of partitions such as 0,2,5-7")
        found.extend(range(int(low), int(high if dash else low) + 1))
    return list(dict.fromkeys(found))


def argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser of words, as a type for argparse."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Parse KEY=VALUE pairs."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"'{pair}' is not KEY=VALUE")
        found[key.strip()] = value
    return found


def matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Names that match shell patterns. A plain name must exist."""
    known = sorted(names)
    found: dict[str, None] = {}
    for pattern in patterns:
        hits = [pattern] if pattern in known else [name for name in known if fnmatchcase(name, pattern)]
        if not hits:
            if not _is_pattern(pattern):
                raise CommandError(f"no topic is named '{pattern}'")
            hint = "; internal topics need --internal" if pattern.startswith("_") else ""
            raise CommandError(f"no topic matches '{pattern}'{hint}")
        found.update(dict.fromkeys(hits))
    return list(found)


def _is_pattern(text: str) -> bool:
    return any(char in text for char in "*?[")


def is_internal(topic: str) -> bool:
    """Whether a topic is one that brokers or clients use internally."""
    return topic.startswith("__")
