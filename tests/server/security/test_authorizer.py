"""The rules of the authorizer match a literal implementation of the documentation, and every API has a decision."""

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clock import ManualClock
from ottla.config import ConfigError
from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.errors import TopicAuthorizationFailed
from ottla.metadata.image import Acl, MetadataImage
from ottla.server.api import ChecksItself, OpenToAll, registered_apis
from ottla.server.security import guards
from ottla.server.security.authorizer import DECISION_CHARACTERS_MAX, Authorizer, super_users
from ottla.server.security.loglimit import RateLimitedLog
from ottla.wire.messages.security import CreateAclsRequest

IMPLIED = {
    AclOperation.DESCRIBE: {
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS},
}

names = st.sampled_from(["a", "ab", "abc", "b", "*"])
names_asked = st.sampled_from(["a", "ab", "abcd", "x"])
acls = st.builds(
    Acl,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    resource_name=names,
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(["User:u", "User:v", "User:*"]),
    host=st.sampled_from(["*", "h", "i"]),
    operation=st.sampled_from(
        [
            AclOperation.ALL,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ]
    ),
    permission_type=st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
)


def authorizer(*entries: Acl, everyone: bool = False) -> Authorizer:
    image = MetadataImage()
    image.acls = {bytes([n]): acl for n, acl in enumerate(entries)}
    return Authorizer(image, ["User:root"], everyone)


