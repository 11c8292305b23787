"""Every request and response of kafka-python 3, byte for byte in both directions, including old versions."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    from kafka.protocol.api_message import ApiMessage

from ottla.wire.messages import REQUESTS, RESPONSES
from ottla.wire.schema import Message

SAMPLES_PER_VERSION = 3


def _api_messages() -> dict[str, Any]:
    warnings.simplefilter("ignore", DeprecationWarning)
    for package in ("admin", "consumer", "metadata", "producer"):
        found = importlib.import_module(f"kafka.protocol.{package}")
        for module in pkgutil.iter_modules(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)
    importlib.import_module("kafka.protocol.sasl")
    return {cls.__name__: cls for cls in ApiMessage.__subclasses__()}


with warnings.catch_warnings():
    THEIRS = _api_messages()
OURS = {cls.__name__: cls for registry in (REQUESTS, RESPONSES) for cls in registry.values()}


def _check(ours: type[Message], theirs: Any, version: int, samples: Any, same: Callable[..., None]) -> None:
    def items(value: Any) -> list[Any]:
        fields = [field for field in value._struct._fields if field.for_version_q(version)]
        return [_operations(getattr(value, field.name), field.name) for field in fields]

    for salt in range(SAMPLES_PER_VERSION):
        message = samples.make(ours, version, samples.random(ours, version, salt))
        if ours is RESPONSES[18]:
            message.error_code = 0  # it reads an ApiVersions response with an error as v0, whatever was asked for
        encoded = message.encode(version)
        value = theirs.decode(encoded, version=version)
        same(message, value, _plain, items, version)
        value._header = None  # decoding alone does not set it
        again = value.encode(version=version)
        assert bytes(again) == encoded
        assert ours.decode(bytes(again), version) == ours.decode(encoded, version)


def _operations(value: Any, name: str) -> Any:
    """It shows authorized operations as a set of bits, and the lowest int32, "not asked for", as None."""
    if not name.endswith("authorized_operations") or isinstance(value, int):
        return value
    bits = {31} if value is None else value
    unsigned = sum(1 << bit for bit in bits)
    return unsigned - 2**32 if unsigned >= 2**31 else unsigned


def _plain(value: Any) -> Any:
    return value.bytes if hasattr(value, "bytes") else value


@pytest.mark.parametrize("name", sorted(set(THEIRS) & set(OURS)))
def test_messages(name: str, samples: Any, assert_same_values: Callable[..., None]) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    for version in range(ours.MIN_VERSION, min(ours.MAX_VERSION, theirs.max_version) + 1):
        _check(ours, theirs, version, samples, assert_same_values)


def test_kafka_python_has_many_of_the_messages() -> None:
    assert len(set(THEIRS) & set(OURS)) > 80
