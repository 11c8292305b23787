"""The compiler on small messages with handwritten bytes."""

from __future__ import annotations

import linecache
import traceback
from typing import Any

import pytest

from ottla.wire.primitives import MalformedMessage
from ottla.wire.schema import (
    UNCOMPILED_INSTANCES,
    Message,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    octets,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from ottla.wire.schema import records as record_data


class Numbers(Message, versions="0-1", flexible="1+"):
    a: int = int8()
    b: int = int16()
    c: int = uint16()
    d: int = int32(default=-1)
    e: int = uint32()
    f: int = int64()
    g: float = float64()
    h: bool = boolean(default=True)
    i: bytes = uuid()


class Strings(Message, versions="0-2", flexible="2+"):
    name: str = string()
    note: str | None = string("1+", nullable="1+", default=None)
    data: bytes = octets()
    maybe: bytes | None = octets("1+", nullable="2+", default=None)


class Orders(Message, key=999, versions="0-3", flexible="2+", unstable="3+"):
    """Nested arrays, structs and tags."""

    class Line(Struct):
        item: str = string()
        counts: list[int] = array(int32)

    class Address(Struct):
        street: str = string()
        number: int = int16(default=-1)

    class Order(Struct):
        number: int = int32()
        lines: list[Orders.Line] | None = array("Line", nullable="1+")
        address: Orders.Address | None = struct("Address", "1+", nullable="1+", default=None)
        origin: Orders.Address = struct("Address", "2+")
        hint: Orders.Address | None = struct("Address", "2+", tag=1)
        flag: int = int32("2+", default=7, tag=0)
        names: list[str] = array(string, "3+", tag=200)

    orders: list[Order] = array(Order)
    payload: Any = record_data("1+", nullable="1+")


NUMBERS = Numbers(a=-1, b=-2, c=65535, d=3, e=2**32 - 1, f=-(2**63), g=1.5, h=False, i=bytes(range(16)))
NUMBER_BYTES = bytes.fromhex("ff fffe ffff 00000003 ffffffff 8000000000000000 3ff8000000000000 00") + bytes(range(16))


def test_fixed_width_fields() -> None:
    assert NUMBERS.encode(0) == NUMBER_BYTES
    assert NUMBERS.encode(1) == NUMBER_BYTES + b"\x00"
    assert Numbers.decode(NUMBER_BYTES, 0) == NUMBERS
    assert Numbers.decode(NUMBER_BYTES + b"\x00", 1) == NUMBERS


def test_a_run_of_fixed_width_fields_is_one_call() -> None:
    Numbers.decoder(1)
    (source,) = [lines for name, (_, _, lines, _) in _cached_sources() if name == "<ottla.wire Numbers v1 decoder>"]
    assert sum("unpack_" in line for line in source) == 1


def _cached_sources() -> list[tuple[str, Any]]:
    return [(name, entry) for name, entry in linecache.cache.items() if len(entry) == 4]


def test_strings_and_octets() -> None:
    message = Strings(name="é", note=None, data=b"\x01", maybe=b"")
    assert message.encode(0) == b"\x00\x02\xc3\xa9" + b"\x00\x00\x00\x01\x01"
    assert message.encode(1) == b"\x00\x02\xc3\xa9" + b"\xff\xff" + b"\x00\x00\x00\x01\x01" + b"\x00\x00\x00\x00"
    assert message.encode(2) == b"\x03\xc3\xa9" + b"\x00" + b"\x02\x01" + b"\x01" + b"\x00"
    for version in (1, 2):
        assert Strings.decode(message.encode(version), version) == message
    assert Strings.decode(message.encode(0), 0) == Strings(name="é", data=b"\x01")


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16382, 16383, 16384, 32767])
def test_lengths_around_a_varint_byte(length: int) -> None:
    message = Strings(name="x" * length, note="y" * length, data=b"z" * length, maybe=b"w" * length)
    for version in (1, 2):
        assert Strings.decode(message.encode(version), version) == message


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 300, 20000])
def test_counts_around_a_varint_byte(count: int) -> None:
    line = Orders.Line(item="i", counts=list(range(count)))
    message = Orders(orders=[Orders.Order(lines=[line] * min(count, 300))])
    for version in (1, 2):
        if count <= 300:
            assert Orders.decode(message.encode(version), version) == message
    single = Orders(orders=[Orders.Order(lines=[line])])
    for version in (1, 2):
        assert Orders.decode(single.encode(version), version) == single


def test_nested_messages_by_hand() -> None:
    order = Orders.Order(
        number=1,
        lines=[Orders.Line(item="a", counts=[5])],
        address=Orders.Address(street="s", number=2),
        origin=Orders.Address(street="o", number=3),
        hint=Orders.Address(street="h", number=4),
        flag=8,
        names=["n"],
    )
    message = Orders(orders=[order], payload=b"rec")
    line = b"\x00\x01a" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x05"
    assert message.encode(0) == b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01" + line
    flexible_line = b"\x02a" + b"\x02" + b"\x00\x00\x00\x05" + b"\x00"
    body = b"\x00\x00\x00\x01" + b"\x02" + flexible_line + b"\x01\x02s\x00\x02\x00" + b"\x02o\x00\x03\x00"
    tags = b"\x00\x04\x00\x00\x00\x08" + b"\x01\x05\x02h\x00\x04\x00"
    assert message.encode(2) == b"\x02" + body + b"\x02" + tags + b"\x04rec" + b"\x00"
    wide_tag = b"\xc8\x01\x03\x02\x02n"  # tag 200 takes two bytes
    assert message.encode(3) == b"\x02" + body + b"\x03" + tags + wide_tag + b"\x04rec" + b"\x00"
    assert Orders.decode(message.encode(3), 3) == message


