"""The image is a fold: a second replay of the same records gives the same state."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.enums import AlterConfigOp
from ottla.errors import KafkaError
from ottla.metadata.acls import AclFilter, create_acls, delete_acls
from ottla.metadata.configs import ConfigChange, ConfigChanges
from ottla.metadata.controller import NewTopic
from ottla.metadata.image import Acl
from ottla.metadata.quotas import QuotaAlteration, alter_quotas
from ottla.metadata.scram import NewCredential, alter_credentials
from ottla.wire.stored import decode_metadata_record, encode_metadata_record
from ottla.wire.stored import metadata as stored

NAMES = st.sampled_from(["a", "b.c", "b_c", "d"])

OPERATIONS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("delete"), NAMES, st.just(0)),
    st.tuples(st.just("grow"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("config"), NAMES, st.sampled_from([None, "1", "2"])),
    st.tuples(st.just("broker"), st.sampled_from(["", "1"]), st.sampled_from([None, "1000", "2000"])),
    st.tuples(st.just("quota"), NAMES, st.sampled_from([None, 1.0, 2.0])),
    st.tuples(st.just("scram"), NAMES, st.sampled_from([None, 4096])),
    st.tuples(st.just("acl"), NAMES, st.booleans()),
    st.tuples(st.just("ids"), st.just(""), st.just(0)),
)


def step(world: Any, kind: str, name: str, value: Any) -> None:
    image = world.image
    if kind == "create":
        world.controller.create_topics([NewTopic(name, value)])
    elif kind == "delete":
        world.controller.delete_topics([image.topics[name]] if name in image.topics else [])
    elif kind == "grow":
        world.controller.create_partitions([(name, value, None)])
    elif kind in ("config", "broker"):
        change = ConfigChange(
            "retention.ms" if kind == "config" else "log.retention.ms",
            value,
            AlterConfigOp.DELETE if value is None else AlterConfigOp.SET,
        )
        resource = (2 if kind == "config" else 4, name)
        world.append(ConfigChanges(image, world.config, 1).increment(resource, [change]))
    elif kind == "quota":
        world.append(alter_quotas(image, [QuotaAlteration((("user", name),), [("producer_byte_rate", value)])])[0])
    elif kind == "scram":
        deletions = [(name, 1)] if value is None else []
        upsertions = [] if value is None else [NewCredential(name, 1, value, b"s", b"p")]
        world.append(alter_credentials(image, deletions, upsertions)[0])
    elif kind == "acl":
        acl = Acl(2, name, 3, "User:u", "*", 3, 3)
        if value:
            world.append(create_acls(image, [acl], world.chance.uuid)[0])
        else:
            world.append(delete_acls(image, [AclFilter(*acl)])[0])
    else:
        world.controller.allocate_producer_ids(1, 0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, max_size=25))
def test_a_restart_is_the_same_replay(make_world: Any, operations: list[tuple[str, str, Any]]) -> None:
    world = make_world(1)
    for operation in operations:
        before = world.state(world.replayed())
        written = len(world.written)
        try:
            step(world, *operation)
        except KafkaError:
            assert len(world.written) == written, "a refused operation writes nothing"
            assert world.state() == before
        assert world.state() == world.state(world.replayed())
    for record in world.written:
        decoded, _ = decode_metadata_record(encode_metadata_record(record, record.STABLE_VERSION))
        assert decoded == record, "the records survive encoding to the log"


def test_electing_the_same_leader_starts_a_new_epoch(world: Any) -> None:
    world.controller.create_topics([NewTopic("t")])
    topic = world.image.topics["t"]
    for fields, epochs in (({"leader": 1}, (1, 1)), ({"isr": [1]}, (1, 2)), ({"leader": -1}, (2, 3))):
        world.append([stored.PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, **fields)])
        assert (topic.partitions[0].leader_epoch, topic.partitions[0].partition_epoch) == epochs


def test_the_version_shows_whether_the_image_changed(world: Any) -> None:
    before = world.image.version
    world.append([stored.NoOpRecord()])
    assert world.image.version == before, "nothing is kept of a no-op"
    world.controller.create_topics([NewTopic("t")])
    assert world.image.version > before
