"""Helpers for the answers of several families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.answers import Answer, attempt, then
from ottla.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from ottla.metadata.image import MetadataImage

ResponseT = TypeVar("ResponseT")


def own_message(error: KafkaError) -> str | None:
    """The message of an error if it contains more than its code; otherwise null, as in Kafka."""
    return None if error.message == error.default_message else error.message


class Unknown:
    """The unknown topics and partitions of a request about offsets: Kafka answers them itself, before the
    coordinator's part of the answer."""

    __slots__ = ("_by_id", "_partition", "_topic", "topics")

    def __init__(self, topic: type[Any], partition: type[Any], *, by_id: bool = False) -> None:
        self._topic = topic
        self._partition = partition
        self._by_id = by_id
        self.topics: dict[str | bytes, Any] = {}

    def set_apart(self, image: MetadataImage, topics: list[Any]) -> list[Any]:
        """The topics and partitions that exist; a topic without partitions gets no answer."""
        known = []
        for topic in topics:
            found = image.topics_by_id.get(topic.topic_id) if self._by_id else image.topics.get(topic.name)
            if found is None:
                error = UnknownTopicId if self._by_id else UnknownTopicOrPartition
                self._add(topic, topic.partitions, error.code)
                continue
            partitions = found.partitions
            missing = [entry for entry in topic.partitions if entry.partition_index not in partitions]
            if missing:
                self._add(topic, missing, UnknownTopicOrPartition.code)
                topic.partitions = [entry for entry in topic.partitions if entry.partition_index in partitions]
            if topic.partitions:
                known.append(topic)
        return known

    def _key(self, topic: Any) -> str | bytes:
        found: str | bytes = topic.topic_id if self._by_id else topic.name
        return found

    def _add(self, topic: Any, partitions: list[Any], code: int) -> None:
        answer = self.topics.get(self._key(topic))
        if answer is None:
            more = {"topic_id": topic.topic_id} if self._by_id else {}
            answer = self.topics[self._key(topic)] = self._topic(name=topic.name, partitions=[], **more)
        answer.partitions += [
            self._partition(partition_index=partition.partition_index, error_code=code) for partition in partitions
        ]

    def beside(
        self, call: Callable[[], Answer[ResponseT]], refuse: Callable[[KafkaError], ResponseT]
    ) -> Answer[ResponseT]:
        """The answer of `call`, or its error, together with the unknown parts."""
        return then(attempt(call, refuse), self._merged)

    def _merged(self, response: ResponseT) -> ResponseT:
        if not self.topics:
            return response  # unchanged: a topic that occurs twice is answered twice
        answered: Any = response
        for topic in answered.topics:
            answer = self.topics.setdefault(self._key(topic), topic)
            if answer is not topic:
                answer.partitions += topic.partitions
        answered.topics = list(self.topics.values())
        return response
