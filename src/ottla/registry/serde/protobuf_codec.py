"""Decodes and encodes Protobuf messages from their schema, without generated code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ..formats import Source
from ..protobuf.schema import ProtobufSchema
from .codec import BadValue
from .framing import FIRST_MESSAGE, Framed, read_path, write_path

# Google's types with a special JSON form.
_WRAPPERS = ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
_UNWRAPPED = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPERS)
_AS_JSON = frozenset(
    f"google.protobuf.{name}" for name in ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Timestamp", "Value")
)


class ProtobufCodec:
    bytes_as = "base64"

    def __init__(self, source: Source) -> None:
        schema = ProtobufSchema.parse(source)
        self._pool = schema.pool()
        self._file = schema.descriptor()

    def decode(self, framed: Framed) -> Any:
        if framed.path_in_header is None:
            path, payload = read_path(framed.payload)
        else:
            path, payload = read_path(framed.path_in_header)[0], framed.payload
        message = GetMessageClass(self._message_type(path))()
        try:
            message.ParseFromString(payload)
        except DecodeError as error:
            raise BadValue(f"its bytes do not fit the schema: {error}") from error
        return to_python(message)

    def encode(self, value: Any) -> bytes:
        """Encode a value as the first message of the file."""
        message = GetMessageClass(self._message_type(FIRST_MESSAGE))()
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool)
        except (json_format.ParseError, AttributeError, TypeError) as error:
            raise BadValue(str(error)) from error
        payload: bytes = message.SerializeToString()
        return write_path(FIRST_MESSAGE) + payload

    def _message_type(self, path: Sequence[int]) -> Descriptor:
        try:
            name = self._file.message_type[path[0]].name
            package = f"{self._file.package}." if self._file.package else ""
            found = self._pool.FindMessageTypeByName(package + name)
            for index in path[1:]:
                found = found.nested_types[index]
        except IndexError:
            raise BadValue(f"the schema has no message at {list(path)}") from None
        return found


def to_python(message: Message) -> Any:
    """A message as a dictionary: enums by name, numbers as numbers, and unset fields if they have no presence."""
    kind = message.DESCRIPTOR.full_name
    if kind in _UNWRAPPED:
        return message.value
    if kind in _AS_JSON:
        return json_format.MessageToDict(message)
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _one(inner, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_one(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _one(field, value)
    return found


def _one(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return to_python(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
