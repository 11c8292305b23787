"""The protocol's numbers have the names and values that another client library knows."""

from __future__ import annotations

import re
import warnings
from enum import IntEnum

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    from kafka import admin

from ottla import enums
from ottla.wire.messages import API_NAMES

PAIRS = [
    (enums.ResourceType, admin.ResourceType),
    (enums.AclOperation, admin.ACLOperation),
    (enums.PatternType, admin.ACLResourcePatternType),
    (enums.AclPermissionType, admin.ACLPermissionType),
    (enums.ConfigResourceType, admin.ConfigResourceType),
    (enums.AlterConfigOp, admin.AlterConfigOp),
    (enums.ConfigSource, admin.ConfigSourceType),
    (enums.ConfigType, admin.ConfigType),
    (enums.FeatureUpgradeType, admin.UpdateFeatureType),
    (enums.ScramMechanism, admin.ScramMechanism),
    (enums.OffsetTimestamp, admin.OffsetSpec),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_numbers_are_those_of_kafka_python(ours: type[IntEnum], theirs: type[IntEnum]) -> None:
    known = {member.name: int(member) for member in theirs}
    assert known.items() <= {member.name: int(member) for member in ours}.items()


def test_an_api_has_its_name_in_capitals() -> None:
    for key, name in API_NAMES.items():
        assert enums.ApiKey(key).name == re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
