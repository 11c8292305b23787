"""Quotas, SCRAM users and ACLs in the metadata."""

import base64
import hashlib
from typing import Any

import pytest

from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.errors import InvalidRequest, KafkaError, UnknownServerError, UnsupportedVersion
from ottla.metadata.acls import AclFilter, create_acls, delete_acls, find_acls
from ottla.metadata.image import Acl
from ottla.metadata.quotas import QuotaAlteration, QuotaFilter, alter_quotas, find_quotas
from ottla.metadata.scram import NewCredential, alter_credentials, credential, describe_credentials

ALICE = (("user", "alice"),)
RATE = ("producer_byte_rate", 1000.0)


def alter(world: Any, *alterations: Any) -> dict[Any, KafkaError | None]:
    records, outcomes = alter_quotas(world.image, [QuotaAlteration(*alteration) for alteration in alterations])
    world.append(records)
    return outcomes


def test_quotas_are_set_changed_and_removed(world: Any) -> None:
    assert alter(world, (ALICE, [RATE, ("request_percentage", 12.5)])) == {ALICE: None}
    alter(world, (ALICE, [("producer_byte_rate", 5.0)]))
    assert world.image.quotas == {ALICE: {"producer_byte_rate": 5.0, "request_percentage": 12.5}}
    before = len(world.written)
    alter(world, (ALICE, [("producer_byte_rate", 5.0)]))
    assert len(world.written) == before, "an unchanged quota is not written"
    alter(world, (ALICE, [("producer_byte_rate", None), ("request_percentage", None)]))
    assert world.image.quotas == {}
    assert alter(world, (ALICE, [("nope", None)])) == {ALICE: None}


