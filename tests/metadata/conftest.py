"""A controller over an image in memory. Its records are replayed immediately, and kept for a second replay."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.config import Config
from ottla.metadata.controller import Controller
from ottla.metadata.image import MetadataImage
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored


class Counting:
    """A deterministic source of randomness: ids count up, and the first choice is taken."""

    def __init__(self) -> None:
        self.ids = 0

    def randbelow(self, limit: int) -> int:
        return 0

    def randbytes(self, count: int) -> bytes:
        return bytes(count)

    def uuid(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")


class World:
    """Brokers, a controller, and the log of everything it wrote."""

    def __init__(self, brokers: Sequence[int], settings: dict[str, object]) -> None:
        self.image = MetadataImage()
        self.config = Config.load(overrides={"node.id": 1, **settings}, preset="kafka")
        self.written: list[Message] = []
        self.chance = Counting()
        self.controller = Controller(
            self.image, self, lambda: self.config, self.chance, lambda broker: broker.to_bytes(16, "big")
        )
        self.append([stored.RegisterBrokerRecord(broker_id=broker, fenced=False) for broker in brokers])

    def append(self, records: Sequence[Message]) -> None:
        for record in records:
            self.image.replay(record, len(self.written))
            self.written.append(record)

    def replayed(self) -> MetadataImage:
        """The image that a restart would have."""
        image = MetadataImage()
        for offset, record in enumerate(self.written):
            image.replay(record, offset)
        return image

    def state(self, image: MetadataImage | None = None) -> dict[str, Any]:
        image = image if image is not None else self.image
        names = ("topics", "configs", "features", "brokers", "quotas", "credentials", "acls", "next_producer_id")
        return {name: getattr(image, name) for name in names}


@pytest.fixture
def make_world() -> Callable[..., World]:
    def make(*brokers: int, **settings: object) -> World:
        return World(brokers or (1,), {key.replace("_", "."): value for key, value in settings.items()})

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
