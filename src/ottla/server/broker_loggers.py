"""The broker's loggers as Kafka's tools see and set them (KIP-412): their levels, which last until the process ends."""

from __future__ import annotations

import logging

from ottla.errors import InvalidConfig, InvalidRequest

ROOT = "root"
"""Kafka's name for the root logger. Here it is the package's own logger, so that a program that embeds a broker
keeps its root logger."""

_PACKAGE = "ottla"

_OFF = logging.CRITICAL + 10
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}


def levels() -> dict[str, str]:
    """The effective level of every logger, by name: of modules, and of packages."""
    names = sorted(name for name in logging.Logger.manager.loggerDict if name.startswith(f"{_PACKAGE}."))
    return {ROOT: _shown(logging.getLogger(_PACKAGE)), **{name: _shown(logging.getLogger(name)) for name in names}}


def _shown(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    if level >= _OFF:
        return "OFF"
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")


def check_level(name: str, level: str | None) -> None:
    """Raise unless the logger exists and can be set to the level; None removes its level."""
    if name != ROOT and name not in levels():
        raise InvalidConfig(f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
    elif level not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )


def set_level(name: str, level: str | None) -> None:
    """Set a level that `check_level` accepted."""
    logger = logging.getLogger(_PACKAGE if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])
