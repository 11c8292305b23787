"""Calls every API as users that have one right each: which error does each of them get?

    python -m interop.acl_matrix kafka|ottla FILE    writes the table as JSON

The table of Apache Kafka 4.3.1 is stored next to this file; `test_security_matrix.py` compares Ottla with it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ottla.enums import AclOperation, ApiKey, PatternType, ResourceType
from ottla.errors import ConcurrentTransactions, TopicAlreadyExists
from ottla.wire.messages import (
    REQUESTS,
    ApiVersionsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
)
from support.fuzzing.differential import codes
from support.fuzzing.frames import BITS
from support.interop.secured import PLAIN_MODULE, USERS, Secured
from support.requests import create_topic_request
from support.waiting import ask_until_ready
from support.wire import Wire

KEPT = Path(__file__).parent / "acl_matrix.json"
RESOURCES = {
    ResourceType.TOPIC: "t",
    ResourceType.GROUP: "g",
    ResourceType.CLUSTER: "kafka-cluster",
    ResourceType.TRANSACTIONAL_ID: "x",
    ResourceType.DELEGATION_TOKEN: "d",
    ResourceType.USER: "User:u",
}
OPERATIONS = tuple(range(AclOperation.READ, max(AclOperation) + 1))
LOGINS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""After these a connection is in the middle of another login, or closed."""
HARMLESS: dict[int, dict[str, Any]] = {
    ApiKey.SHARE_FETCH: {"share_session_epoch": 5},  # of a session that does not exist, so nothing waits for records
    ApiKey.SHARE_ACKNOWLEDGE: {"share_session_epoch": 5},
    ApiKey.UNREGISTER_BROKER: {"broker_id": 99},
    ApiKey.DELETE_TOPICS: {"topics": [DeleteTopicsRequest.DeleteTopicState(name="t")]},
    ApiKey.UPDATE_FEATURES: {"validate_only": True},
    ApiKey.DELETE_ACLS: {
        "filters": [
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=ResourceType.TOPIC,
                resource_name_filter="no such topic",
                pattern_type_filter=PatternType.LITERAL,
                principal_filter=None,
                host_filter=None,
                operation=AclOperation.READ,
                permission_type=3,
            )
        ]
    },
    ApiKey.END_TXN: {"producer_id": 12_345},  # not the id of the transaction: nothing ends
}
"""Fields that prevent a request from waiting, or from changing what later requests find."""


def users() -> dict[str, tuple[int, int] | None]:
    """A user for each right, and one without any."""
    made: dict[str, tuple[int, int] | None] = {"nobody": None}
    for kind in RESOURCES:
        for operation in OPERATIONS:
            made[f"r{int(kind)}o{int(operation)}"] = (int(kind), int(operation))
    return made


def value(field: Any, version: int) -> Any:
    """A value for a field: the resources above, or a small value elsewhere."""
    if field.kind == "struct":
        return filled(field.struct, version)
    if field.kind == "array":
        if field.struct is not None:
            return [filled(field.struct, version)]
        return [scalar(field.item_kind, field.name)]
    return scalar(field.kind, field.name)


def scalar(kind: str, name: str) -> Any:
    if kind == "string":
        for part, text in (("group", "g"), ("transactional", "x"), ("topic", "t"), ("name", "t"), ("key", "g")):
            if part in name:
                return text
        return "v"
    if kind == "boolean":
        return False
    if kind == "uuid":
        return bytes((1,)) * 16  # an id that no topic has
    if kind == "float64":
        return 1.0
    if kind not in BITS:
        return b""
    if "timeout" in name or "wait" in name:
        return 100
    if "resource_type" in name or name == "entity_type":
        return int(ResourceType.TOPIC)
    if name in ("operation", "permission_type", "pattern_type_filter", "resource_pattern_type"):
        return 3  # READ, ALLOW, LITERAL: valid numbers in each enum
    return 0


def filled(cls: Any, version: int) -> Any:
    return cls(
        **{
            field.name: value(field, version)
            for field in cls.FIELDS
            if field.exists(version) and not field.is_tagged(version)
        }
    )


