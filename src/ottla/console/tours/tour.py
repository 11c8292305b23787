"""The parts of a tour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.client.admin import NewTopic, create_topics
from ottla.client.producer import Gatherer, Producer
from ottla.client.routing import Client
from ottla.console.operations import raise_error
from ottla.console.sandbox import Sandbox


@dataclass
class Stage:
    """A running tour: its cluster, and the values that steps keep for later steps."""

    sandbox: Sandbox
    kept: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """A description for the reader of what happened in this step."""

    @property
    def client(self) -> Client:
        return self.sandbox.client

    def note(self, text: str) -> None:
        self.notes.append(text)

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        found = await create_topics(self.client, [NewTopic(topic, partitions, 3, named)])
        raise_error(found[topic])
        await self.sandbox.settle()

    async def produce(self, topic: str, key: str | None, value: str | None, partition: int = 0) -> int:
        """Write one record with acks=all; its offset."""
        offsets: list[int] = []
        gatherer = Gatherer(Producer(self.client), on_sent=lambda tp, count, offset: offsets.append(offset))
        now_ms = self.sandbox.source.now_ms()
        coded = None if key is None else key.encode()
        await gatherer.add((topic, partition), now_ms, coded, None if value is None else value.encode(), [])
        await gatherer.flush()
        return offsets[0]


Action = Callable[[Stage], Awaitable[None]]


class Step(NamedTuple):
    title: str
    text: str
    """Paragraphs, separated by empty lines; words in backquotes are code."""
    action: Action
    look: Sequence[dict[str, Any]] = ()
    """Live pictures next to the text, such as {"kind": "replicas", "topic": "orders"}; `learn.js` draws them."""


class Tour(NamedTuple):
    name: str
    title: str
    summary: str
    steps: Sequence[Step]


async def nothing(stage: Stage) -> None:
    """A step without an action."""
