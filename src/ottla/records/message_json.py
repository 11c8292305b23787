"""Messages as JSON and back, without loss: for recordings of requests that people read and programs replay.

Bytes are text if they are UTF-8, otherwise `{"base64": "…"}`. Record batches have their bytes and, for people, their
decoded content.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ottla.errors import KafkaError
from ottla.records.batch import batches
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64
from ottla.wire.schema import Field, Struct


def to_json(message: Struct, version: int) -> dict[str, Any]:
    """A decoded message, with the fields of this version."""
    return {
        field.name: _field_to_json(getattr(message, field.name), field, version)
        for field in message.FIELDS
        if field.exists(version)
    }


def _field_to_json(value: Any, field: Field, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "records":
        return _records_to_json(bytes(value))
    if field.kind == "array":
        if field.struct is not None:
            return [to_json(item, version) for item in value]
        return [_plain_to_json(item, field.item_kind) for item in value]
    if field.kind == "struct":
        return to_json(value, version)
    return _plain_to_json(value, field.kind)


def _plain_to_json(value: Any, kind: str) -> Any:
    if kind == "uuid":
        return uuid_to_base64(value)
    return _bytes_to_json(value) if isinstance(value, (bytes, bytearray, memoryview)) else value


def _bytes_to_json(value: Any) -> Any:
    data = bytes(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _records_to_json(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"base64": base64.b64encode(data).decode()}
    try:
        found["batches"] = [
            {
                "base_offset": batch.base_offset,
                "producer_id": batch.producer_id,
                "producer_epoch": batch.producer_epoch,
                "base_sequence": batch.base_sequence,
                "transactional": batch.is_transactional,
                "control": batch.is_control,
                "records": [
                    {
                        "offset": record.offset,
                        "timestamp": record.timestamp,
                        "key": None if record.key is None else _bytes_to_json(record.key),
                        "value": None if record.value is None else _bytes_to_json(record.value),
                        "headers": [
                            [name, None if content is None else _bytes_to_json(content)]
                            for name, content in record.headers
                        ],
                    }
                    for record in batch.records()
                ],
            }
            for batch in batches(data)
        ]
    except KafkaError as error:  # an old format, or damaged: the bytes are included anyway
        found["unreadable"] = str(error)
    return found


def from_json(kind: type[Struct], fields: Mapping[str, Any]) -> Any:
    """The message from the output of `to_json`. Fields of other versions get their defaults."""
    known = {field.name: field for field in kind.FIELDS}
    return kind(**{name: _field_from_json(value, known[name]) for name, value in fields.items() if name in known})


def _field_from_json(value: Any, field: Field) -> Any:
    if value is None:
        return None
    if field.kind == "records":
        return base64.b64decode(value["base64"])
    if field.kind == "array":
        item = field.struct
        if item is not None:
            return [from_json(item, each) for each in value]
        return [_plain_from_json(each, field.item_kind) for each in value]
    if field.kind == "struct":
        assert field.struct is not None
        return from_json(field.struct, value)
    return _plain_from_json(value, field.kind)


def _plain_from_json(value: Any, kind: str) -> Any:
    if kind == "uuid":
        return uuid_from_base64(value)
    if kind == "octets" or isinstance(value, dict):
        return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()
    return value
