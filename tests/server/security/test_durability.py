"""Changes to rights survive a power loss once they are answered; only the broker's user may read its files."""

import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType, ScramMechanism
from ottla.errors import TopicAuthorizationFailed
from ottla.log.files import PosixDisk
from ottla.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    ExpireDelegationTokenRequest,
)
from support.simulating.disk import SimDisk

METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"

CREATION = CreateAclsRequest(
    creations=[
        CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host="*",
            operation=AclOperation.WRITE,
            permission_type=AclPermissionType.ALLOW,
        )
    ]
)
REVOCATION = DeleteAclsRequest(
    filters=[
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter="t",
            pattern_type_filter=PatternType.LITERAL,
            principal_filter="User:alice",
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermissionType.ANY,
        )
    ]
)
SCRAM = AlterUserScramCredentialsRequest
NEW_USER = SCRAM(
    deletions=[],
    upsertions=[
        SCRAM.ScramCredentialUpsertion(
            name="carol",
            mechanism=ScramMechanism.SCRAM_SHA_256,
            iterations=4096,
            salt=b"s" * 16,
            salted_password=b"p" * 32,
        )
    ],
)
USER_GOES = SCRAM(
    deletions=[SCRAM.ScramCredentialDeletion(name="carol", mechanism=ScramMechanism.SCRAM_SHA_256)], upsertions=[]
)


def is_flushed(disk: SimDisk) -> bool:
    file: Any = disk._files[METADATA_LOG]
    return bool(file.durable == file.content())


def test_security_records_are_on_the_disk_when_they_are_answered(run: Any, run_broker: Any, acl_settings: Any) -> None:
    async def main() -> None:
        disk = SimDisk(ManualClock(1_700_000_000_000))
        settings = {**acl_settings, "delegation.token.secret.key": "secret"}
        async with run_broker(disk=disk, settings=settings) as running:
            admin = await running.as_user("admin")
            await admin.create_topic("t")
            assert not is_flushed(disk), "topics are flushed like any other log"
            for request, version in ((CREATION, 3), (REVOCATION, 3), (NEW_USER, 0), (USER_GOES, 0)):
                await admin.call(request, version)
                assert is_flushed(disk), request
                await admin.create_topic(f"after-{type(request).__name__}-{version}-{id(request)}")
                assert not is_flushed(disk)
            token = await admin.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            assert token.error_code == 0, token
            assert is_flushed(disk)
            await admin.create_topic("last")
            gone = await admin.call(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)
            assert gone.error_code == 0, gone
            assert is_flushed(disk)

    run(main())


@pytest.mark.parametrize("seed", range(6))
def test_a_revocation_survives_a_loss_of_power(run: Any, run_broker: Any, acl_settings: Any, seed: int) -> None:
    async def main() -> None:
        disk = SimDisk(ManualClock(1_700_000_000_000))
        async with run_broker(disk=disk, settings=acl_settings) as running:
            admin, alice = await running.as_user("admin"), await running.as_user("alice")
            await admin.create_topic("t")
            await admin.call(CREATION, 3)
            assert (await alice.produce("t", b"x")).error_code == 0
            deleted = await admin.call(REVOCATION, 3)
            assert len(deleted.filter_results[0].matching_acls) == 1
            left = disk.after_power_loss(random.Random(seed))
        async with run_broker(disk=left, settings=acl_settings) as running:
            alice = await running.as_user("alice")
            assert (await alice.produce("t", b"x")).error_code == TopicAuthorizationFailed.code

    run(main())


def test_only_the_brokers_user_can_read_new_folders_and_files(run: Any, run_broker: Any, tmp_path: Path) -> None:
    root = tmp_path / "data"

    async def main() -> None:
        async with run_broker(disk=PosixDisk(root)) as running:
            client = await running.connect()
            await client.create_topic("t")
            assert (await client.produce("t", b"x")).error_code == 0

    before = os.umask(0o022)
    try:
        run(main())
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