QUOTAS_REFUSED = [
    ((), [RATE], "Invalid empty client quota entity"),
    ((("group", "g"),), [RATE], "Unhandled client quota entity type: group"),
    ((("user", ""),), [RATE], "Empty user not supported"),
    (
        (("ip", "1.2.3.4"), ("user", "a")),
        [RATE],
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    ((("ip", "not an ip!"),), [("connection_creation_rate", 1.0)], "not an ip! is not a valid IP or resolvable host."),
    ((("ip", "1.2.3.4"),), [RATE], "Invalid configuration key producer_byte_rate"),
    (
        (("ip", None),),
        [("connection_creation_rate", 5e12)],
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
    (ALICE, [("nope", 1.0)], "Invalid configuration key nope"),
    (ALICE, [("producer_byte_rate", -1.0)], "Quota producer_byte_rate must be greater than 0"),
    (ALICE, [("consumer_byte_rate", 2000.5)], "consumer_byte_rate cannot be a fractional value."),
    (ALICE, [("producer_byte_rate", 1e19)], "Proposed value for producer_byte_rate is too large for a LONG."),
    (ALICE, [RATE, RATE], "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"),
]


@pytest.mark.parametrize(("entity", "operations", "message"), QUOTAS_REFUSED)
def test_refused_quotas_have_kafkas_messages(world: Any, entity: Any, operations: Any, message: str) -> None:
    [error] = alter(world, (entity, operations)).values()
    assert isinstance(error, InvalidRequest)
    assert error.message == message
    assert world.image.quotas == {}


def test_quotas_are_found_by_part(world: Any) -> None:
    both, default, address = (("client-id", "c"), ("user", "alice")), (("user", None),), (("ip", "::1"),)
    for entity in (ALICE, both, default):
        alter(world, (entity, [RATE]))
    alter(world, (address, [("connection_creation_rate", 1.0)]))

    def found(*components: Any, strict: bool = False) -> set[Any]:
        return {entity for entity, _ in find_quotas(world.image, [QuotaFilter(*c) for c in components], strict)}

    assert found() == {ALICE, both, default, address}
    assert found(strict=True) == set()
    assert found(("user", 0, "alice")) == {ALICE, both}
    assert found(("user", 0, "alice"), strict=True) == {ALICE}
    assert found(("user", 1, None)) == {default}
    assert found(("user", 2, None)) == {ALICE, both, default}
    assert found(("user", 2, None), ("client-id", 0, "c")) == {both}
    assert found(("ip", 2, None)) == {address}


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([("group", 2, None)], UnsupportedVersion, "Unsupported entity type group"),
        ([("", 2, None)], InvalidRequest, "Invalid empty entity type."),
        (
            [("user", 2, None), ("user", 1, None)],
            InvalidRequest,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("user", 0, None)],
            InvalidRequest,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", 1, "x")],
            InvalidRequest,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        ([("user", 7, "x")], InvalidRequest, "Unknown match type 7"),
        (
            [("ip", 2, None), ("user", 2, None)],
            InvalidRequest,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        ),
    ],
)
def test_quota_filters_are_checked(world: Any, components: Any, error: type[KafkaError], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        find_quotas(world.image, [QuotaFilter(*component) for component in components], False)
    assert (caught.type, caught.value.message) == (error, message)


def test_the_keys_of_a_credential_are_those_of_rfc_7677() -> None:
    """The example exchange of RFC 7677: its proof and its server signature follow from the stored keys."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    kept = credential(1, salt, salted, 4096)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    import hmac

    signature = hmac.digest(kept.stored_key, message, "sha256")
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key
    server_signature = base64.b64encode(hmac.digest(kept.server_key, message, "sha256"))
    assert server_signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(world: Any, deletions: Any = (), upsertions: Any = ()) -> dict[str, tuple[int, str] | None]:
    new = [NewCredential(user, mechanism, iterations, b"salt", b"p") for user, mechanism, iterations in upsertions]
    records, outcomes = alter_credentials(world.image, deletions, new)
    world.append(records)
    return {user: None if error is None else (error.code, error.message) for user, error in outcomes.items()}


TWICE = (92, "A user credential cannot be altered twice in the same request")


def test_credentials_are_set_and_removed(world: Any) -> None:
    assert scram(world, (), [("u", 1, 4096)]) == {"u": None}
    assert scram(world, (), [("u", 2, 8192), ("v", 1, 5000)]) == {"u": None, "v": None}
    assert describe_credentials(world.image, None) == {"u": [(1, 4096), (2, 8192)], "v": [(1, 5000)]}
    assert scram(world, [("u", 1), ("v", 1)]) == {"u": None, "v": None}
    assert describe_credentials(world.image, []) == {"u": [(2, 8192)]}


@pytest.mark.parametrize(
    ("deletions", "upsertions", "outcomes"),
    [
        ((), [("x", 1, 4095)], {"x": (93, "Too few iterations")}),
        ((), [("x", 1, 16385)], {"x": (93, "Too many iterations")}),
        ((), [("x", 9, 4096)], {"x": (33, "Unknown SCRAM mechanism")}),
        ((), [("", 1, 4096)], {"": (93, "Username must not be empty")}),
        ((), [("x", 1, 4096), ("x", 2, 4096)], {"x": TWICE}),
        ([("u", 1)], [("u", 1, 4096)], {"u": TWICE}),
        ([("no", 1)], (), {"no": (91, "Attempt to delete a user credential that does not exist")}),
        (
            [("u", 2)],
            [("x", 1, 4096)],
            {"u": (91, "Attempt to delete a user credential that does not exist"), "x": None},
        ),
    ],
)
def test_refused_credentials_name_their_user(world: Any, deletions: Any, upsertions: Any, outcomes: Any) -> None:
    scram(world, (), [("u", 1, 4096)])
    assert scram(world, deletions, upsertions) == outcomes
    assert ("u", 1) in world.image.credentials


def test_unknown_and_duplicate_users_are_reported(world: Any) -> None:
    scram(world, (), [("u", 1, 4096)])
    described = describe_credentials(world.image, ["u", "u", "no"])
    assert {
        user: (found.code, found.message) for user, found in described.items() if isinstance(found, KafkaError)
    } == {
        "u": (92, "Cannot describe SCRAM credentials for the same user twice in a single request: u"),
        "no": (91, "Attempt to describe a user credential that does not exist: no"),
    }


READ = Acl(2, "t1", 3, "User:alice", "*", 3, 3)
DENIED = READ._replace(operation=AclOperation.WRITE, permission_type=AclPermissionType.DENY)
PREFIXED = READ._replace(
    resource_name="t",
    pattern_type=PatternType.PREFIXED,
    principal="User:bob",
    host="1.2.3.4",
    operation=AclOperation.DESCRIBE,
)
WILDCARD = READ._replace(resource_name="*", operation=AclOperation.DESCRIBE)
GROUP = READ._replace(resource_type=ResourceType.GROUP, resource_name="g")
EVERYTHING = AclFilter(1, None, 1, None, None, 1, 1)


def add(world: Any, *acls: Acl) -> list[KafkaError | None]:
    records, outcomes = create_acls(world.image, acls, world.chance.uuid)
    world.append(records)
    return outcomes


def found(world: Any, **parts: Any) -> set[Acl]:
    return {acl for acls in find_acls(world.image, EVERYTHING._replace(**parts)).values() for acl in acls}


def test_acls_are_found_by_pattern(world: Any) -> None:
    assert add(world, READ, READ, DENIED, PREFIXED, WILDCARD, GROUP) == [None] * 6
    assert len(world.image.acls) == 5, "an existing entry is not added again"
    assert found(world) == {READ, DENIED, PREFIXED, WILDCARD, GROUP}
    assert found(world, resource_type=ResourceType.GROUP) == {GROUP}
    assert found(world, resource_name="t1", pattern_type=PatternType.LITERAL) == {READ, DENIED}
    assert found(world, resource_type=ResourceType.TOPIC, resource_name="t1", pattern_type=PatternType.MATCH) == {
        READ,
        DENIED,
        PREFIXED,
        WILDCARD,
    }
    assert found(world, resource_name="t1") == {READ, DENIED}
    assert found(world, resource_name="t", pattern_type=PatternType.PREFIXED) == {PREFIXED}
    assert found(world, resource_type=ResourceType.TOPIC, resource_name="t", pattern_type=PatternType.MATCH) == {
        PREFIXED,
        WILDCARD,
    }
    assert found(world, principal="User:bob") == found(world, host="1.2.3.4") == {PREFIXED}
    assert (
        found(world, operation=AclOperation.WRITE) == found(world, permission_type=AclPermissionType.DENY) == {DENIED}
    )
    assert found(world, operation=99) == set()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"resource_type": 4},
            InvalidRequest,
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_name": ""}, InvalidRequest, "Invalid empty resource name"),
        ({"resource_type": 1}, UnknownServerError, UnknownServerError.default_message),
        ({"pattern_type": 2}, UnknownServerError, UnknownServerError.default_message),
        ({"resource_type": 99}, InvalidRequest, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 99}, InvalidRequest, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, InvalidRequest, "Invalid operation UNKNOWN"),
        ({"permission_type": 99}, InvalidRequest, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            InvalidRequest,
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ],
)
def test_refused_acls_have_kafkas_messages(world: Any, change: Any, error: type[KafkaError], message: str) -> None:
    first, refused, last = add(world, READ, READ._replace(**change), DENIED)
    assert first is last is None
    assert refused is not None
    assert (type(refused), refused.message) == (error, message)
    assert set(world.image.acls.values()) == {READ, DENIED}


def test_acls_are_deleted_by_filter(world: Any) -> None:
    add(world, READ, DENIED, GROUP)
    filters = [
        EVERYTHING._replace(resource_name="t1"),
        EVERYTHING._replace(resource_type=ResourceType.TOPIC, operation=AclOperation.READ),
        EVERYTHING._replace(resource_type=99),
        EVERYTHING._replace(operation=99),
    ]
    records, outcomes = delete_acls(world.image, filters)
    world.append(records)
    removed, again, *errors = outcomes
    assert isinstance(removed, list)
    assert set(removed) == {READ, DENIED}
    assert again == [READ], "two filters may match the same entry"
    assert [str(error) for error in errors] == ["Unknown patternFilter.", "Unknown entryFilter."]
    assert list(world.image.acls.values()) == [GROUP]