def test_tags_with_their_defaults_are_not_sent() -> None:
    plain = Orders(orders=[Orders.Order(number=1)])
    explicit = Orders(orders=[Orders.Order(number=1, flag=7, hint=Orders.Address(), names=[])])
    assert plain.encode(3) == explicit.encode(3)
    assert Orders.decode(plain.encode(3), 3).orders[0].hint is None


def test_a_nullable_tagged_struct_sends_null() -> None:
    class Holder(Message, versions="0", flexible="0+"):
        class Inner(Struct):
            size: int = int32()

        inner: Inner | None = struct(Inner, nullable="0+", tag=0)

    assert Holder().inner == Holder.Inner()
    assert Holder().encode(0) == b"\x00"
    assert Holder(inner=None).encode(0) == b"\x01\x00\x01\x00"
    assert Holder(inner=Holder.Inner(size=1)).encode(0) == b"\x01\x00\x06\x01\x00\x00\x00\x01\x00"
    for inner in (None, Holder.Inner(), Holder.Inner(size=1)):
        assert Holder.decode(Holder(inner=inner).encode(0), 0).inner == inner


def test_unknown_tags_are_skipped() -> None:
    message = Strings(name="n", data=b"")
    known = message.encode(2)
    assert known[-1:] == b"\x00"
    unknown = known[:-1] + b"\x02" + b"\x05\x03abc" + b"\xff\x01\x80\x01" + b"z" * 128
    assert Strings.decode(unknown, 2) == message
    # Also where the message has tags of its own.
    orders = Orders(orders=[Orders.Order(number=1)]).encode(2)
    head, tail = orders[:-3], orders[-3:]
    assert tail == b"\x00\x00\x00"
    assert Orders.decode(head + b"\x01\x63\x02xx" + b"\x00\x00", 2).orders[0].number == 1


def test_a_field_outside_its_versions_is_not_encoded() -> None:
    message = Orders(orders=[Orders.Order(number=1, flag=9, address=Orders.Address(street="s"))], payload=b"x")
    (order,) = Orders.decode(message.encode(0), 0).orders
    assert (order.flag, order.address, order.origin) == (7, None, Orders.Address())
    assert Orders.decode(message.encode(0), 0).payload is None


def test_records_pass_through_by_reference() -> None:
    class Region:
        """Like a part of a file: it has a length, but no bytes."""

        def __len__(self) -> int:
            return 1000

    region = Region()
    for version, prefix in ((1, b"\x00\x00\x03\xe8"), (2, b"\xe9\x07")):
        parts: list[Any] = []
        Orders.encoder(version)(Orders(payload=region), parts)
        place = next(index for index, part in enumerate(parts) if part is region)
        assert b"".join(parts[:place]).endswith(prefix)


def test_decoded_records_are_a_view_of_the_frame() -> None:
    frame = bytearray(Orders(payload=b"abc").encode(1))
    payload = Orders.decode(frame, 1).payload
    assert isinstance(payload, memoryview)
    frame[-1:] = b"z"
    assert payload == b"abz"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_decodes(kind: Any) -> None:
    message = Strings(name="n", note="m", data=b"d")
    decoded = Strings.decode(kind(message.encode(2)), 2)
    assert decoded == message
    assert type(decoded.data) is bytes


def test_a_decoder_starts_anywhere() -> None:
    encoded = Strings(name="n").encode(2)
    assert Strings.decoder(2)(b"--" + encoded + b"--", 2) == (Strings(name="n"), 2 + len(encoded))


