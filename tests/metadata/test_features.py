"""Updates of finalized features."""

from typing import Any

import pytest

from ottla.enums import ConfigResourceType
from ottla.errors import InvalidUpdateVersion
from ottla.metadata.features import FORMATTED_FEATURES, FeatureUpdate, plan_updates
from ottla.wire.stored import metadata as stored

PREFIX = "The update failed for all features since the following feature had an error: "
FOR = "Invalid update version {} for feature {}. "


@pytest.fixture
def formatted(world: Any) -> Any:
    world.append(
        [stored.FeatureLevelRecord(name=name, feature_level=level) for name, level in FORMATTED_FEATURES.items()]
    )
    return world


def update(world: Any, *updates: tuple[str, int, int]) -> None:
    world.append(plan_updates(world.image, 1, [FeatureUpdate(*wanted) for wanted in updates], 2))


REFUSED = [
    (("nope", 1, 1), FOR.format(1, "nope") + "Local controller 1 does not support this feature."),
    (("share.version", -1, 1), FOR.format(-1, "share.version") + "A feature version cannot be less than 0."),
    (("share.version", 9, 1), FOR.format(9, "share.version") + "Local controller 1 only supports versions 0-1"),
    (
        ("share.version", 0, 1),
        FOR.format(0, "share.version")
        + "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
        "downgrade.",
    ),
    (
        ("share.version", 1, 0),
        FOR.format(1, "share.version") + "The controller does not support the given upgrade type.",
    ),
    (
        ("metadata.version", 29, 2),
        "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade because it "
        "might delete metadata information.",
    ),
    (
        ("metadata.version", 7, 3),
        "Unsupported metadata.version downgrade from 30 to 7. Unsafe metadata downgrade is not supported in this "
        "version.",
    ),
    (
        ("metadata.version", 6, 2),
        FOR.format(6, "metadata.version") + "Local controller 1 only supports versions 7-30",
    ),
    (
        ("kraft.version", 2, 1),
        FOR.format(2, "kraft.version") + "Local controller 1 only supports versions 0-1",
    ),
]


@pytest.mark.parametrize(("wanted", "reason"), REFUSED)
def test_one_refused_update_refuses_all(formatted: Any, wanted: tuple[str, int, int], reason: str) -> None:
    before = len(formatted.written)
    with pytest.raises(InvalidUpdateVersion) as caught:
        update(formatted, ("streams.version", 0, 2), wanted)
    assert caught.value.message == PREFIX + reason
    assert len(formatted.written) == before


def test_levels_go_down_and_up(formatted: Any) -> None:
    update(formatted, ("share.version", 0, 2))
    assert "share.version" not in formatted.image.features
    with pytest.raises(InvalidUpdateVersion, match="Can't downgrade to a newer version"):
        update(formatted, ("share.version", 1, 2))
    update(formatted, ("share.version", 1, 1), ("metadata.version", 30, 1))
    assert formatted.image.features == FORMATTED_FEATURES


def test_eligible_leaders_set_one_min_insync_replicas(formatted: Any) -> None:
    update(formatted, ("eligible.leader.replicas.version", 0, 2))
    name = "min.insync.replicas"
    formatted.append(
        [stored.ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name="1", name=name, value="3")]
    )
    update(formatted, ("eligible.leader.replicas.version", 1, 1))
    assert formatted.image.broker_configs(1) == ({name: "2"}, {})
