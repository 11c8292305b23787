"""Every message and version of kio, byte for byte in both directions.

kio must read the same values from Ottla's bytes, and encode them to the same bytes. Ottla must read the same values
from those.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema, resolve_name
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.wire import messages, stored
from ottla.wire.messages import REQUESTS, RESPONSES
from ottla.wire.schema import Message

SAMPLES_PER_VERSION = 3

DATA = {
    "consumer_protocol_assignment": messages.ConsumerProtocolAssignment,
    "consumer_protocol_subscription": messages.ConsumerProtocolSubscription,
    "control_record_type_schema": stored.ControlRecordTypeSchema,
    "default_principal_data": messages.DefaultPrincipalData,
    "end_txn_marker": stored.EndTxnMarker,
    "k_raft_version_record": stored.KRaftVersionRecord,
    "leader_change_message": stored.LeaderChangeMessage,
    "snapshot_footer_record": stored.SnapshotFooterRecord,
    "snapshot_header_record": stored.SnapshotHeaderRecord,
    "voters_record": stored.VotersRecord,
}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        since = value - datetime.datetime.fromtimestamp(0, datetime.UTC)
        return round(since / datetime.timedelta(milliseconds=1))
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


def _items(value: Any) -> list[Any]:
    return [getattr(value, field.name) for field in dataclasses.fields(value)]


def _check(ours: type[Message], version: int, theirs: Any, samples: Any, same: Callable[..., None]) -> None:
    read, write = entity_reader(theirs), entity_writer(theirs)
    for salt in range(SAMPLES_PER_VERSION):
        message = samples.make(ours, version, samples.random(ours, version, salt), tame=True)
        encoded = message.encode(version)
        value, size = read(encoded, 0)
        assert size == len(encoded)
        same(message, value, _plain, _items, version)
        out = io.BytesIO()
        write(out, value)
        assert out.getvalue() == encoded
        assert ours.decode(out.getvalue(), version) == ours.decode(encoded, version)


@pytest.mark.parametrize("api_key", sorted(set(api_key_map) & set(REQUESTS)))
def test_requests_and_responses(api_key: int, samples: Any, assert_same_values: Callable[..., None]) -> None:
    versions = sorted(schema_name_map[api_key_map[api_key]])
    for version in versions:
        _check(REQUESTS[api_key], version, load_request_schema(api_key, version), samples, assert_same_values)
        _check(RESPONSES[api_key], version, load_response_schema(api_key, version), samples, assert_same_values)


@pytest.mark.parametrize("name", sorted(DATA))
def test_data(name: str, samples: Any, assert_same_values: Callable[..., None]) -> None:
    for version, paths in sorted(schema_name_map[name].items()):
        theirs = resolve_name(paths[EntityType.data])
        _check(DATA[name], version, theirs, samples, assert_same_values)


def test_kio_knows_most_of_the_apis() -> None:
    assert set(api_key_map) <= set(REQUESTS)
    assert len(api_key_map) > 80
