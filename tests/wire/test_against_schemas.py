"""Every message and version against Kafka's own schemas: the definitions field by field, and the bytes against a codec
that interprets those schemas.

The schemas come out of Apache Kafka's jars, which `scripts/kafka-jars` fetches. Versions that Kafka 4 dropped are
checked against 3.9.1.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from ottla.wire import messages, stored
from ottla.wire.messages import EMBEDDED, REQUESTS, RESPONSES
from ottla.wire.schema import UNSET, Field, Message, Struct

pytestmark = pytest.mark.jvm

SAMPLES_PER_VERSION = 3

OURS: dict[str, type[Message]] = {
    cls.__name__: cls
    for cls in [
        *REQUESTS.values(),
        *RESPONSES.values(),
        *(getattr(messages, name) for name in EMBEDDED),
        *stored._messages(*stored.MODULES),
    ]
}

# In the jars, but not in Ottla.
LEFT_OUT = {
    # `frames` reads and writes headers itself.
    "RequestHeader",
    "ResponseHeader",
    # Requests of the ZooKeeper era; 4.3 keeps only their names.
    "ControlledShutdownRequest",
    "ControlledShutdownResponse",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
    # Tiered storage.
    "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataSnapshotRecord",
    "RemoteLogSegmentMetadataUpdateRecord",
    "RemotePartitionDeleteMetadataRecord",
}

FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
OUR_KINDS = {"bool": "boolean", "bytes": "octets"}


def covers(text: str | None, version: int) -> bool:
    """Whether a version range of a schema ("none", "3", "0-5", "2+") has this version."""
    if text is None or text == "none":
        return False
    low, _, high = text.rstrip("+").partition("-")
    return int(low) <= version and (text.endswith("+") or version <= int(high or low))


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Reference:
    """One message of one version, interpreted directly from its schema."""

    def __init__(self, schema: dict[str, Any], version: int) -> None:
        self.schema = schema
        self.version = version
        self.common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
        self.flexible = covers(schema.get("flexibleVersions"), version)

    def fields(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [field for field in fields if covers(field.get("versions") or field["taggedVersions"], self.version)]
        return [field for field in found if covers(field.get("versions", "0+"), self.version)]

    def tagged(self, field: dict[str, Any]) -> bool:
        return covers(field.get("taggedVersions"), self.version)

    def nullable(self, field: dict[str, Any]) -> bool:
        return covers(field.get("nullableVersions"), self.version)

    def inner(self, field: dict[str, Any]) -> list[dict[str, Any]]:
        return field.get("fields") or self.common[field["type"].removeprefix("[]")]

    def default(self, field: dict[str, Any]) -> Any:
        kind, given = field["type"], field.get("default")
        if given == "null":
            return None
        if kind.startswith("[]"):
            return []
        if kind[0].isupper():
            return {name: self.default(each) for each in self.inner(field) for name in [snake_case(each["name"])]}
        if kind == "records":
            return None
        if kind == "string":
            return given or ""
        if kind == "bytes":
            return b""
        if kind == "uuid":
            return bytes(16)
        if kind == "bool":
            return str(given).lower() == "true"
        if kind == "float64":
            return float(given or 0)
        return int(str(given), 0) if given is not None else 0

    # Writing

    def encode(self, value: dict[str, Any]) -> bytes:
        return self.put_struct(self.schema["fields"], value)

    def put_struct(self, fields: list[dict[str, Any]], value: dict[str, Any]) -> bytes:
        out, tags = b"", {}
        for field in self.fields(fields):
            item = value[snake_case(field["name"])]
            if not self.tagged(field):
                out += self.put(field, item)
            elif item != self.default(field):
                tags[int(field["tag"])] = self.put(field, item)
        if not self.flexible:
            return out
        out += self.put_varint(len(tags))
        for tag, data in sorted(tags.items()):
            out += self.put_varint(tag) + self.put_varint(len(data)) + data
        return out

    def put(self, field: dict[str, Any], value: Any) -> bytes:
        kind = field["type"]
        if kind.startswith("[]"):
            if value is None:
                return self.put_length(-1, "i")
            item = {**field, "type": kind[2:], "nullableVersions": "none"}
            return self.put_length(len(value), "i") + b"".join(self.put(item, each) for each in value)
        if kind in FIXED:
            return struct.pack(">" + FIXED[kind], value)
        if kind[0].isupper():
            mark = b""
            if self.nullable(field):
                if value is None:
                    return b"\x00" if self.tagged(field) else b"\xff"
                mark = b"\x01"
            return mark + self.put_struct(self.inner(field), value)
        width = "h" if kind == "string" else "i"
        if value is None:
            return self.put_length(-1, width)
        data = value.encode() if kind == "string" else bytes(value)
        return self.put_length(len(data), width) + data

    def put_length(self, length: int, width: str) -> bytes:
        return self.put_varint(length + 1) if self.flexible else struct.pack(">" + width, length)

    def put_varint(self, value: int) -> bytes:
        out = []
        while value >= 0x80:
            out.append(value % 0x80 + 0x80)
            value //= 0x80
        return bytes([*out, value])

    # Reading

    def decode(self, data: bytes) -> dict[str, Any]:
        self.data, self.position = data, 0
        value = self.get_struct(self.schema["fields"])
        assert self.position == len(data)
        return value

    def take(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def get_struct(self, fields: list[dict[str, Any]]) -> dict[str, Any]:
        value, tagged = {}, {}
        for field in self.fields(fields):
            name = snake_case(field["name"])
            if self.tagged(field):
                tagged[int(field["tag"])] = field
                value[name] = self.default(field)
            else:
                value[name] = self.get(field)
        if self.flexible:
            for _ in range(self.get_varint()):
                tag, _size = self.get_varint(), self.get_varint()
                value[snake_case(tagged[tag]["name"])] = self.get(tagged[tag])
        return value

    def get(self, field: dict[str, Any]) -> Any:
        kind = field["type"]
        if kind.startswith("[]"):
            count = self.get_length("i")
            item = {**field, "type": kind[2:], "nullableVersions": "none"}
            return None if count < 0 else [self.get(item) for _ in range(count)]
        if kind in FIXED:
            layout = struct.Struct(">" + FIXED[kind])
            return layout.unpack(self.take(layout.size))[0]
        if kind[0].isupper():
            # Kafka's generated code marks null with a varint within a tag, and with a signed byte elsewhere.
            if self.nullable(field) and self.take(1) == (b"\x00" if self.tagged(field) else b"\xff"):
                return None
            return self.get_struct(self.inner(field))
        length = self.get_length("h" if kind == "string" else "i")
        if length < 0:
            return None
        data = self.take(length)
        return data.decode() if kind == "string" else data

    def get_length(self, width: str) -> int:
        if self.flexible:
            return self.get_varint() - 1
        return int(struct.unpack(">" + width, self.take(struct.calcsize(width)))[0])

    def get_varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def reference(name: str, version: int, new: dict[str, Any], old: dict[str, Any]) -> Reference:
    schema = new[name]
    if not covers(schema["validVersions"], version):
        schema = old[name]
        assert covers(schema["validVersions"], version), f"no Kafka has {name} v{version}"
    return Reference(schema, version)


def plain(value: Any, version: int) -> Any:
    """A message as dicts of the fields that a version has."""
    if isinstance(value, Struct):
        result = {}
        for field in value.FIELDS:
            if field.exists(version):
                item = getattr(value, field.name)
                if item is None and field.kind == "struct" and not field.is_nullable(version):
                    assert field.struct is not None
                    item = field.struct()  # an absent tagged struct
                result[field.name] = plain(item, version)
        return result
    if isinstance(value, list):
        return [plain(item, version) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value


def versions_of(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


@pytest.mark.parametrize("name", sorted(OURS))
def test_bytes(name: str, kafka_schemas: dict[str, Any], old_kafka_schemas: dict[str, Any], samples: Any) -> None:
    cls = OURS[name]
    for version in versions_of(cls):
        codec = reference(name, version, kafka_schemas, old_kafka_schemas)
        for salt in range(SAMPLES_PER_VERSION):
            message = samples.make(cls, version, samples.random(cls, version, salt))
            encoded = message.encode(version)
            value = plain(message, version)
            assert encoded == codec.encode(value)
            assert codec.decode(encoded) == value
            assert plain(cls.decode(encoded, version), version) == value


def check_fields(cls: type[Struct], fields: list[dict[str, Any]], codec: Reference) -> None:
    version = codec.version
    mine = [field for field in cls.FIELDS if field.exists(version)]
    theirs = codec.fields(fields)
    assert [field.name for field in mine] == [snake_case(field["name"]) for field in theirs]
    for field, other in zip(mine, theirs, strict=True):
        where = f"{cls.__qualname__}.{field.name} v{version}"
        kind = other["type"].removeprefix("[]")
        assert (field.kind == "array") == other["type"].startswith("[]"), where
        if kind[0].isupper():
            assert field.struct is not None, where
            assert field.struct.__name__ == kind, where
            check_fields(field.struct, codec.inner(other), codec)
        else:
            assert (field.item_kind if field.kind == "array" else field.kind) == OUR_KINDS.get(kind, kind), where
        assert field.is_nullable(version) == codec.nullable(other), where
        assert field.is_tagged(version) == codec.tagged(other), where
        if codec.tagged(other):
            assert field.tag == int(other["tag"]), where
        check_default(field, other, codec, where)


def check_default(field: Field, other: dict[str, Any], codec: Reference, where: str) -> None:
    expected = codec.default(other)
    if field.kind in ("array", "struct") and expected is not None:
        # The one deviation: a tagged struct that cannot be null is None while it is absent.
        absent = field.kind == "struct" and field.tag is not None and not codec.nullable(other)
        assert field.default is (None if absent else UNSET), where
    else:
        assert field.default == expected, where
        assert type(field.default) is type(expected), where


@pytest.mark.parametrize("name", sorted(OURS))
def test_definitions(name: str, kafka_schemas: dict[str, Any], old_kafka_schemas: dict[str, Any]) -> None:
    cls = OURS[name]
    schema = kafka_schemas[name]
    assert schema.get("apiKey", -1) == cls.API_KEY
    last = max(int(number) for number in re.findall(r"\d+", schema["validVersions"]))
    assert last == cls.MAX_VERSION
    for version in versions_of(cls):
        codec = reference(name, version, kafka_schemas, old_kafka_schemas)
        assert cls.is_flexible(version) == codec.flexible
        check_fields(cls, codec.schema["fields"], codec)


def test_unstable_versions_are_marked(kafka_schemas: dict[str, Any]) -> None:
    for cls in OURS.values():
        unstable = kafka_schemas[cls.__name__.replace("Response", "Request")].get("latestVersionUnstable", False)
        assert (cls.STABLE_VERSION < cls.MAX_VERSION) == unstable, cls.__name__


def test_every_schema_of_kafka_is_implemented(kafka_schemas: dict[str, Any]) -> None:
    assert set(kafka_schemas) - set(OURS) == LEFT_OUT


def test_old_versions_are_implemented(old_kafka_schemas: dict[str, Any]) -> None:
    """Everything that 3.9.1 served to clients, except for the previews of share groups, is still known."""
    for name, schema in old_kafka_schemas.items():
        if "broker" in schema.get("listeners", []) and "Share" not in name and name in OURS:
            for version in range(20):
                if covers(schema["validVersions"], version):
                    assert version in versions_of(OURS[name]), f"{name} v{version}"
