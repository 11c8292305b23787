"""Users, permissions and quotas on workers: a change through one of them applies to all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

SECONDS = 60.0
PARTITIONS = 3

PROPERTIES = """\
listeners=SASL_PLAINTEXT://127.0.0.1:0
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def settings(serving: Any, user: str, password: str, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": serving.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.fixture
def secured(serve: Callable[..., Any], tmp_path: Path) -> Iterator[tuple[Any, AdminClient]]:
    """Three workers with the user `admin`, and an admin client of that user; the topic `t` has a partition on each
    worker."""
    file = tmp_path / "server.properties"
    file.write_text(PROPERTIES)
    serving = serve(3, str(file))
    admin = AdminClient(settings(serving, "admin", "admin-secret", "PLAIN"))
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(SECONDS)
    yield serving, admin
    assert serving.stop()[0] == 0


def set_password(admin: AdminClient, user: str, password: str) -> None:
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = UserScramCredentialUpsertion(user, scram, password.encode())
    admin.alter_user_scram_credentials([wanted])[user].result(SECONDS)


def allow(admin: AdminClient, kind: ResourceType, name: str, *operations: AclOperation) -> list[AclBinding]:
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for future in admin.create_acls(bindings).values():
        future.result(SECONDS)
    return bindings


def outcomes(serving: Any, password: str) -> list[str | None]:
    """What alice gets for a record to each partition: None, or the error's name."""
    found: dict[int, str | None] = {}
    login = settings(serving, "alice", password, "SCRAM-SHA-256")
    producer = ck.Producer({**login, "retries": 0, "message.timeout.ms": 60_000})

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        found[message.partition() or 0] = None if error is None else error.name()

    for index in range(PARTITIONS):
        producer.produce("t", b"x", partition=index, on_delivery=delivered)
    producer.flush(SECONDS)
    return [found[index] for index in range(PARTITIONS)]


def test_users_and_permissions_hold_on_all_workers(secured: tuple[Any, AdminClient]) -> None:
    serving, admin = secured
    set_password(admin, "alice", "first")
    granted = allow(admin, ResourceType.TOPIC, "t", AclOperation.DESCRIBE, AclOperation.WRITE)
    # No wait: every worker has applied the change before the answer.
    assert outcomes(serving, "first") == [None] * PARTITIONS
    set_password(admin, "alice", "second")
    assert outcomes(serving, "second") == [None] * PARTITIONS
    for future in admin.delete_acls([binding_filter(binding) for binding in granted[1:]]).values():
        future.result(SECONDS)
    assert outcomes(serving, "second") == ["TOPIC_AUTHORIZATION_FAILED"] * PARTITIONS
    gone = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["alice"].result(SECONDS)
    refused: list[str] = []
    login = settings(serving, "alice", "second", "SCRAM-SHA-256")
    producer = ck.Producer({**login, "error_cb": lambda error: refused.append(error.name())})
    deadline = time.monotonic() + SECONDS
    while "_AUTHENTICATION" not in refused and time.monotonic() < deadline:
        producer.poll(0.1)
    assert "_AUTHENTICATION" in refused


def binding_filter(binding: AclBinding) -> Any:
    from confluent_kafka.admin import AclBindingFilter

    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
