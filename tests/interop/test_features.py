"""Upgrades and downgrades of features, in a folder of an old release: the same on Ottla and on Apache Kafka."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import NONE, InvalidUpdateVersion
from ottla.log.checkpoints import MetaProperties
from ottla.log.files import PosixDisk
from ottla.metadata.metadata_log import snapshot_content
from ottla.wire.messages import ApiVersionsRequest, UpdateFeaturesRequest
from ottla.wire.stored import metadata as stored
from support.interop.drivers import CLIENTS, Driver
from support.kafka import Kafka
from support.waiting import wait_for
from support.wire import Wire

METADATA, ELIGIBLE = "metadata.version", "eligible.leader.replicas.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3
OLDEST, NEWEST = 7, 30
KEEPS_RECORDS = {9, 10, 12, 16, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29}
"""The levels from which a downgrade by one step loses nothing."""
WHOLE = "The update failed for all features since the following feature had an error: "


def formatted(folder: Path, level: int) -> Path:
    """A data folder as `kafka-storage format --release-version` leaves it."""
    folder.mkdir(parents=True)
    MetaProperties("AAAAAAAAAAAAAAAAAAAAAA", 1, "BBBBBBBBBBBBBBBBBBBBBA").write(PosixDisk(folder))
    records = [stored.FeatureLevelRecord(name=METADATA, feature_level=level)]
    (folder / "bootstrap.checkpoint").write_bytes(snapshot_content(records, 0))
    return folder


@pytest.fixture(params=["ottla", "kafka"])
def target(request: pytest.FixtureRequest, tmp_path: Path, start_broker: Callable[..., Any]) -> Iterator[Any]:
    """A broker whose metadata.version is 3.3-IV3."""
    data = formatted(tmp_path / "broker" / "logs", OLDEST)
    running = start_broker(data=data) if request.param == "ottla" else Kafka(tmp_path / "broker")
    yield running
    running.stop()


@pytest.fixture
def wire(target: Any) -> Iterator[Wire]:
    with Wire(target.address) as wire:
        yield wire


def answer(wire: Wire, *updates: tuple[str, int, int], version: int = 2, only: bool = True) -> Any:
    update = UpdateFeaturesRequest.FeatureUpdateKey
    return wire.call(
        UpdateFeaturesRequest(
            timeout_ms=30_000,
            feature_updates=[update(feature=f, max_version_level=level, upgrade_type=k) for f, level, k in updates],
            validate_only=only,
        ),
        version,
    )


def refused(wire: Wire, *updates: tuple[str, int, int]) -> str | None:
    """The reason why an update would be refused, or None. Nothing is changed."""
    found = answer(wire, *updates)
    if found.error_code == NONE:
        assert found.error_message is None
        return None
    assert found.error_code == InvalidUpdateVersion.code
    before, whole, reason = found.error_message.partition(WHOLE)
    assert (before, whole) == ("", WHOLE)
    return str(reason)


def levels(wire: Wire) -> dict[str, int]:
    found = wire.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    return {feature.name: feature.max_version_level for feature in found.finalized_features}


def update(wire: Wire, *updates: tuple[str, int, int]) -> None:
    found = answer(wire, *updates, only=False)
    assert (found.error_code, found.error_message) == (NONE, None)
    expected = {name: level for name, level, _ in updates}
    # Kafka answers when the controller has the change; its brokers follow later.
    wait_for(lambda: all(levels(wire).get(name, 0) == level for name, level in expected.items()), "the new levels")


def test_each_step_of_the_metadata_version_is_answered_as_in_kafka(wire: Wire) -> None:
    assert levels(wire) == {METADATA: OLDEST}
    for level in range(OLDEST + 1, NEWEST + 1):
        update(wire, (METADATA, level, UPGRADE))
        below = level - 1
        assert refused(wire, (METADATA, below, UPGRADE)) == (
            f"Invalid update version {below} for feature {METADATA}. Can't downgrade the version of this feature "
            "without setting the upgrade type to either safe or unsafe downgrade."
        )
        no = f"Unsupported metadata.version downgrade from {level} to {below}. "
        losing = level not in KEEPS_RECORDS
        assert refused(wire, (METADATA, below, SAFE)) == (
            no + "Refusing to perform the requested downgrade because it might delete metadata information."
            if losing
            else None
        )
        assert refused(wire, (METADATA, below, UNSAFE)) == (
            no + "Unsafe metadata downgrade is not supported in this version." if losing else None
        )
        # A downgrade across such a level is refused completely.
        assert refused(wire, (METADATA, OLDEST, SAFE)) == (
            f"Unsupported metadata.version downgrade from {level} to {OLDEST}. Refusing to perform the requested "
            "downgrade because it might delete metadata information."
        )


def test_allowed_downgrades_are_done(wire: Wire) -> None:
    update(wire, (METADATA, 22, UPGRADE))
    update(wire, (METADATA, 17, SAFE))
    newer = "Can't downgrade to a newer version."
    assert refused(wire, (METADATA, 20, SAFE)) == f"Invalid update version 20 for feature {METADATA}. {newer}"
    assert refused(wire, (METADATA, 18, UNSAFE)) == f"Invalid update version 18 for feature {METADATA}. {newer}"
    update(wire, (METADATA, 18, UPGRADE))
    update(wire, (METADATA, 17, UNSAFE))
    update(wire, ("transaction.version", 2, UPGRADE), ("group.version", 1, UPGRADE))
    assert refused(wire, ("transaction.version", 1, UPGRADE)) == (
        "Invalid update version 1 for feature transaction.version. Can't downgrade the version of this feature without "
        "setting the upgrade type to either safe or unsafe downgrade."
    )
    update(wire, ("transaction.version", 1, SAFE), ("group.version", 0, UNSAFE))
    update(wire, ("transaction.version", 0, UNSAFE))
    assert levels(wire) == {METADATA: 17}


def test_a_feature_can_depend_on_the_metadata_version(wire: Wire) -> None:
    depends = (
        f"Invalid update version 1 for feature {ELIGIBLE}. {ELIGIBLE} could not be set to 1 because it depends on "
        "metadata.version level 23"
    )
    assert refused(wire, (ELIGIBLE, 1, UPGRADE)) == depends
    assert refused(wire, (ELIGIBLE, 1, UPGRADE), (METADATA, 22, UPGRADE)) == depends
    assert refused(wire, (ELIGIBLE, 1, UPGRADE), (METADATA, 23, UPGRADE)) is None
    update(wire, (ELIGIBLE, 1, UPGRADE), (METADATA, 23, UPGRADE))
    assert refused(wire, (ELIGIBLE, 0, SAFE), (METADATA, 22, SAFE)) == (
        "Unsupported metadata.version downgrade from 23 to 22. Refusing to perform the requested downgrade because it "
        "might delete metadata information."
    )
    update(wire, (ELIGIBLE, 0, SAFE))


@pytest.mark.parametrize("version", [1, 2])
def test_unsupported_levels_and_kinds_are_refused(version: int, wire: Wire) -> None:
    for level in (0, 6, 31):
        for kind in (UPGRADE, SAFE, UNSAFE):
            assert refused(wire, (METADATA, level, kind)) == (
                f"Invalid update version {level} for feature {METADATA}. Local controller 1 only supports versions 7-30"
            )
    for kind in (0, 4):
        assert refused(wire, (METADATA, OLDEST, kind)) == (
            f"Invalid update version 7 for feature {METADATA}. The controller does not support the given upgrade type."
        )
    for kind in (UPGRADE, SAFE, UNSAFE):
        same = answer(wire, (METADATA, OLDEST, kind), version=version)
        assert (same.error_code, same.error_message) == (NONE, None)
        results = [(each.feature, each.error_code, each.error_message) for each in same.results]
        assert results == ([(METADATA, NONE, "NONE")] if version == 1 else [])


@pytest.mark.jvm
def test_downgrades_with_kafkas_tool(target: Any, wire: Wire) -> None:
    driver = Driver(CLIENTS["java"], target.bootstrap)

    def features(*words: str, status: int = 0) -> str:
        args = ["--bootstrap-server", target.bootstrap, *words]
        done = driver.call("tool", name="org.apache.kafka.tools.FeatureCommand", args=args, stdin="")
        assert done["status"] == status, done
        return str(done["stdout"] + done["stderr"]).strip()

    try:
        assert features("upgrade", "--metadata", "3.9").endswith("metadata.version was upgraded to 21.")
        wait_for(lambda: levels(wire) == {METADATA: 21}, "the new level")
        assert features("downgrade", "--metadata", "3.8").endswith("metadata.version was downgraded to 20.")
        wait_for(lambda: levels(wire) == {METADATA: 20}, "the new level")
        tried = features("downgrade", "--release-version", "3.4", "--dry-run", status=1)
        assert "Refusing to perform the requested downgrade because it might delete metadata information." in tried
        tried = features("downgrade", "--unsafe", "--metadata", "3.4", status=1)
        assert "Unsafe metadata downgrade is not supported in this version." in tried
        others = (ELIGIBLE, "group.version", "kraft.version", "share.version", "streams.version", "transaction.version")
        expected = {METADATA: 19, **dict.fromkeys(others, 0)}
        assert features("downgrade", "--release-version", "3.7-IV4").splitlines() == [
            f"{name} was downgraded to {level}." for name, level in sorted(expected.items())
        ]
        wait_for(lambda: levels(wire) == {METADATA: 19}, "the new level")
    finally:
        driver.close()
