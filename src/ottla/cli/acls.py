"""`ottla acls`: permissions on any cluster with an authorizer."""

from __future__ import annotations

import argparse
from typing import Any

from ottla.cli import terminal
from ottla.cli.common import (
    OK,
    UsageError,
    add_connection,
    add_json,
    connect,
    report_results,
    run_async,
    subcommand,
    verbs,
    words_go_to,
)
from ottla.client.access import Acl, create_acl, delete_acl, list_acls
from ottla.client.access_rules import applies_to, parse_resource, parse_rules, principal_of, resource_text, rule_text
from ottla.client.routing import Client
from ottla.errors import KafkaError, ResourceNotFound

_GRAMMAR = """\
A rule is: [deny] USER OPERATION[,OPERATION] RESOURCE[:NAME] [from HOST]
  USER       a name, or * for everyone
  OPERATION  read, write, create, delete, alter, describe, describe-configs, alter-configs,
             cluster-action, idempotent-write, all
  RESOURCE   topic, group, transactional-id, cluster; NAME* means all names with this prefix"""


def add_parser(subparsers: Any) -> None:
    """Add `acls` to the command line."""
    examples = (
        "ottla acls list",
        "ottla acls list --for topic:orders",
        "ottla acls add 'alice read,describe topic:orders' 'alice read group:billing*'",
        "ottla acls add 'deny bob write topic:*'",
        "ottla acls delete 'alice read topic:orders'",
    )
    parser = subcommand(
        subparsers,
        "acls",
        "list, add and delete access rules",
        f"List, add and delete access rules (ACLs).\n\n{_GRAMMAR}",
        examples,
    )
    kinds = verbs(parser)
    listing = subcommand(kinds, "list", "show the rules", examples=examples[:2])
    listing.add_argument("--user", metavar="USER", help="only those of this user")
    listing.add_argument("--for", dest="resource", metavar="RESOURCE:NAME", help="only those that apply to it")
    add = subcommand(kinds, "add", "add rules", f"Add rules.\n\n{_GRAMMAR}", examples[2:4])
    delete = subcommand(kinds, "delete", "delete rules", "Delete rules, written as `list` prints them.", examples[4:])
    for verb in (add, delete):
        verb.add_argument("rules", nargs="+", metavar="RULE")
        words_go_to(verb, "rules")
    for verb in (listing, add, delete):
        add_json(verb)
        add_connection(verb)


def run(arguments: argparse.Namespace) -> int:
    return run_async((_list if arguments.verb == "list" else _change)(arguments))


async def _list(arguments: argparse.Namespace) -> int:
    try:
        resource = None if arguments.resource is None else parse_resource(arguments.resource)[:2]
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None
    async with connect(arguments) as client:
        rules = [
            acl
            for acl in sorted(await list_acls(client))
            if (arguments.user is None or acl.principal == principal_of(arguments.user))
            and (resource is None or applies_to(acl, *resource))
        ]
    if arguments.json:
        terminal.print_json([_fields(acl) for acl in rules])
    else:
        for acl in rules:
            print(rule_text(acl))
        if not rules:
            terminal.note("there are no rules")
    return OK


def _fields(acl: Acl) -> dict[str, Any]:
    return {
        "rule": rule_text(acl),
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        "operation": acl.operation.name.lower().replace("_", "-"),
        "resource": resource_text(acl),
        "host": acl.host,
    }


async def _change(arguments: argparse.Namespace) -> int:
    try:
        rules = [rule for text in arguments.rules for rule in parse_rules(text)]
    except ValueError as error:
        raise UsageError(str(error)) from None
    change = create_acl if arguments.verb == "add" else _delete
    results: dict[str, Any] = {}
    async with connect(arguments) as client:
        for rule in rules:
            try:
                await change(client, rule)
                results[rule_text(rule)] = None
            except KafkaError as error:
                results[rule_text(rule)] = error
    word = "added" if arguments.verb == "add" else "deleted"
    return report_results(results, lambda name, _: f"{word} {name}", arguments.json)


async def _delete(client: Client, rule: Acl) -> None:
    if not await delete_acl(client, rule):
        raise ResourceNotFound("there is no such rule")
