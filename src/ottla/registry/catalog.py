"""Parses schemas together with their references, and caches the results."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace

from . import errors, formats, names
from .entities import Reference, SchemaEntry
from .errors import InvalidSchema
from .formats import ParsedSchema, Source
from .state import State

# The size of the cache. The objects of a schema take about ten times as much memory as its text.
MAX_PARSED = 2000
# The limit on references per schema, including references of references.
MAX_REFERENCES = 1000


class Catalog:
    """The state, and its schemas in parsed form."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._parsed: OrderedDict[tuple[str, bytes], ParsedSchema] = OrderedDict()

    def parsed(self, entry: SchemaEntry) -> ParsedSchema:
        """Parse a stored schema. Within a context, equal hashes mean equal text and references."""
        key = (names.context_of(entry.subject), entry.md5)
        schema = self._parsed.get(key)
        if schema is None:
            schema = self.parse(entry, new=False)
            self._parsed[key] = schema
            if len(self._parsed) > MAX_PARSED:
                self._parsed.popitem(last=False)
        else:
            with suppress(KeyError):  # another thread may have just dropped it
                self._parsed.move_to_end(key)
        return schema

    def forget_parsed(self) -> None:
        """Empty the cache: a referenced schema may be gone."""
        self._parsed.clear()

    def parse(self, entry: SchemaEntry, new: bool) -> ParsedSchema:
        """Parse a schema. A new schema must not refer to deleted versions, and the checks are stricter."""
        try:
            return formats.parse(entry.schema_type, self.source_of(entry, new))
        except InvalidSchema as error:
            raise invalid(entry.schema_type, error) from error
        except RecursionError as error:
            raise invalid(entry.schema_type, "it is nested too deeply") from error

    def source_of(self, entry: SchemaEntry, new: bool = False) -> Source:
        """The text of a schema with the texts of its references. Raises InvalidSchema if one is missing."""
        references = self._numbered(entry, new)
        resolved: dict[str, str] = {}
        self._resolve(entry.subject, references, new, resolved)
        return Source(entry.text, references, tuple(resolved.items()), new)

    def _numbered(self, entry: SchemaEntry, new: bool) -> tuple[Reference, ...]:
        """The references, with -1 replaced by the number of the latest version."""
        return tuple(
            one._replace(version=self._target(entry.subject, one, new).version) if one.version == -1 else one
            for one in entry.references
        )

    def _target(self, subject: str, reference: Reference, new: bool) -> SchemaEntry:
        wanted = names.beside(subject, reference.subject)
        if reference.version == -1:
            found = self.state.latest(wanted)
        else:
            found = self.state.version(wanted, reference.version, deleted=not new)
        if found is None:
            raise InvalidSchema(f'No schema reference found for subject "{wanted}" and version {reference.version}')
        return found

    def _resolve(self, subject: str, references: tuple[Reference, ...], new: bool, texts: dict[str, str]) -> None:
        """Collect the texts of references by name, each after the texts that it refers to."""
        # An explicit stack with the remaining references of each level, so that a long chain needs no deep recursion.
        stack = [(subject, list(references), 0)]
        waiting: dict[str, str] = {}
        while stack:
            within, todo, index = stack.pop()
            if index:
                done = todo[index - 1].name
                if done in waiting:
                    texts[done] = waiting.pop(done)
            if index == len(todo):
                continue
            stack.append((within, todo, index + 1))
            reference = todo[index]
            if reference.name in texts or reference.name in waiting:
                continue
            if len(texts) + len(waiting) >= MAX_REFERENCES:
                raise InvalidSchema(f"more than {MAX_REFERENCES} references")
            target = self._target(within, reference, new)
            waiting[reference.name] = target.text
            stack.append((target.subject, list(target.references), 0))

    def canonical(self, entry: SchemaEntry, schema: ParsedSchema) -> SchemaEntry:
        """The entry with the text and the references as they are stored."""
        return replace(entry, text=schema.canonical(), references=schema.references, md5=b"")

    def formatted(self, entry: SchemaEntry, format_name: str) -> str:
        """The text of a stored schema in the requested format."""
        return self.parsed(entry).formatted(format_name) if format_name.strip() else entry.text


def invalid(schema_type: str, reason: object) -> errors.RegistryError:
    return errors.invalid_schema(f"Invalid schema of type {schema_type}, details: {reason}")