Outcome = list[int] | str
"""The error codes of an answer, or "closed"."""


def matrix(kind: str, folder: Path) -> dict[str, dict[str, Outcome]]:
    """The outcome of each API for each user."""
    everybody = users()
    known = " ".join(f'user_{name}="{name}-secret"' for name in (*USERS, *everybody))
    jaas = {"listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} {known};"}
    broker = Secured(kind, folder, **jaas)
    try:
        with broker.wire() as admin:
            admin.call(create_topic_request("t", 1), 7)
            for name, key_type in (("g", 0), ("x", 1)):
                request = FindCoordinatorRequest(key=name, key_type=key_type)
                ask_until_ready(lambda request=request: admin.call(request, 3))  # type: ignore[misc]
            ask_until_ready(lambda: admin.call(OffsetFetchRequest(group_id="g", topics=None), 7))
            begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
            ask_until_ready(lambda: admin.call(begin, 4))
            creations = [
                CreateAclsRequest.AclCreation(
                    resource_type=right[0],
                    resource_name=RESOURCES[ResourceType(right[0])],
                    resource_pattern_type=PatternType.LITERAL,
                    principal=f"User:{name}",
                    host="*",
                    operation=right[1],
                    permission_type=3,
                )
                for name, right in everybody.items()
                if right is not None
            ]
            admin.call(CreateAclsRequest(creations=creations), 3)
            served = {api.api_key: api.max_version for api in admin.call(ApiVersionsRequest(), 0).api_keys}
        table: dict[str, dict[str, Outcome]] = {}
        for name in everybody:
            table[name] = {}
            wire = broker.wire(name)
            for key in sorted(REQUESTS.keys() & served.keys() - {ApiKey.DELETE_TOPICS}):
                outcome = asked(wire, key, served[key])
                table[name][name_of(key)] = outcome
                if key in LOGINS or outcome == "closed":
                    wire.close()
                    wire = broker.wire(name)
            wire.close()
        for name in everybody:  # last: it deletes the topic that the others use
            with broker.wire(name) as wire, broker.wire() as admin:
                outcome = asked(wire, ApiKey.DELETE_TOPICS, served[ApiKey.DELETE_TOPICS])
                table[name][name_of(ApiKey.DELETE_TOPICS)] = outcome
                if outcome == [0]:
                    ask_until_ready(lambda admin=admin: created(admin), (TopicAlreadyExists.code,))  # type: ignore[misc]
        return table
    finally:
        broker.stop()


def name_of(key: int) -> str:
    return REQUESTS[key].__name__.removesuffix("Request")


def asked(wire: Wire, key: int, served_version: int) -> Outcome:
    """The outcome of one request."""
    cls = REQUESTS[key]
    version = min(served_version, cls.MAX_VERSION)
    request = filled(cls, version)
    for field, wanted in HARMLESS.get(key, {}).items():
        setattr(request, field, wanted)
    try:
        while True:
            found = sorted(set(codes(wire.call(request, version))))
            if found != [ConcurrentTransactions.code]:  # an InitProducerId is still written, in Apache Kafka
                return found
    except (OSError, ValueError):
        return "closed"


def created(admin: Wire) -> Any:
    return admin.call(create_topic_request("t", 1), 7).topics[0]


EVERYBODY_ELSE = "*"


def packed(table: dict[str, dict[str, Outcome]]) -> dict[str, dict[str, Outcome]]:
    """For each API, the outcome of most users, and the users with another outcome."""
    by_api: dict[str, dict[str, Outcome]] = {}
    for api in sorted({api for row in table.values() for api in row}):
        outcomes = {user: row[api] for user, row in table.items()}
        usual = max(outcomes.values(), key=list(outcomes.values()).count)
        others = {user: outcome for user, outcome in outcomes.items() if outcome != usual}
        by_api[api] = {EVERYBODY_ELSE: usual, **others}
    return by_api


def main() -> None:
    kind, path = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        rows = packed(matrix(kind, Path(folder) / "broker"))
    lines = ",\n".join(f"{json.dumps(api)}: {json.dumps(row)}" for api, row in rows.items())
    Path(path).write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
