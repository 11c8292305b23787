"""`ottla schemas`: the subjects of any Confluent-compatible schema registry."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from ottla.cli import terminal
from ottla.cli.common import FAILED, OK, CommandError, UsageError, add_json, guarded, subcommand, verbs
from ottla.cli.schema_options import add_registry, explained, registry_of
from ottla.registry import names
from ottla.registry.client import RegisteredSchema, RegistryClient
from ottla.registry.entities import AVRO, JSON, PROTOBUF, Reference
from ottla.registry.errors import NOT_PERMITTED, SUBJECT_SOFT_DELETED, VERSION_SOFT_DELETED, RegistryError

_TYPES: Final = {".avsc": AVRO, ".json": JSON, ".proto": PROTOBUF}
_SCHEMA, _CONFIG = "schema", "config"


def add_parser(subparsers: Any) -> None:
    """Add `schemas` to the command line."""
    parser = subcommand(
        subparsers,
        "schemas",
        "list, get, register, check, delete, export and import schemas",
        "Work with a schema registry: Ottla's, Confluent's, or another one with the same API.",
        examples=(
            "ottla schemas list",
            "ottla schemas get orders-value --version 2",
            "ottla schemas check orders-value order.avsc && ottla schemas register orders-value order.avsc",
            "ottla schemas export --registry http://old:8081 > schemas.jsonl",
            "ottla schemas import schemas.jsonl",
        ),
    )
    kinds = verbs(parser)
    listing = _verb(kinds, "list", "list subjects with their versions", "ottla schemas list 'orders*'")
    listing.add_argument("patterns", nargs="*", metavar="SUBJECT", help="names or shell patterns (all)")
    listing.add_argument("--deleted", action="store_true", help="include subjects that are soft-deleted")
    get = _verb(kinds, "get", "print a schema", "ottla schemas get orders-value", "ottla schemas get --id 7")
    get.add_argument("subject", nargs="?", metavar="SUBJECT")
    get.add_argument("--version", default="latest", metavar="N", help="(latest)")
    get.add_argument("--id", type=int, metavar="N", help="by its id instead of a subject")
    register = _verb(
        kinds,
        "register",
        "register a schema from a file",
        "ottla schemas register orders-value order.avsc",
        "ottla schemas register orders-value order.proto --reference money.proto=money:1",
    )
    _add_schema(register)
    check = _verb(kinds, "check", "say whether a schema could be registered", "ottla schemas check orders-value o.avsc")
    _add_schema(check)
    check.add_argument("--version", metavar="N", help="compare only with this version")
    delete = _verb(kinds, "delete", "delete a subject or one version", "ottla schemas delete orders-value --version 2")
    delete.add_argument("subject", metavar="SUBJECT")
    delete.add_argument("--version", metavar="N", help="only this one (all)")
    delete.add_argument(
        "--permanent", action="store_true", help="delete permanently; if it still exists, soft-delete it first"
    )
    export = _verb(kinds, "export", "print all schemas and settings as JSON lines", "ottla schemas export > all.jsonl")
    export.add_argument("--prefix", default="", metavar="TEXT", help="only subjects that begin with this")
    imports = _verb(kinds, "import", "register what `export` printed", "ottla schemas import all.jsonl")
    imports.add_argument("file", metavar="FILE", help="- for the standard input")
    imports.add_argument(
        "--new-ids",
        action="store_true",
        help="assign new ids; without this the ids are kept, and the registry must be empty",
    )


def _verb(kinds: Any, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subcommand(kinds, name, summary, examples=examples)
    add_json(parser)
    add_registry(parser)
    return parser


def _add_schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="SUBJECT")
    parser.add_argument("file", metavar="FILE", help="an .avsc, .json or .proto file; - for the standard input")
    parser.add_argument("--type", choices=(AVRO, JSON, PROTOBUF), type=str.upper, help="(by the file's name)")
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="NAME=SUBJECT:VERSION",
        help="what the schema uses; repeatable",
    )


def run(arguments: argparse.Namespace) -> int:
    verbs_by_name = {
        "list": _list,
        "get": _get,
        "register": _register,
        "check": _check,
        "delete": _delete,
        "export": _export,
        "import": _import,
    }

    def work() -> int:
        with explained(), registry_of(arguments) as registry:
            return verbs_by_name[arguments.verb](registry, arguments)

    return guarded(work)


def _list(registry: RegistryClient, arguments: argparse.Namespace) -> int:
    patterns = arguments.patterns or ["*"]
    by_subject: dict[str, list[RegisteredSchema]] = {}
    for schema in registry.all(deleted=arguments.deleted):
        if any(fnmatchcase(schema.subject, pattern) for pattern in patterns):
            by_subject.setdefault(schema.subject, []).append(schema)
    if arguments.json:
        terminal.print_json(
            [
                {
                    "subject": subject,
                    "type": versions[-1].schema_type,
                    "versions": [each.version for each in versions],
                    "ids": [each.id for each in versions],
                    "compatibility": registry.compatibility(subject),
                    "deleted": all(each.deleted for each in versions),
                }
                for subject, versions in by_subject.items()
            ]
        )
        return OK
    if not by_subject:
        terminal.note("no subjects" if not arguments.patterns else "no subject matches")
        return OK
    rows = [
        (
            subject,
            versions[-1].schema_type,
            ", ".join(f"{each.version}" + (" (deleted)" if each.deleted else "") for each in versions),
            versions[-1].id,
            registry.compatibility(subject),
        )
        for subject, versions in by_subject.items()
    ]
    print(terminal.table(("SUBJECT", "TYPE", "VERSIONS", "LATEST ID", "COMPATIBILITY"), rows, right=("LATEST ID",)))
    return OK


def _get(registry: RegistryClient, arguments: argparse.Namespace) -> int:
    if (arguments.subject is None) == (arguments.id is None):
        raise UsageError("name a subject, or an id with --id")
    found = (
        registry.by_id(arguments.id) if arguments.id is not None else registry.get(arguments.subject, arguments.version)
    )
    if arguments.json:
        terminal.print_json(_line(found))
    else:
        print(pretty(found.schema_type, found.schema))
    return OK


def _register(registry: RegistryClient, arguments: argparse.Namespace) -> int:
    text, schema_type = read_schema(arguments.file, arguments.type)
    found = registry.register(arguments.subject, text, schema_type, references=_references(arguments))
    if arguments.json:
        terminal.print_json({"subject": arguments.subject, "version": found.version, "id": found.id})
    else:
        print(f"{arguments.subject} version {found.version} has id {found.id}")
    return OK


def _check(registry: RegistryClient, arguments: argparse.Namespace) -> int:
    text, schema_type = read_schema(arguments.file, arguments.type)
    problems = registry.check(
        arguments.subject, text, schema_type, references=_references(arguments), version=arguments.version
    )
    if arguments.json:
        terminal.print_json({"subject": arguments.subject, "compatible": not problems, "messages": problems})
    elif problems:
        for problem in problems:
            terminal.fail(problem)
    else:
        print(f"{arguments.file} could be registered as the next version of {arguments.subject}")
    return FAILED if problems else OK


def _delete(registry: RegistryClient, arguments: argparse.Namespace) -> int:
    if arguments.permanent:
        try:
            registry.delete(arguments.subject, arguments.version)
        except RegistryError as error:
            if error.code not in (SUBJECT_SOFT_DELETED, VERSION_SOFT_DELETED):
                raise
    versions = registry.delete(arguments.subject, arguments.version, permanent=arguments.permanent)
    if arguments.json:
        terminal.print_json({"subject": arguments.subject, "versions": versions, "permanent": arguments.permanent})
    else:
        how = "permanently deleted" if arguments.permanent else "deleted"
        print(f"{arguments.subject}: {how} version {', '.join(map(str, versions))}")
    return OK


# --- from one registry to another ------------------------------------------------------------------------------------


def _export(registry: RegistryClient, arguments: argparse.Namespace) -> int:
    schemas = registry.all(arguments.prefix)
    # In the order of registration: a schema comes after those that it refers to.
    for schema in sorted(schemas, key=lambda each: (each.id, each.version)):
        print(json.dumps({"kind": _SCHEMA, **_line(schema)}, ensure_ascii=False))
    subjects = list(dict.fromkeys(each.subject for each in schemas))
    for subject in [*_contexts(subjects), *subjects]:
        config = registry.own_config(subject)
        if config is not None:
            # The compatibility level has different names in requests and answers.
            config["compatibility"] = config.pop("compatibilityLevel")
            print(json.dumps({"kind": _CONFIG, "subject": subject, "config": config}))
    terminal.note(f"exported {terminal.counted(len(schemas), 'schema')}")
    return OK


def _import(registry: RegistryClient, arguments: argparse.Namespace) -> int:
    lines = _lines(arguments.file)
    schemas = [line for line in lines if line["kind"] == _SCHEMA]
    contexts = [] if arguments.new_ids else _contexts(line["subject"] for line in schemas)
    before: dict[str | None, str | None] = {}
    try:
        for context in contexts:
            mode = registry.own_mode(context)
            _set_import_mode(registry, context)
            before[context] = mode
        with terminal.Progress("import", len(schemas), unit="schemas") as progress:
            for line in schemas:
                _import_schema(registry, line, arguments.new_ids)
                progress.advance(1)
    finally:
        for context, mode in before.items():
            registry.set_mode(mode, context)
    for line in lines:
        if line["kind"] == _CONFIG:
            registry.set_config(line["config"], line["subject"])
    if arguments.json:
        terminal.print_json({"schemas": len(schemas)})
    else:
        print(f"imported {terminal.counted(len(schemas), 'schema')}")
    return OK


def _contexts(subjects: Iterable[str]) -> list[str | None]:
    """The contexts of subjects, with their names in settings. The default one, None, always comes first."""
    named = {names.context_prefix(names.context_of(subject)) for subject in subjects}
    return [None, *sorted(named - {""})]


def _set_import_mode(registry: RegistryClient, context: str | None) -> None:
    try:
        registry.set_mode("IMPORT", context)
    except RegistryError as error:
        if error.code != NOT_PERMITTED:
            raise
        raise CommandError(f"{error.message}: to add schemas to a registry that is not empty, use --new-ids") from None


def _import_schema(registry: RegistryClient, line: dict[str, Any], new_ids: bool) -> None:
    extra = {name: line[name] for name in ("metadata", "ruleSet") if line.get(name)}
    if not new_ids:
        extra |= {"id": line["id"], "version": line["version"]}
    references = [Reference(each["name"], each["subject"], each["version"]) for each in line.get("references", ())]
    try:
        registry.register(line["subject"], line["schema"], line["schemaType"], references=references, extra=extra)
    except RegistryError as error:
        raise CommandError(f"{line['subject']} version {line['version']}: {error.message}") from None


def _line(schema: RegisteredSchema) -> dict[str, Any]:
    found = {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        "schemaType": schema.schema_type,
        "references": [each.to_json() for each in schema.references],
        "metadata": schema.metadata,
        "ruleSet": schema.rule_set,
        "schema": schema.schema,
    }
    return {name: value for name, value in found.items() if value not in (None, [], "") or name == "schema"}


def _lines(path: str) -> list[dict[str, Any]]:
    found = []
    for number, text in enumerate(_text(path).splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if line["kind"] not in (_SCHEMA, _CONFIG):
                raise ValueError(f"unknown kind {line['kind']!r}")
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(f"{path}, line {number}: not what `ottla schemas export` prints ({error})") from None
        found.append(line)
    return found


# --- files -----------------------------------------------------------------------------------------------------------


def read_schema(path: str, schema_type: str | None = None) -> tuple[str, str]:
    """A schema and its type. Without an explicit type, the file name decides."""
    kind = schema_type or _TYPES.get(Path(path).suffix.lower())
    if kind is None:
        raise UsageError(f"{path}: use --type to choose AVRO, JSON or PROTOBUF")
    return _text(path), kind


def pretty(schema_type: str, text: str) -> str:
    """A schema, formatted for people."""
    if schema_type == PROTOBUF:
        return text.rstrip()
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def _text(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _references(arguments: argparse.Namespace) -> list[Reference]:
    found = []
    for text in arguments.reference:
        name, equals, target = text.partition("=")
        subject, colon, version = target.rpartition(":")
        if not (name and equals and subject and colon and version.isdigit()):
            raise UsageError(f"--reference takes NAME=SUBJECT:VERSION, not '{text}'")
        found.append(Reference(name, subject, int(version)))
    return found
