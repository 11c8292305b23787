"""Keys and values with schemas on the command line: decoded by `consume`, encoded by `produce`."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from ottla.cli import terminal
from ottla.cli.common import CommandError, UsageError, connect
from ottla.cli.lines import Line, LineError, to_json_bytes
from ottla.cli.schema_options import explained, names_registry, registry_of
from ottla.cli.schemas import read_schema
from ottla.client.connection import UnknownTopic
from ottla.registry.client import LATEST, RegisteredSchema, RegistryClient
from ottla.registry.log import TOPIC
from ottla.registry.serde.codec import BadValue, Codec, codec_of
from ottla.registry.serde.decoder import Decoder, Writer
from ottla.registry.serde.framing import NotFramed, frame
from ottla.registry.serde.stored import StoredSchemas
from ottla.registry.topic_log import TopicLog

Headers = Sequence[tuple[str, bytes | None]]
Printer = Callable[..., bytes]
_UNKNOWN: Final = object()


class ValueDecoder:
    """Decodes with a registry, or with the cluster's topic _schemas if no registry is given."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._open = ExitStack()
        if names_registry(arguments):
            self._decoder = self._open.enter_context(registry_of(arguments)).decoder
        else:
            self._decoder = Decoder(self._find)
        self._stored: StoredSchemas | None = None
        self._warned: set[str] = set()

    def close(self) -> None:
        self._open.close()

    def _find(self, schema: int | str) -> Writer:
        """A schema from the topic. If it is missing, the topic is read again."""
        if self._stored is not None:
            with suppress(LookupError):
                return self._stored.find(schema)
        # The caller is on an event loop, in the middle of printing.
        with ThreadPoolExecutor(1) as thread:
            self._stored = thread.submit(lambda: asyncio.run(self._read())).result()
        return self._stored.find(schema)

    async def _read(self) -> StoredSchemas:
        async with connect(self._arguments) as client:
            try:
                await client.topic(TOPIC)
                return StoredSchemas(await TopicLog(client, lambda: 0).read(0))
            except (UnknownTopic, OSError) as error:
                raise CommandError(
                    f"the schemas cannot be read from the topic {TOPIC}: {error}; name a registry with --registry"
                ) from error

    def decoded(self, data: bytes | None, headers: Headers, is_key: bool) -> Any:
        """The value in a form that fits JSON, or `_UNKNOWN` if it has no schema."""
        if data is None:
            return _UNKNOWN
        try:
            with explained():
                return self._decoder.decode_json(data, headers, is_key=is_key)[1]
        except NotFramed:
            return _UNKNOWN
        except (BadValue, LookupError) as error:
            if str(error) not in self._warned:
                self._warned.add(str(error))
                terminal.warn(f"a {'key' if is_key else 'value'} is shown undecoded: {error}")
            return _UNKNOWN

    def printer(self, inner: Printer, as_json: bool) -> Printer:
        """Prints records, decoded by their schemas."""

        def show(
            topic: str,
            partition: int,
            offset: int,
            timestamp: int,
            key: bytes | None,
            value: bytes | None,
            headers: Headers,
        ) -> bytes:
            found = [self.decoded(key, headers, True), self.decoded(value, headers, False)]
            if as_json:
                fields = {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "timestamp": timestamp,
                    "key": to_json_bytes(key) if found[0] is _UNKNOWN else found[0],
                    "value": to_json_bytes(value) if found[1] is _UNKNOWN else found[1],
                    "headers": [[name, to_json_bytes(content)] for name, content in headers],
                }
                return json.dumps(fields, separators=(", ", ": ")).encode() + b"\n"
            texts = [
                data if part is _UNKNOWN else json.dumps(part, ensure_ascii=False).encode()
                for part, data in zip(found, (key, value), strict=True)
            ]
            return inner(topic, partition, offset, timestamp, *texts, headers)

        return show


class ValueEncoder:
    """Encodes the JSON of lines as serializers do."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        if arguments.topic is None:
            raise UsageError("--schema and --key-schema need the topic on the command line")
        with explained(), registry_of(arguments) as registry:
            self._value = _named(registry, arguments.schema, f"{arguments.topic}-value")
            self._key = _named(registry, arguments.key_schema, f"{arguments.topic}-key")

    def encode(self, line: Line) -> Line:
        """The line with its key and value encoded, if they have schemas. Null stays null."""
        return line._replace(key=_encoded("key", self._key, line.key), value=_encoded("value", self._value, line.value))


def _named(registry: RegistryClient, text: str | None, subject: str) -> tuple[int, Codec] | None:
    """The schema that an option refers to: a file, an id, `latest`, SUBJECT or SUBJECT:VERSION."""
    if text is None:
        return None
    schema = _find(registry, text, subject)
    try:
        return schema.id, codec_of(schema.schema_type, registry.source_of(schema))
    except BadValue as error:
        raise CommandError(str(error)) from None


def _find(registry: RegistryClient, text: str, subject: str) -> RegisteredSchema:
    if Path(text).is_file():
        return registry.register(subject, *read_schema(text))
    if text.isdigit():
        return registry.by_id(int(text))
    if text == LATEST:
        return registry.get(subject)
    name, colon, version = text.rpartition(":")
    return registry.get(name, int(version)) if colon and name and version.isdigit() else registry.get(text)


def _encoded(what: str, schema: tuple[int, Codec] | None, data: bytes | None) -> bytes | None:
    if schema is None or data is None:
        return data
    try:
        value = json.loads(data)
    except ValueError:
        # Text without quotes is a string if the schema accepts one.
        value = data.decode(errors="replace")
    try:
        return frame(schema[0], schema[1].encode(value))
    except BadValue as error:
        text = str(error)
        raise LineError(text if text.startswith(what) else f"{what}: {text}") from None