def fits(acl: Acl, kind: int, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def expected(entries: list[Acl], everyone: bool, operation: int, kind: int, name: str) -> bool:
    """A slow, literal implementation of the documentation of StandardAuthorizer."""
    fitting = [acl for acl in entries if fits(acl, kind, name)]
    mine = [acl for acl in fitting if acl.principal in ("User:u", "User:*") and acl.host in ("*", "h")]
    if any(
        acl.permission_type == AclPermissionType.DENY and acl.operation in (AclOperation.ALL, operation) for acl in mine
    ):
        return False
    granted = {acl.operation for acl in mine if acl.permission_type == AclPermissionType.ALLOW}
    if AclOperation.ALL in granted or granted & IMPLIED.get(operation, {operation}):
        return True
    return everyone and not fitting


@settings(max_examples=150, deadline=None)
@given(
    st.lists(acls, max_size=8),
    st.booleans(),
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(["a", "ab", "abcd", "x"]),
)
def test_decisions_match_the_documentation(entries: list[Acl], everyone: bool, kind: int, name: str) -> None:
    decide = authorizer(*entries, everyone=everyone)
    for operation in (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ):
        for _ in range(2):  # the second time from memory
            allowed = decide.allows("User:u", "h", operation, kind, name)
            assert allowed == expected(entries, everyone, operation, kind, name)
    assert decide.allows("User:root", "h", AclOperation.WRITE, kind, name)


@settings(max_examples=100, deadline=None)
@given(st.lists(acls, max_size=5))
def test_any_resource_is_allowed_if_some_name_is(entries: list[Acl]) -> None:
    """If some name is allowed, then so is "any"; and if "any" is not, no name is."""
    decide = authorizer(*entries)
    some = any(
        decide.allows("User:u", "h", AclOperation.WRITE, ResourceType.TOPIC, name)
        for name in ("a", "ab", "abc", "b", "abcz", "bz", "q")
    )
    if some:
        assert decide.allows_any("User:u", "h", AclOperation.WRITE, ResourceType.TOPIC)


def test_nothing_is_kept_for_super_users() -> None:
    """They use every topic and group of the cluster, including deleted ones."""
    decide = authorizer()
    for number in range(100):
        assert decide.allows("User:root", "h", AclOperation.DELETE, ResourceType.TOPIC, f"brief-{number}")
    assert not decide._decisions
    assert decide.decision_characters == 0


def test_decisions_on_long_names_are_bounded_by_their_size(caplog: pytest.LogCaptureFixture) -> None:
    decide = authorizer()
    caplog.set_level(logging.INFO, "ottla.authorizer")
    for n in range(400):
        assert not decide.allows("User:u", "h", AclOperation.READ, ResourceType.GROUP, f"{n:032767}")
    kept = sum(len(name) for *_, name in decide._decisions)
    assert 0 < kept <= decide.decision_characters <= DECISION_CHARACTERS_MAX + 32_773
    assert max(len(record.getMessage()) for record in caplog.records) < 400, "the log shows the beginning of a name"


def test_every_api_is_decided_about() -> None:
    """A new API must be guarded, check for itself, or be open on purpose."""
    undecided = [
        api.name
        for api in registered_apis().apis.values()
        if not api.permissions
        or any(
            guards.guard_of(permission) is None and not isinstance(permission, OpenToAll | ChecksItself)
            for permission in api.permissions
        )
    ]
    assert undecided == []


def test_an_unknown_authorizer_class_is_refused(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(settings={"authorizer.class.name": "com.example.Own"}):
            pytest.fail("it started")

    with pytest.raises(ConfigError, match="StandardAuthorizer"):
        run(main())


def test_super_users_may_do_everything() -> None:
    assert super_users("User:a; User:CN=x,O=y ;") == {"User:a", "User:CN=x,O=y"}
    with pytest.raises(ConfigError, match=r"super\.users"):
        super_users("alice")


def test_acls_hold_when_answered_and_after_a_restart(
    run: Any, run_broker: Any, acl_settings: Any, tmp_path: Any
) -> None:
    from ottla.log.files import PosixDisk

    async def main() -> None:
        async with run_broker(disk=PosixDisk(str(tmp_path)), settings=acl_settings) as running:
            admin, alice = await running.as_user("admin"), await running.as_user("alice")
            await admin.create_topic("t")
            assert (await alice.produce("t", b"x")).error_code == TopicAuthorizationFailed.code
            creation = CreateAclsRequest.AclCreation(
                resource_type=ResourceType.TOPIC,
                resource_name="t",
                resource_pattern_type=PatternType.LITERAL,
                principal="User:alice",
                host="*",
                operation=AclOperation.WRITE,
                permission_type=AclPermissionType.ALLOW,
            )
            await admin.call(CreateAclsRequest(creations=[creation]), 3)
            assert (await alice.produce("t", b"x")).error_code == 0
        async with run_broker(disk=PosixDisk(str(tmp_path)), settings=acl_settings) as running:
            alice, bob = await running.as_user("alice"), await running.as_user("bob")
            assert (await alice.produce("t", b"x")).error_code == 0
            assert (await bob.produce("t", b"x")).error_code == TopicAuthorizationFailed.code

    run(main())


def test_a_denied_produce_without_answers_closes(run: Any, run_broker: Any, acl_settings: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=acl_settings) as running:
            admin, alice = await running.as_user("admin"), await running.as_user("alice")
            await admin.create_topic("t")
            alice.send(_produce("t"), 9)
            assert await alice.is_closed()

    run(main())


def _produce(topic: str) -> Any:
    from ottla.records.batch import Record, build_batch
    from ottla.wire.messages.produce import ProduceRequest

    data = ProduceRequest.PartitionProduceData(index=0, records=build_batch([Record(0, 0, None, b"x")]))
    return ProduceRequest(
        acks=0, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )


def test_allow_everyone_if_no_acl_found(run: Any, run_broker: Any, acl_settings: Any) -> None:
    async def main() -> None:
        settings = {**acl_settings, "allow.everyone.if.no.acl.found": "true"}
        async with run_broker(settings=settings) as running:
            alice = await running.as_user("alice")
            await alice.create_topic("t")
            assert (await alice.produce("t", b"x")).error_code == 0

    run(main())


def test_denials_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    import logging

    clock = ManualClock(0)
    log = RateLimitedLog(logging.getLogger("ottla.test"), clock)
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            log.warning("peer", "no %s", "entry")
        log.warning("other", "no entry")
        assert len(caplog.records) == 6
        clock.advance(10_000)
        log.warning("peer", "no %s", "entry")
    assert caplog.records[-1].getMessage() == "no entry (and 95 more like it before)"
