"""The order of partitions in the answers about shared records."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.metadata.java_hash_order import partition_hash, scala_map, scala_set, uuid_hash
from ottla.server.api import RequestContext
from ottla.server.share.sessions import Place

_NO_NAME = ""
"""Has the hash of the missing name that Kafka uses for an unknown topic."""


def in_answers_order(ctx: RequestContext, places: Iterable[Place]) -> list[Place]:
    """In Kafka's order, which collects the results of partitions in one Scala map and copies it into another."""
    topics = ctx.services.metadata.topics_by_id

    def hash_of(place: Place) -> int:
        topic = topics.get(place[0])
        name = _NO_NAME if topic is None else topic.name
        return 31 * (31 + uuid_hash(place[0])) + partition_hash((name, place[1])) & 0xFFFFFFFF

    return scala_set(scala_map(places, hash_of), hash_of)


def by_topic(places: Iterable[Place]) -> dict[bytes, list[Place]]:
    """One entry per topic, at the position of its first partition."""
    found: dict[bytes, list[Place]] = {}
    for place in places:
        found.setdefault(place[0], []).append(place)
    return found
