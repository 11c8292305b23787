"""The interpreting codec does the same as the compiled functions: the same bytes, objects and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.wire import messages, stored
from ottla.wire.interpreting import interpreting_decoder, interpreting_encoder
from ottla.wire.messages import EMBEDDED, REQUESTS, RESPONSES, MetadataResponse
from ottla.wire.primitives import MalformedMessage
from ottla.wire.schema import WALKS, Message, int32, string

ALL: dict[str, type[Message]] = {
    cls.__name__: cls
    for cls in [
        *REQUESTS.values(),
        *RESPONSES.values(),
        *(getattr(messages, name) for name in EMBEDDED),
        *stored._messages(*stored.MODULES),
    ]
}
CHANGES = 8


def encoded_by(encoder: Any, message: Message) -> bytes:
    parts: list[Any] = []
    encoder(message, parts)
    return b"".join(parts)


def outcome(decoder: Any, data: bytes) -> Any:
    try:
        return decoder(b"-" + data, 1)
    except MalformedMessage as error:
        return str(error)


@pytest.mark.parametrize("name", sorted(ALL))
def test_compiled_and_interpreted_codecs_agree(name: str, samples: Any) -> None:
    cls = ALL[name]
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        walked, compiled = interpreting_decoder(cls, version), cls.decoder(version)
        for salt in range(2):
            chance = samples.random(cls, version, salt)
            message = samples.make(cls, version, chance) if salt else cls()
            encoded = encoded_by(cls.encoder(version), message)
            assert encoded_by(interpreting_encoder(cls, version), message) == encoded
            assert outcome(walked, encoded) == outcome(compiled, encoded)
            for _ in range(CHANGES if encoded else 0):
                changed = bytearray(encoded)
                changed[chance.randrange(len(encoded))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
                cut = bytes(changed[: chance.randint(1, len(changed))]) if chance.random() < 0.5 else bytes(changed)
                assert outcome(walked, cut) == outcome(compiled, cut)


def test_ready_made_items() -> None:
    topic = MetadataResponse.MetadataResponseTopic(error_code=3, name="t")
    plain = MetadataResponse(topics=[topic])
    encoder = interpreting_encoder(MetadataResponse, 9)
    for _ in range(WALKS + 2):
        ready = MetadataResponse(topics=[topic.encode_item(9)])
        assert encoded_by(encoder, ready) == encoded_by(encoder, plain) == plain.encode(9)


def test_frequent_messages_get_compiled_codecs() -> None:
    class Ping(Message, versions="0-4", flexible="4+"):
        """A message that was not used before."""

        name: str = string()
        number: int = int32()

    message = Ping(name="n", number=7)
    for number in range(WALKS + 2):
        encoded = message.encode(4)
        assert Ping.decode(encoded, 4) == message
        assert (4 in Ping._encoders) is (4 in Ping._decoders) is (number >= WALKS)
    assert Ping.early_encoder(4) is Ping.encoder(4)
    with pytest.raises(ValueError, match="versions 0 to 4, not 5"):
        message.encode(5)
