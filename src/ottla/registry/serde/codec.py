"""Converts between payloads and Python values with one schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from ottla.lazy_imports import lazy

from .. import errors
from ..entities import AVRO, JSON, PROTOBUF
from ..errors import InvalidSchema
from ..formats import Source
from .framing import Framed

if TYPE_CHECKING:
    import jsonschema
    import referencing
    import referencing.exceptions
    import referencing.jsonschema

    from ottla.registry.serde import avro_codec, protobuf_codec
else:
    jsonschema = lazy("jsonschema")
    referencing = lazy("referencing")
    avro_codec = lazy("ottla.registry.serde.avro_codec")
    protobuf_codec = lazy("ottla.registry.serde.protobuf_codec")


class BadValue(ValueError):
    """The value does not fit its schema; the message says where."""


class Codec(Protocol):
    """Reads and writes the payloads of one schema."""

    bytes_as: str
    """How JSON represents bytes: latin-1 as in Avro's JSON, base64 as in Protobuf's."""

    def decode(self, framed: Framed) -> Any:
        """The payload as a Python value. Raises BadValue."""

    def encode(self, value: Any) -> bytes:
        """The payload of a Python or JSON value. Raises BadValue."""


def codec_of(schema_type: str, source: Source) -> Codec:
    """The codec for a schema with its references."""
    try:
        if schema_type == AVRO:
            return avro_codec.AvroCodec(source)
        if schema_type == JSON:
            return JsonCodec(source)
        if schema_type == PROTOBUF:
            return protobuf_codec.ProtobufCodec(source)
    except (InvalidSchema, errors.RegistryError) as error:
        raise BadValue(f"its schema cannot be read: {error}") from error
    except ImportError as error:
        raise BadValue(f"{error}; install ottla[registry]") from error
    raise BadValue(f"there is no schema type {schema_type}")


class JsonCodec:
    """JSON payloads are plain JSON text."""

    bytes_as = "base64"

    def __init__(self, source: Source) -> None:
        self._schema = json.loads(source.text)
        self._references = {name: json.loads(text) for name, text in source.resolved}

    def decode(self, framed: Framed) -> Any:
        try:
            return json.loads(framed.payload)
        except ValueError as error:
            raise BadValue(f"it is not JSON: {error}") from error

    def encode(self, value: Any) -> bytes:
        kind = jsonschema.validators.validator_for(self._schema, jsonschema.Draft7Validator)
        draft = referencing.jsonschema.specification_with(kind.META_SCHEMA["$schema"])
        known = [(name, draft.create_resource(document)) for name, document in self._references.items()]
        try:
            kind(self._schema, registry=referencing.Registry().with_resources(known)).validate(value)
        except referencing.exceptions.Unresolvable as error:
            raise BadValue(f"its schema refers to {error.ref}, which is not there") from error
        except jsonschema.ValidationError as error:
            raise BadValue(f"{error.json_path}: {error.message}") from error
        return json.dumps(value, ensure_ascii=False).encode()


def jsonable(value: Any, bytes_as: str = "base64") -> Any:
    """Convert a decoded value for JSON: times become ISO 8601, decimals become text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item, bytes_as) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item, bytes_as) for item in value]
    if isinstance(value, bytes):
        return value.decode("latin-1") if bytes_as == "latin-1" else base64.b64encode(value).decode()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, (Decimal, UUID)) else value
