"""Configuration keys: type, default, and allowed values.

The error texts are Kafka's, because AlterConfigs and CreateTopics send them to clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ottla.enums import ConfigType
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.config import docs
else:
    docs = lazy("ottla.config.docs")

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD

HIGH, MEDIUM, LOW = "HIGH", "MEDIUM", "LOW"
READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1


class ConfigError(ValueError):
    """An invalid configuration. The message names the key, the value and what is allowed."""


class ChangeRefused(ConfigError):
    """A change at run time was refused by the affected part of the broker."""


def invalid(name: str, value: object, reason: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}")


class Validator:
    """Raises a ConfigError if the typed value is invalid. Its string form describes the allowed values."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        raise AssertionError(f"{type(self).__name__} checks nothing")


class ConfigKey:
    """One row of a table. `required` keys have no default in Kafka; `default` is then Ottla's value."""

    __slots__ = ("default", "importance", "internal", "mode", "name", "required", "synonyms", "type", "validator")

    def __init__(
        self,
        name: str,
        type: ConfigType,
        default: Any,
        importance: str,
        validator: Validator | None = None,
        *,
        mode: str = READ_ONLY,
        internal: bool = False,
        required: bool = False,
        synonyms: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.importance = importance
        self.validator = validator
        self.mode = mode
        self.internal = internal  # hidden in DescribeConfigs until it is set
        self.required = required
        self.synonyms = synonyms  # the broker keys that a topic or group key falls back to, best first

    @property
    def sensitive(self) -> bool:
        return self.type is PASSWORD

    @property
    def dynamic(self) -> bool:
        return self.mode != READ_ONLY

    @property
    def doc(self) -> str:
        return docs.doc_for(self)

    def __repr__(self) -> str:
        return f"ConfigKey({self.name!r}, {self.type.name}, {self.default!r})"

    def parse(self, text: str, name: str = "") -> Any:
        """The checked, typed value of a string. Errors use `name`, because a listener has its own name for the key."""
        value = _PARSERS[self.type](name or self.name, text)
        if self.validator is not None:
            self.validator.check(name or self.name, value)
            if isinstance(self.validator, ListOf):
                return distinct(value)
        return value


def table(*keys: ConfigKey) -> Mapping[str, ConfigKey]:
    named = {key.name: key for key in keys}
    assert len(named) == len(keys), "a key is in the table twice"
    return named


# Parsing by type ------------------------------------------------------------------------------------------------------


def _boolean(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise invalid(name, text, "Expected value to be either true or false")
    return lowered == "true"


def _integer(type_name: str, bits: int) -> Callable[[str, str], int]:
    limit = 1 << (bits - 1)

    def parse(name: str, text: str) -> int:
        # int() alone would also accept 1_000 and inner blanks, which Kafka does not.
        number = text.strip()
        digits = number[1:] if number[:1] in ("+", "-") else number
        if digits.isdecimal():
            value = int(number)
            if -limit <= value < limit:
                return value
        raise invalid(name, text, f"Not a number of type {type_name}")

    return parse


def _double(name: str, text: str) -> float:
    number = text.strip()
    if number[-1:] in ("d", "D", "f", "F"):
        number = number[:-1]
    bare = number.lstrip("+-")
    if bare in ("NaN", "Infinity") or (bare[:1] in "0123456789." and "_" not in bare):
        try:
            return float(number)
        except ValueError:
            pass
    raise invalid(name, text, "Not a number of type DOUBLE")


def _list(_name: str, text: str) -> tuple[str, ...]:
    text = text.strip()
    return tuple(item.strip() for item in text.split(",")) if text else ()


def _class(name: str, text: str) -> str:
    text = text.strip()
    # JVM classes cannot be loaded here, so only text that cannot be a class name is refused.
    if not all(part.replace("$", "_").isidentifier() for part in text.split(".")):
        raise invalid(name, text, f"Class {text} could not be found.")
    return text


def _text(_name: str, text: str) -> str:
    return text.strip()


_PARSERS: dict[ConfigType, Callable[[str, str], Any]] = {
    BOOLEAN: _boolean,
    STRING: _text,
    INT: _integer("INT", 32),
    SHORT: _integer("SHORT", 16),
    LONG: _integer("LONG", 64),
    DOUBLE: _double,
    LIST: _list,
    CLASS: _class,
    PASSWORD: _text,
}


def to_text(value: object) -> str:
    """A Python value from a program (`{"num.partitions": 3}`) as the text in a file."""
    return value if isinstance(value, str) else format_value(value) or ""


def format_value(value: Any) -> str | None:
    """A typed value as Kafka prints it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, (tuple, list)):
        return ",".join(value)
    return str(value)


def format_double(value: float) -> str:
    """A double as Java prints it: plain between 0.001 and 10,000,000, otherwise like 1.5E-5."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = repr(value)
        return plain if "e" not in plain else f"{value:f}"
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    digits = repr(value).partition("e")[0].replace(".", "").lstrip("-0").rstrip("0") or "0"
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


# Validators -----------------------------------------------------------------------------------------------------------


class Range(Validator):
    """A number with a minimum and an optional maximum."""

    __slots__ = ("high", "low")

    def __init__(self, low: float, high: float | None = None) -> None:
        self.low = low
        self.high = high

    def check(self, name: str, value: Any) -> None:
        if value < self.low:
            raise invalid(name, format_value(value), f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid(name, format_value(value), f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        return f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"


class OneOf(Validator):
    """One of a few words."""

    __slots__ = ("ignore_case", "words")

    def __init__(self, *words: str, ignore_case: bool = False) -> None:
        self.words = words
        self.ignore_case = ignore_case

    def check(self, name: str, value: Any) -> None:
        if (value.upper() if self.ignore_case else value) not in self.words:
            kind = " (case insensitive)" if self.ignore_case else ""
            raise invalid(name, value, f"String must be one of{kind}: {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"{'(case insensitive) ' if self.ignore_case else ''}[{', '.join(self.words)}]"


class ListOf(Validator):
    """A list without empty items, optionally only of the given words. As in Kafka, repeated items are dropped."""

    __slots__ = ("allow_empty", "words")

    def __init__(self, *words: str, allow_empty: bool = True) -> None:
        self.words = words
        self.allow_empty = allow_empty

    def check(self, name: str, value: Any) -> None:
        if not value and not self.allow_empty:
            valid = f"[{', '.join(self.words)}]" if self.words else "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
        for item in value:
            if not item:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if self.words and item not in self.words:
                raise invalid(name, item, f"String must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]" if self.words else ""


class NonEmpty(Validator):
    """A non-empty string."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if not value:
            raise invalid(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class GzipLevel(Validator):
    """1 to 9, or -1 for the codec's own default."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if value != -1 and not 1 <= value <= 9:
            raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "[1,...,9] or -1"


class ThrottledReplicas(Validator):
    """`*` for all replicas, or a list of partition:broker."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if value in ((), ("*",)) or value[0] == "":
            return
        for item in value:
            partition, _, broker = item.partition(":")
            if item and not (item.isascii() and partition.isdecimal() and broker.isdecimal()):
                reason = f"{name} must be the literal '*' or a list of replicas in the following format: {self}"
                raise invalid(name, f"[{', '.join(value)}]", reason)

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class QuorumVoters(Validator):
    """Controllers as id@host:port."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        for item in value:
            voter, at, address = item.partition("@")
            form = "Each entry should be in the form `{id}@{host}:{port}`."
            if not at or "@" in address:
                raise ConfigError(f"Invalid configuration value for {name}. {form}")
            if not voter.isdecimal():
                raise ConfigError(f"Failed to parse voter ID as an integer from {voter}")
            if not _is_host_and_port(address):
                raise ConfigError(f"Failed to parse host name from entry {item} for the configuration {name}. {form}")

    def __str__(self) -> str:
        return "non-empty list"


class BootstrapServers(Validator):
    """Addresses as host:port."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        for item in value:
            if not _is_host_and_port(item):
                raise ConfigError(
                    f"Failed to parse host name from {item} for the configuration {name}. "
                    'Each entry should be in the form "{host}:{port}"'
                )

    def __str__(self) -> str:
        return "non-empty list"


def _is_host_and_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and all(char.isalnum() or char in "-_.[]:%" for char in host)


class OffsetReset(Validator):
    """earliest, latest, or by_duration: and a positive ISO 8601 duration."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if value in ("earliest", "latest"):
            return
        prefix, _, duration = value.partition(":")
        if prefix != "by_duration" or not _is_duration(duration):
            raise invalid(
                name,
                value,
                f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or "
                "of the format 'by_duration:<PnDTnHnMn.nS>'.",
            )

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


def _is_duration(text: str) -> bool:
    number = r"\+?\d+"
    pattern = rf"\+?P(?:{number}D)?(?:T(?=.)(?:{number}H)?(?:{number}M)?(?:{number}(?:[.,]\d{{0,9}})?S)?)?"
    return len(text) > 2 and re.fullmatch(pattern, text, re.IGNORECASE | re.ASCII) is not None


def distinct(items: Collection[str]) -> tuple[str, ...]:
    """The items in order, without repetitions."""
    return tuple(dict.fromkeys(items))
