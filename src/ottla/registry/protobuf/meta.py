"""Confluent's own options, such as `(confluent.field_meta)`: documentation, parameters, tags and rules.

They are the only custom options whose definition every registry has. Serializers read the tags from descriptors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from .model import Option

_NAMES = {
    "FileDescriptorProto": "(confluent.file_meta)",
    "DescriptorProto": "(confluent.message_meta)",
    "FieldDescriptorProto": "(confluent.field_meta)",
    "EnumDescriptorProto": "(confluent.enum_meta)",
    "EnumValueDescriptorProto": "(confluent.enum_value_meta)",
}
# The field of all these options.
_NUMBER = 1088
_PARAM = ("key", "value")
_RULE = ("name", "doc", "expr", "sql")
# Kafka Connect wrote the value of these parameters first, and its schemas must keep their ids.
_VALUE_FIRST = ("precision", "scale")


def _build_carrier() -> Any:
    """A message with the field of these options only. All other options are unknown fields to it."""
    file = FileDescriptorProto(name="meta", package="meta", syntax="proto3")
    for name, fields in (("Param", _PARAM), ("Rule", _RULE)):
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields, 1):
            message.field.add(name=field, number=number, type=FieldDescriptorProto.TYPE_STRING, label=1)
    meta = file.message_type.add(name="Meta")
    meta.field.add(name="doc", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    # A map in the definition, which is written in the same way.
    meta.field.add(name="params", number=2, type=FieldDescriptorProto.TYPE_MESSAGE, label=3, type_name=".meta.Param")
    meta.field.add(name="tags", number=3, type=FieldDescriptorProto.TYPE_STRING, label=3)
    meta.field.add(name="rules", number=4, type=FieldDescriptorProto.TYPE_MESSAGE, label=3, type_name=".meta.Rule")
    carrier = file.message_type.add(name="Carrier")
    carrier.field.add(
        name="meta", number=_NUMBER, type=FieldDescriptorProto.TYPE_MESSAGE, label=1, type_name=".meta.Meta"
    )
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("meta.Carrier"))


_Carrier = _build_carrier()


def set_meta(element: Any, options: list[Option]) -> None:
    """Write the option of a descriptor's element. The text may spell it in different ways."""
    name = _NAMES.get(element.DESCRIPTOR.name)
    parts: dict[str, list[Any]] = {}
    for option in options:
        spelled = option.name.replace("(.", "(", 1)
        if spelled == name and isinstance(option.value, dict):
            for part, value in option.value.items():
                parts.setdefault(part, []).extend(_flat(value))
        elif name is not None and spelled.startswith(f"{name}."):
            parts.setdefault(spelled.removeprefix(f"{name}."), []).extend(_flat(option.value))
    if not parts:
        return
    carrier = _Carrier()
    carrier.meta.SetInParent()
    for doc in parts.get("doc", ()):
        carrier.meta.doc = str(doc)
    carrier.meta.tags.extend(map(str, parts.get("tags", ())))
    for part, known, target in (("params", _PARAM, carrier.meta.params), ("rules", _RULE, carrier.meta.rules)):
        for value in parts.get(part, ()):
            if isinstance(value, dict):
                target.add(**{key: str(value[key]) for key in known if key in value})
    element.options.MergeFromString(carrier.SerializeToString(deterministic=True))


def meta_options(element: Any) -> list[Option]:
    """The option of a descriptor's element, as Confluent's registry writes it."""
    name = _NAMES.get(element.DESCRIPTOR.name)
    if name is None or not element.HasField("options"):
        return []
    try:
        meta = _Carrier.FromString(element.options.SerializeToString()).meta
    except DecodeError:
        # A damaged option does not affect how data is read.
        return []
    params = {one.key: one.value for one in meta.params}
    found = {
        "doc": meta.doc,
        "params": [
            {"value": value, "key": key} if key in _VALUE_FIRST else {"key": key, "value": value}
            for key, value in params.items()
        ],
        "tags": list(meta.tags),
        "rules": [{key: getattr(one, key) for key in _RULE if getattr(one, key)} for one in meta.rules],
    }
    value = {part: content for part, content in found.items() if content}
    return [Option(name, value)] if value else []


def _flat(value: Any) -> Iterable[Any]:
    if not isinstance(value, list):
        return (value,)
    return (inner for item in value for inner in _flat(item))
