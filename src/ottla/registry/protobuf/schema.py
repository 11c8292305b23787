"""A Protobuf file as the registry sees it. Clients send text or a base64 descriptor; the registry stores text."""

from __future__ import annotations

import base64
import binascii
from functools import cached_property

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ..entities import PROTOBUF, Reference
from ..errors import InvalidSchema
from ..formats import Difference, ParsedSchema, Source
from .compatibility import find_differences
from .descriptors import from_descriptor, to_descriptor
from .known import KNOWN, known_file, known_model
from .model import ProtoFile
from .normal import normalized
from .parser import parse
from .text import to_text
from .types import Types, check_types

# The reference of all files in KNOWN, because they are the same in every version of every subject.
_KNOWN_REFERENCE = Reference("", "", 0)


class ProtobufSchema:
    schema_type = PROTOBUF

    def __init__(self, file: ProtoFile, source: Source, references: tuple[Reference, ...]) -> None:
        self.file = file
        self.source = source
        self.references = references

    @classmethod
    def parse(cls, source: Source) -> ProtobufSchema:
        return cls(read(source.text), source, source.references)

    @cached_property
    def dependencies(self) -> dict[str, tuple[ProtoFile, Reference]]:
        """The files that it imports, directly or indirectly, by the name of the import."""
        by_name = {reference.name: reference for reference in self.references}
        files: dict[str, tuple[ProtoFile, Reference]] = {}
        for name, text in self.source.resolved:
            try:
                files[name] = (read(text), by_name.get(name, Reference(name, "", 0)))
            except InvalidSchema as error:
                raise InvalidSchema(f"in the reference {name}: {error}") from error
        waiting = [path for file in (self.file, *(file for file, _ in files.values())) for path in file.all_imports]
        while waiting:
            path = waiting.pop()
            if path in KNOWN and path not in files:
                known = known_model(path)
                files[path] = (known, _KNOWN_REFERENCE)
                waiting += known.all_imports
        return files

    @cached_property
    def types(self) -> Types:
        return Types.of(self.file, self.dependencies.values())

    def canonical(self) -> str:
        return to_text(self.file)

    def formatted(self, name: str) -> str:
        if name == "serialized":
            return base64.b64encode(self.descriptor().SerializeToString(deterministic=True)).decode()
        return to_text(self.file, custom=False) if name == "ignore_extensions" else self.canonical()

    def descriptor(self, name: str = "default") -> FileDescriptorProto:
        return to_descriptor(self.file, self.types, name)

    def resolved(self) -> str:
        return self.normalized().canonical()

    def normalized(self) -> ProtobufSchema:
        references = tuple(sorted(set(self.references), key=lambda r: (r.subject, r.version, r.name)))
        return ProtobufSchema(normalized(self.file, self.types), self.source, references)

    def has_field(self, name: str) -> bool:
        first = self.file.messages[:1]
        return any(field.name == name for message in first for field in message.fields)

    def check(self, fields_too: bool) -> None:
        if not self.canonical():
            raise InvalidSchema("the file is empty")
        check_types(self.file, self.types)
        self.pool()

    def pool(self) -> DescriptorPool:
        """The file and its imports in Protobuf's own pool, which refuses duplicate numbers and similar errors."""
        pool = DescriptorPool()
        added: set[str] = set()

        def add(name: str, descriptor: FileDescriptorProto) -> None:
            if name in added:
                return
            added.add(name)
            for path in list(descriptor.dependency):
                if path in KNOWN:
                    add(path, known_file(path))
                elif path in self.dependencies:
                    file, _ = self.dependencies[path]
                    imports = [self.dependencies[one] for one in self.dependencies if one != path]
                    add(path, to_descriptor(file, Types.of(file, imports), path))
            # A missing import that provides no types is only used by compiler plug-ins.
            missing = [path for path in descriptor.dependency if path not in added]
            if missing:
                kept = [path for path in descriptor.dependency if path in added]
                public = [descriptor.dependency[index] for index in descriptor.public_dependency]
                changed = FileDescriptorProto()
                changed.CopyFrom(descriptor)
                del changed.dependency[:], changed.public_dependency[:], changed.weak_dependency[:]
                changed.dependency.extend(kept)
                changed.public_dependency.extend(kept.index(path) for path in public if path in kept)
                descriptor = changed
            pool.Add(descriptor)

        try:
            add("default", self.descriptor())
            pool.FindFileByName("default")
        except (TypeError, KeyError, ValueError, RecursionError) as error:
            message = str(error).replace("Couldn't build proto file into descriptor pool: ", "")
            raise InvalidSchema(f"Protobuf refuses it: {message}") from error
        return pool

    def cannot_read(self, writer: ParsedSchema, lenient: bool) -> list[Difference]:
        assert isinstance(writer, ProtobufSchema)
        return find_differences(writer.file, writer.types, self.file, self.types)


def read(text: str) -> ProtoFile:
    """Parse a file from its text or from a base64 descriptor. No text can be mistaken for a descriptor."""
    try:
        return parse(text)
    except InvalidSchema as error:
        try:
            descriptor = FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
        except (binascii.Error, ValueError, DecodeError):
            raise error from None
        return from_descriptor(descriptor)
