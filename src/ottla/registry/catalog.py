"""Reads schemas together with those they refer to, and keeps what was read."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from . import errors, formats, names
from .entities import Reference, SchemaEntry
from .errors import InvalidSchema
from .formats import ParsedSchema, Source
from .state import State

# A schema's objects take some ten times its text. This many are kept.
MAX_PARSED = 2000
# References of references are followed this far.
MAX_REFERENCES = 1000


class Catalog:
    """The state, and the schemas in it as objects."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._parsed: OrderedDict[tuple[str, bytes], ParsedSchema] = OrderedDict()

    def parsed(self, entry: SchemaEntry) -> ParsedSchema:
        """A stored schema. Within a context, equal hashes mean equal text and references."""
        key = (names.context_of(entry.subject), entry.md5)
        schema = self._parsed.get(key)
        if schema is None:
            schema = self.parse(entry, new=False)
            self._parsed[key] = schema
            if len(self._parsed) > MAX_PARSED:
                self._parsed.popitem(last=False)
        else:
            self._parsed.move_to_end(key)
        return schema

    def forget_parsed(self) -> None:
        """Read everything again: something that was referred to may be gone."""
        self._parsed.clear()

    def parse(self, entry: SchemaEntry, new: bool) -> ParsedSchema:
        """Read a schema. A new one may not refer to deleted versions, and is checked more strictly."""
        try:
            references = self._numbered(entry, new)
            resolved: dict[str, str] = {}
            self._resolve(entry.subject, references, new, resolved)
            return formats.parse(entry.schema_type, Source(entry.text, references, tuple(resolved.items()), new))
        except InvalidSchema as error:
            raise invalid(entry.schema_type, error) from error
        except RecursionError as error:
            raise invalid(entry.schema_type, "it is nested too deeply") from error

    def _numbered(self, entry: SchemaEntry, new: bool) -> tuple[Reference, ...]:
        """The references, with the number of the latest version where -1 stands for it."""
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
        """Collect the texts of references by name, those of inner ones before the ones that use them."""
        # Each level is a list of references still to do, so that a long chain needs no deep recursion.
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
        """The entry with the text and the references that are stored."""
        return replace(entry, text=schema.canonical(), references=schema.references, md5=b"")

    def formatted(self, entry: SchemaEntry, format_name: str) -> str:
        """The text of a stored schema in the format that a request asks for."""
        return self.parsed(entry).formatted(format_name) if format_name.strip() else entry.text


def invalid(schema_type: str, reason: object) -> errors.RegistryError:
    return errors.invalid_schema(f"Invalid schema of type {schema_type}, details: {reason}")