@pytest.mark.parametrize("made_before", [0, UNCOMPILED_INSTANCES])
def test_constructor(made_before: int) -> None:
    for cls in (Numbers, Orders, Orders.Order):
        for _ in range(made_before):
            assert cls() == cls()
    assert Numbers().d == -1
    assert Orders().orders == []
    assert Orders().orders is not Orders().orders
    assert Orders.Order().origin is not Orders.Order().origin
    with pytest.raises(TypeError, match="nonsense"):
        Orders(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Orders([])  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Orders().nonsense = 1  # type: ignore[attr-defined]


def test_equality() -> None:
    assert Orders.Line(item="a") == Orders.Line(item="a")
    assert Orders.Line(item="a") != Orders.Line(item="b")
    assert Orders.Line() != Strings()
    with pytest.raises(TypeError):
        hash(Orders.Line())


def test_repr_abbreviates_bytes() -> None:
    assert repr(Orders.Line(item="a", counts=[1])) == "Orders.Line(item='a', counts=[1])"
    assert repr(Orders(payload=b"x" * 5)) == "Orders(orders=[], payload=<5 bytes>)"
    assert "data=<100 bytes>" in repr(Strings(data=bytes(100)))
    assert "data=b'abc'" in repr(Strings(data=b"abc"))


def test_class_facts() -> None:
    assert (Orders.API_KEY, Orders.MIN_VERSION, Orders.MAX_VERSION, Orders.STABLE_VERSION) == (999, 0, 3, 2)
    assert [Orders.is_flexible(version) for version in range(4)] == [False, False, True, True]
    assert Numbers.STABLE_VERSION == Numbers.MAX_VERSION == 1


@pytest.mark.parametrize("version", [-1, 4])
def test_unknown_versions(version: int) -> None:
    with pytest.raises(ValueError, match="Orders has versions 0 to 3"):
        Orders.decode(b"", version)
    with pytest.raises(ValueError, match="Orders has versions 0 to 3"):
        Orders().encode(version)


def test_functions_are_compiled_once() -> None:
    assert Orders.decoder(3) is Orders.decoder(3)
    assert Orders.encoder(3) is Orders.encoder(3)


def test_a_traceback_shows_the_generated_source() -> None:
    with pytest.raises(AttributeError) as caught:
        Strings.encoder(0)(Strings(name=None), [])  # type: ignore[arg-type]
    assert "o.name.encode()" in "".join(traceback.format_exception(caught.value))


def test_every_negative_length_is_null_in_nullable_fields() -> None:
    data = b"\x00\x00" + b"\xff\xfe" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x00"
    assert Strings.decode(data, 1) == Strings(name="", note=None, data=b"", maybe=b"")


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x82", "\ufffd"),  # the beginning of a character
        (b"\xc0\x80", "\ufffd\ufffd"),  # a longer form than needed
        (b"\xed\xa0\x80", "\ufffd"),  # half a surrogate pair, which Java replaces as one
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0x", "\ufffdx"),
        (b"\xf5\x80", "\ufffd\ufffd"),
    ],
)
def test_requests_replace_invalid_utf8(sent: bytes, read: str) -> None:
    class AskRequest(Message, versions="0-1", flexible="1+"):
        name: str = string("0+")

    assert AskRequest.decode(len(sent).to_bytes(2, "big") + sent, 0).name == read
    assert AskRequest.decode(bytes((len(sent) + 1,)) + sent + b"\x00", 1).name == read


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, b"\xff\xff" + b"\x00\x00\x00\x00"),  # null where it is not allowed
        (0, b"\xff\xfe" + b"\x00\x00\x00\x00"),  # a length of -2
        (0, b"\x00\x01\xff" + b"\x00\x00\x00\x00"),  # not UTF-8
        (0, b"\x00\x03\xed\xa0\x80" + b"\x00\x00\x00\x00"),  # a lone surrogate
        (0, b"\x00\x05abc"),
        (2, b"\x00" + b"\x00" + b"\x01" + b"\x00" + b"\x00"),  # null where it is not allowed
        (2, b"\x80\x80\x80\x80\x80\x01"),  # a varint of six bytes
        (2, b"\xff\xff\xff\xff\x0f"),  # a huge length
        (2, b"\x01\x00\x01\x00\x01\x00\x05ab"),  # a tag longer than the message
        (2, b"\x01\x00\x01\x00\x80\x80\x80\x80\x80\x01"),  # a varint of six bytes as the count of tags
        (2, b"\x01\x00\x01\x00\x03\x00\x00"),  # more tags than bytes
    ],
)
def test_malformed_strings(version: int, data: bytes) -> None:
    with pytest.raises(MalformedMessage, match=r"Strings|tagged|varint"):
        Strings.decode(data, version)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, b"\xff\xff\xff\xff"),
        (0, b"\x7f\xff\xff\xff"),
        (0, b"\x80\x00\x00\x00"),
        (1, b"\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xfe"),
        (2, b"\x00"),
        (2, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_malformed_counts(version: int, data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="Orders"):
        Orders.decode(data, version)


def test_a_known_tag_has_to_be_as_long_as_it_says() -> None:
    good = Orders(orders=[Orders.Order(number=1, flag=9)]).encode(2)
    assert b"\x01\x00\x04\x00\x00\x00\x09" in good
    for wrong in (b"\x01\x00\x05\x00\x00\x00\x09", b"\x01\x00\x03\x00\x00\x00\x09"):
        with pytest.raises(MalformedMessage, match="as long as it says"):
            Orders.decode(good.replace(b"\x01\x00\x04\x00\x00\x00\x09", wrong), 2)


def test_a_padded_varint_is_fine() -> None:
    """Kafka accepts lengths with unnecessary zero groups, up to five bytes; some clients reserve room this way."""
    assert Strings.decode(b"\x82\x80\x80\x80\x00n" + b"\x00" + b"\x01" + b"\x00" + b"\x00", 2).name == "n"


def test_trailing_bytes() -> None:
    with pytest.raises(MalformedMessage, match="Strings v2 leaves 1 bytes unread"):
        Strings.decode(Strings().encode(2) + b"\x00", 2)
