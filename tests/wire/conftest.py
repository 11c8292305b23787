"""Random messages, and the other implementations that they are compared with."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.schema import Field, Message, Struct

BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
TEXTS = ["", "a", "topic-1", "grüße", "日本", "x" * 126, "y" * 127, "z" * 128, "long" * 100]

# The other implementations convert some numbers to richer types, which do not accept every value.
TAME_INT64_MAX = 2**41
TAME_ERROR_CODES = range(100)


class Samples:
    """Messages with random values, the same ones on every run. Fields that a version lacks keep their defaults."""

    def random(self, cls: type[Message], version: int, salt: int = 0) -> random.Random:
        return random.Random(zlib.crc32(f"{cls.__name__}/{version}/{salt}".encode()))

    def make(self, cls: type[Any], version: int, chance: random.Random, tame: bool = False) -> Any:
        """`tame` uses only values that every implementation accepts: known error codes, times within a few
        centuries."""
        values = {}
        for field in cls.FIELDS:
            if not field.exists(version):
                continue
            if field.is_tagged(version) and chance.random() < 0.4:
                continue
            if field.is_nullable(version) and chance.random() < 0.25:
                values[field.name] = None
                continue
            values[field.name] = self.value(field, version, chance, tame)
        return cls(**values)

    def value(self, field: Field, version: int, chance: random.Random, tame: bool) -> Any:
        if field.kind == "struct":
            return self.make(field.struct, version, chance, tame)
        if field.kind != "array":
            return self.scalar(field.kind, field.name, chance, tame)
        count = chance.choice((0, 1, 1, 2, 3))
        if field.struct is not None:
            return [self.make(field.struct, version, chance, tame) for _ in range(count)]
        if chance.random() < 0.02:
            count = 130
        return [self.scalar(field.item_kind, field.name, chance, tame) for _ in range(count)]

    def scalar(self, kind: str, name: str, chance: random.Random, tame: bool) -> Any:
        if kind in BITS:
            return self.integer(kind, name, chance, tame)
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "float64":
            return chance.uniform(-1e9, 1e9)
        if kind == "uuid":
            return chance.randbytes(16)
        if kind == "string":
            return chance.choice(TEXTS)
        return chance.randbytes(chance.choice((0, 1, 20, 126, 127, 128, 300)))

    def integer(self, kind: str, name: str, chance: random.Random, tame: bool) -> int:
        if tame and name.endswith("error_code"):
            return chance.choice(TAME_ERROR_CODES)
        if tame and kind == "int64":
            return chance.randrange(TAME_INT64_MAX)
        if tame and kind == "int32":
            return chance.randrange(2**31)
        bits = BITS[kind]
        low, high = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return chance.choice((low, high, 0, 1, chance.randint(low, high), chance.randint(low, high)))


@pytest.fixture(scope="session")
def samples() -> Samples:
    return Samples()


def _same(ours: Any, theirs: Any, plain: Callable[[Any], Any], items: Callable[[Any], list[Any]], version: int) -> None:
    """Compare field by field, in the order of the fields: other implementations have different names for some of
    them."""
    if isinstance(ours, Struct):
        mine = [field for field in ours.FIELDS if field.exists(version)]
        others = items(theirs)
        assert len(mine) == len(others), f"{type(ours).__qualname__} has other fields: {others}"
        for field, other in zip(mine, others, strict=True):
            value = getattr(ours, field.name)
            if field.kind == "struct" and value is None and other is not None:
                assert field.struct is not None
                value = field.struct()  # an absent tagged struct
            _same(value, other, plain, items, version)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            _same(one, other, plain, items, version)
    else:
        other = plain(theirs)
        if ours == bytes(16) and other is None:
            other = bytes(16)
        elif ours == -1 and other is None:
            other = -1
        assert ours == other


@pytest.fixture(scope="session")
def assert_same_values() -> Callable[..., None]:
    return _same


def _read_schemas(version: str) -> dict[str, Any]:
    script = Path(__file__).parents[2] / "scripts" / "kafka-jars"
    done = subprocess.run([script, version], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        if os.environ.get("CI") == "true" or (shutil.which("mvn") and shutil.which("java")):
            pytest.fail(f"scripts/kafka-jars {version}: {done.stderr.strip()}")
        pytest.skip(f"the message schemas of Apache Kafka {version} need Maven: {done.stderr.strip()}")
    schemas = {}
    for jar in sorted(Path(done.stdout.strip()).glob(f"kafka-*{version}.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".json") and name.startswith(("common/message/", "common/metadata/", "message/")):
                    text = re.sub(r"^\s*//.*$|(?<=[\s,{}\[\]])//[^\"\n]*$", "", archive.read(name).decode(), flags=re.M)
                    schema = json.loads(text)
                    schemas[schema["name"]] = schema
    return schemas


@pytest.fixture(scope="session")
def kafka_schemas() -> dict[str, Any]:
    """Name -> the JSON schema inside the jars of Apache Kafka 4.3.1."""
    return _read_schemas("4.3.1")


@pytest.fixture(scope="session")
def old_kafka_schemas() -> dict[str, Any]:
    """The same of 3.9.1, the last that had the oldest versions."""
    return _read_schemas("3.9.1")
