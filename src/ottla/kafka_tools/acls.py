"""kafka-acls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import product

from ottla.cli.common import CommandError
from ottla.client import Client
from ottla.client.access import Acl, create_acl, delete_acl, list_acls
from ottla.client.access_rules import CLUSTER_NAME, applies_to
from ottla.enums import SUPPORTED_OPERATIONS, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.kafka_tools.common import Parser, add_verbs, connect, finish, new_parser, parse_verb

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
NO_RESOURCE = (
    "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or --delegation-token "
    "<Delegation Token ID>"
)
Resource = tuple[ResourceType, str, PatternType]


def run(name: str, words: list[str]) -> int:
    parser = new_parser(name)
    add_verbs(parser, ("add", "remove", "list"), "Command must include exactly one action: --list, --add, --remove. ")
    for option in (*RESOURCES, "operation", "allow-principal", "deny-principal", "allow-host", "deny-host"):
        parser.add_argument(f"--{option}", action="append", default=[])
    parser.add_argument("--principal", action="append", default=[])
    for flag in ("cluster", "producer", "consumer", "idempotent", "force"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--resource-pattern-type", type=str.lower, default="literal")
    arguments = parse_verb(parser, words, {})
    _check_options(parser, arguments)
    try:
        resources = _resources(arguments)
        rules = {} if arguments.verb == "list" else _rules(arguments, resources)
    except CommandError as error:
        parser.error(str(error))
    failed = "Error while executing ACL command: "
    return finish(_run(arguments, resources, rules), lambda text: failed + text, to_stdout=True)


def _check_options(parser: Parser, arguments: argparse.Namespace) -> None:
    patterns = ("literal", "prefixed") if arguments.verb == "add" else ("any", "match", "literal", "prefixed")
    if arguments.resource_pattern_type not in patterns:
        parser.error(f"The resource pattern type is one of {', '.join(patterns)}")
    principals = (*arguments.allow_principal, *arguments.deny_principal)
    if arguments.verb == "add" and not principals:
        parser.error("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    if bad := [each for each in (*principals, *arguments.principal) if ":" not in each]:
        parser.error(f"expected a string in format principalType:principalName but got {bad[0]}")
    if (arguments.producer or arguments.consumer) and arguments.operation:
        parser.error("--operation cannot be specified with --producer or --consumer")
    if arguments.producer and not arguments.topic:
        parser.error("With --producer you must specify a --topic")
    if arguments.idempotent and not arguments.producer:
        parser.error("The --idempotent option is only available if --producer is set")
    if arguments.consumer and not (arguments.topic and arguments.group):
        parser.error(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id "
            "option should be specified."
        )


async def _run(arguments: argparse.Namespace, resources: list[Resource], rules: dict[Resource, list[Acl]]) -> int:
    async with connect(arguments) as client:
        if arguments.verb == "add":
            await _add(client, rules)
        elif arguments.verb == "remove":
            await _remove(client, rules, is_forced=arguments.force)
        else:
            _list(await list_acls(client), arguments, resources)
    return 0


def _resources(arguments: argparse.Namespace) -> list[Resource]:
    pattern = PatternType[arguments.resource_pattern_type.upper()]
    found = [
        (kind, name.strip(), pattern)
        for option, kind in RESOURCES.items()
        for name in getattr(arguments, option.replace("-", "_"))
    ]
    if arguments.cluster:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    if not found and arguments.verb != "list":
        raise CommandError(NO_RESOURCE)
    return found


def _rules(arguments: argparse.Namespace, resources: Iterable[Resource]) -> dict[Resource, list[Acl]]:
    """What the options say for each resource; nothing if they name no principal."""
    allowed, denied = AclPermissionType.ALLOW, AclPermissionType.DENY
    who = [
        (principal, host, permission)
        for principals, hosts, permission in (
            (arguments.allow_principal, arguments.allow_host, allowed),
            (arguments.deny_principal, arguments.deny_host, denied),
        )
        for principal, host in product(principals, hosts or ["*"])
    ]
    found: dict[Resource, list[Acl]] = {}
    for resource in resources:
        operations = _operations(arguments, resource[0])
        found[resource] = [
            Acl(*resource, principal, host, operation, permission)
            for (principal, host, permission), operation in product(who, operations)
        ]
    if arguments.idempotent:
        cluster = (ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
        found[cluster] = [
            Acl(*cluster, principal, host, AclOperation.IDEMPOTENT_WRITE, permission)
            for principal, host, permission in who
        ]
    return found


def _operations(arguments: argparse.Namespace, kind: ResourceType) -> list[AclOperation]:
    """--producer and --consumer are short for what those need."""
    op = AclOperation
    if arguments.producer or arguments.consumer:
        writes = [op.WRITE, op.DESCRIBE]
        needs: dict[ResourceType, list[AclOperation]] = {}
        if arguments.producer:
            needs = {ResourceType.TOPIC: [*writes, op.CREATE], ResourceType.TRANSACTIONAL_ID: writes}
        if arguments.consumer:
            needs[ResourceType.TOPIC] = [*dict.fromkeys([*needs.get(ResourceType.TOPIC, []), op.READ, op.DESCRIBE])]
            needs[ResourceType.GROUP] = [op.READ]
        return needs.get(kind, [])
    names = {each.name.replace("_", "").lower(): each for each in op if each not in (op.UNKNOWN, op.ANY)}
    wanted = [names.get(text.replace("_", "").strip().lower()) for text in arguments.operation] or [op.ALL]
    supported = [*SUPPORTED_OPERATIONS[kind], op.ALL]
    if any(each not in supported for each in wanted):
        shown = ", ".join(each.name for each in supported)
        raise CommandError(f"ResourceType {kind.name} only supports operations [{shown}]")
    return [each for each in wanted if each is not None]


async def _add(client: Client, wanted: dict[Resource, list[Acl]]) -> None:
    known = set(await list_acls(client))
    for resource, rules in wanted.items():
        for rule in (rule for rule in rules if rule in known):
            print(f"Acl (pattern={_pattern(resource)}, entry={_entry(rule)}) already exists.")
        if new := [rule for rule in rules if rule not in known]:
            print(f"Adding ACLs for resource `{_pattern(resource)}`: \n {_entries(new)}\n")
            for rule in new:
                await create_acl(client, rule)


async def _remove(client: Client, wanted: dict[Resource, list[Acl]], *, is_forced: bool) -> None:
    known = await list_acls(client)
    for resource, rules in wanted.items():
        question = "Are you sure you want to delete all ACLs for resource filter"
        if rules:
            question = f"Are you sure you want to remove ACLs: \n {_entries(rules)} \n from resource filter"
        if is_forced or _is_sure(f"{question} `{_pattern(resource)}`? (y/n)"):
            for rule in rules or [each for each in known if _matches(each, resource)]:
                await delete_acl(client, rule)


def _is_sure(question: str) -> bool:
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _list(known: list[Acl], arguments: argparse.Namespace, resources: list[Resource]) -> None:
    found = [each for each in known if not resources or any(_matches(each, resource) for resource in resources)]
    for principal in arguments.principal or [None]:
        if principal is not None:
            print(f"ACLs for principal `{principal}`")
        by_resource: dict[Resource, list[Acl]] = {}
        for each in found:
            if principal in (None, each.principal):
                by_resource.setdefault((each.resource_type, each.resource_name, each.pattern_type), []).append(each)
        for resource, rules in by_resource.items():
            print(f"Current ACLs for resource `{_pattern(resource)}`:\n{_entries(rules)}\n")


def _matches(acl: Acl, resource: Resource) -> bool:
    kind, name, pattern = resource
    if pattern == PatternType.MATCH:
        return applies_to(acl, kind, name)
    return (acl.resource_type, acl.resource_name) == (kind, name) and pattern in (PatternType.ANY, acl.pattern_type)


def _pattern(resource: Resource) -> str:
    kind, name, pattern = resource
    return f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern.name})"


def _entry(acl: Acl) -> str:
    return (
        f"(principal={acl.principal}, host={acl.host}, operation={acl.operation.name}, "
        f"permissionType={acl.permission.name})"
    )


def _entries(rules: list[Acl]) -> str:
    return "\n".join(f"\t{_entry(rule)}" for rule in rules)
