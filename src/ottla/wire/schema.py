"""Messages as class bodies: all versions of a message in one place, native annotations, compiled on use.

    class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

A version range is "3+", "0-12" or "5". A field outside its range is left out when encoding and has its default after
decoding. Instances are slotted; constructors take keywords. Creating a class compiles nothing: `decoding` and
`encoding` generate one flat function per (message, version) after the first few uses.

Structs are nested in the message that they belong to. A reference to a sibling is a string (`array("FetchPartition")`),
because Python's class scopes do not nest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias, dataclass_transform

from ottla.lazy_imports import lazy

from .primitives import ZERO_UUID, Buffer, MalformedMessage

if TYPE_CHECKING:
    from ottla.wire import construction, decoding, encoding, interpreting
else:
    construction = lazy("ottla.wire.construction")
    decoding = lazy("ottla.wire.decoding")
    encoding = lazy("ottla.wire.encoding")
    interpreting = lazy("ottla.wire.interpreting")

__all__ = [
    "Message",
    "Struct",
    "array",
    "boolean",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "octets",
    "records",
    "string",
    "struct",
    "uint16",
    "uint32",
    "uuid",
]

Decoder: TypeAlias = Callable[..., tuple[Any, int]]
"""`decode(buffer, position)`. The decoder of a request also takes the maximum number of elements in all its arrays."""
Encoder: TypeAlias = Callable[[Any, list[Any]], None]
Versions: TypeAlias = tuple[int, int]

OPEN_END: Final = 0x7FFF
NEVER: Final[Versions] = (OPEN_END, -1)
ALWAYS: Final[Versions] = (0, OPEN_END)

# Kinds of fields. The fixed-width ones map to the struct module's format characters.
FIXED: Final[dict[str, str]] = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "boolean": "?",
    "uuid": "16s",
}
IMPLIED_DEFAULTS: Final[dict[str, Any]] = {
    "boolean": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "octets": b"",
}


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final[Any] = _Unset()


@cache  # a few dozen texts occur in some thousand places
def parse_versions(text: str | None) -> Versions:
    if text is None or text == "none":
        return NEVER
    if text == "0+":
        return ALWAYS
    low, dash, high = text.partition("-")
    if dash:
        return int(low), int(high)
    if text[-1] == "+":
        return int(text[:-1]), OPEN_END
    return int(text), int(text)


class Field:
    """One field of a struct, as declared."""

    __slots__ = ("default", "item", "kind", "name", "nullable", "owner", "ready_made", "tag", "tagged", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        nullable: str | None,
        default: Any,
        tag: int | None,
        tagged: str | None,
        item: Any = None,
    ) -> None:
        self.name = ""
        self.ready_made = False
        self.owner: StructType | None = None
        self.kind = kind
        self.versions = parse_versions(versions)
        self.nullable = parse_versions(nullable)
        self.tag = tag
        # A tag without a range applies wherever the field exists.
        self.tagged = NEVER if tag is None else parse_versions(tagged) if tagged is not None else self.versions
        self.item = item
        if default is UNSET and kind not in ("array", "struct"):
            default = IMPLIED_DEFAULTS.get(kind, 0 if kind in FIXED else None)
        # An absent tagged struct is None instead of a struct of defaults: such structs (a leader hint, a diverging
        # epoch) are almost always absent, and a fetch response covers thousands of partitions. For a nullable one the
        # difference matters, because null is sent.
        if default is UNSET and kind == "struct" and tag is not None and nullable is None:
            default = None
        self.default = default

    def exists(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_nullable(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def is_tagged(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1]

    @property
    def struct(self) -> type[Struct] | None:
        """The class of a struct field or of an array's items. None for arrays of primitives."""
        if isinstance(self.item, str):
            assert self.owner is not None
            home = self.owner.OWNER or self.owner
            self.item = getattr(home, self.item)
        return self.item if isinstance(self.item, type) else None

    def fresh_default(self) -> Any:
        """The default for a new struct. Mutable defaults are created each time."""
        if self.default is not UNSET:
            return self.default
        if self.kind == "array":
            return []
        item = self.struct
        assert item is not None
        return item()

    @property
    def item_kind(self) -> str:
        """The kind of the items in an array of primitives."""
        return str(self.item.__name__)


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None, tagged: str | None = None) -> Any:
    return Field("int8", versions, None, default, tag, tagged)


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None, tagged: str | None = None) -> Any:
    return Field("int16", versions, None, default, tag, tagged)


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None, tagged: str | None = None) -> Any:
    return Field("uint16", versions, None, default, tag, tagged)


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None, tagged: str | None = None) -> Any:
    return Field("int32", versions, None, default, tag, tagged)


def uint32(versions: str = "0+", *, default: int = 0, tag: int | None = None, tagged: str | None = None) -> Any:
    return Field("uint32", versions, None, default, tag, tagged)


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None, tagged: str | None = None) -> Any:
    return Field("int64", versions, None, default, tag, tagged)


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None, tagged: str | None = None) -> Any:
    return Field("float64", versions, None, default, tag, tagged)


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None, tagged: str | None = None) -> Any:
    return Field("boolean", versions, None, default, tag, tagged)


def uuid(versions: str = "0+", *, default: bytes = ZERO_UUID, tag: int | None = None, tagged: str | None = None) -> Any:
    """16 raw bytes."""
    return Field("uuid", versions, None, default, tag, tagged)


def string(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: str | None = "",
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    return Field("string", versions, nullable, default, tag, tagged)


def octets(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: bytes | None = b"",
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    return Field("octets", versions, nullable, default, tag, tagged)


def records(versions: str = "0+", *, nullable: str | None = None) -> Any:
    """Record batches: a view of the frame after decoding. When encoding, any object with a length, passed unchanged."""
    return Field("records", versions, nullable, None, None, None)


def array(
    item: type[Struct] | Callable[..., Any] | str,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: None = UNSET,
    tag: int | None = None,
    tagged: str | None = None,
    ready_made: bool = False,
) -> Any:
    """A list of structs (`array(Topic)`, or `array("Topic")` for a sibling) or of primitives (`array(int32)`).

    `ready_made` allows items that `encode_item` has already encoded: large responses change little between requests.
    """
    field = Field("array", versions, nullable, default, tag, tagged, item)
    field.ready_made = ready_made
    return field


def struct(
    item: type[Struct] | str,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: None = UNSET,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    return Field("struct", versions, nullable, default, tag, tagged, item)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Turns the fields of a class body into slots."""

    FIELDS: tuple[Field, ...]
    OWNER: StructType | None

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> StructType:
        fields = []
        for key, value in body.items():
            if type(value) is Field:
                value.name = key
                fields.append(value)
        for field in fields:
            del body[field.name]
        body["__slots__"] = tuple(field.name for field in fields)
        body["FIELDS"] = tuple(fields)
        made = super().__new__(cls, name, bases, body, **options)
        for field in fields:
            field.owner = made
        for value in body.values():
            if isinstance(value, StructType):
                value.OWNER = made
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, body)


# How many instances of a class are created before its constructor is compiled.
UNCOMPILED_INSTANCES: Final = 100
# How often a version of a message is encoded or decoded before a function is compiled for it.
WALKS: Final = 16
# The same for a single struct, which may be long: a topic with all its partitions.
WALKS_OF_ITEMS: Final = 4
# Values longer than this are abbreviated in repr().
REPR_BYTES: Final = 32


class Struct(metaclass=StructType):
    """A group of fields; also the base of messages."""

    FIELDS: ClassVar[tuple[Field, ...]]
    OWNER: ClassVar[StructType | None] = None
    INSTANCES: ClassVar[int] = 0
    """The number of instances so far, counted until the constructor is compiled."""
    ITEM_ENCODERS: ClassVar[dict[tuple[type, int], Encoder]] = {}
    ITEM_WALKS: ClassVar[dict[tuple[type, int], int]] = {}

    def __init__(self, **values: Any) -> None:
        # Compiling a constructor takes as long as a hundred uses without it. A broker needs many classes only once or
        # twice in its life, mostly during its start.
        cls = type(self)
        count = cls.INSTANCES = cls.INSTANCES + 1
        if count > UNCOMPILED_INSTANCES:
            cls.__init__ = construction.compile_constructor(cls)  # type: ignore[method-assign]
            cls.__init__(self, **values)
            return
        for field in cls.FIELDS:
            name = field.name
            setattr(self, name, values.pop(name) if name in values else field.fresh_default())
        if values:
            raise TypeError(f"{cls.__qualname__} has no field {', '.join(values)}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def encode_item(self, version: int) -> bytes:
        """This struct alone, as encoded in its message: to be kept, and put into a `ready_made` array later."""
        cls = type(self)
        encoder = cls.ITEM_ENCODERS.get((cls, version))
        if encoder is None:
            walks = cls.ITEM_WALKS[cls, version] = cls.ITEM_WALKS.get((cls, version), 0) + 1
            if walks <= WALKS_OF_ITEMS:
                encoder = interpreting.interpreting_item_encoder(cls, version)
            else:
                encoder = cls.ITEM_ENCODERS[cls, version] = encoding.compile_item_encoder(cls, version)
        parts: list[Any] = []
        encoder(self, parts)
        return b"".join(parts)

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={_brief(getattr(self, field.name), field)}" for field in self.FIELDS)
        return f"{type(self).__qualname__}({values})"


def _brief(value: Any, field: Field) -> str:
    if field.kind == "records" and value is not None:
        return f"<{len(value)} bytes>"
    if isinstance(value, bytes) and len(value) > REPR_BYTES:
        return f"<{len(value)} bytes>"
    return repr(value)


class Message(Struct):
    """A top-level struct: a request, a response or a stored record. Subclasses define their versions."""

    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    # Below MAX_VERSION if Apache Kafka defines a version that it does not advertise yet.
    STABLE_VERSION: ClassVar[int] = 0
    FLEXIBLE: ClassVar[Versions] = NEVER
    _decoders: ClassVar[dict[int, Decoder]]
    _encoders: ClassVar[dict[int, Encoder]]
    _walks: ClassVar[dict[int, int]]
    """How often a version was encoded (~version: decoded) without a compiled function."""

    def __init_subclass__(
        cls, *, versions: str, flexible: str | None = None, key: int = -1, unstable: str | None = None
    ) -> None:
        cls.API_KEY = int(key)  # marshal, which workers use to communicate, refuses members of an enum
        cls.MIN_VERSION, cls.MAX_VERSION = parse_versions(versions)
        cls.STABLE_VERSION = cls.MAX_VERSION if unstable is None else parse_versions(unstable)[0] - 1
        cls.FLEXIBLE = parse_versions(flexible)
        cls._decoders = {}
        cls._encoders = {}
        cls._walks = {}

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        return cls.FLEXIBLE[0] <= version <= cls.FLEXIBLE[1]

    @classmethod
    def decoder(cls, version: int) -> Decoder:
        """`fn(buffer, position) -> (message, position after it)`."""
        found = cls._decoders.get(version)
        if found is None:
            cls._check_version(version)
            found = cls._decoders[version] = decoding.compile_decoder(cls, version)
        return found

    @classmethod
    def encoder(cls, version: int) -> Encoder:
        """`fn(message, parts)`, which appends bytes to `parts`, and records objects unchanged."""
        found = cls._encoders.get(version)
        if found is None:
            cls._check_version(version)
            found = cls._encoders[version] = encoding.compile_encoder(cls, version)
        return found

    @classmethod
    def early_decoder(cls, version: int) -> Decoder:
        """Like `decoder`, for a single use: a version is only compiled once it is used more often."""
        found = cls._decoders.get(version)
        if found is not None or not cls._is_rare(version, ~version):
            return found or cls.decoder(version)
        return interpreting.interpreting_decoder(cls, version)

    @classmethod
    def early_encoder(cls, version: int) -> Encoder:
        """Like `encoder`, for a single use."""
        found = cls._encoders.get(version)
        if found is not None or not cls._is_rare(version, version):
            return found or cls.encoder(version)
        return interpreting.interpreting_encoder(cls, version)

    @classmethod
    def _is_rare(cls, version: int, key: int) -> bool:
        cls._check_version(version)
        walks = cls._walks[key] = cls._walks.get(key, 0) + 1
        return walks <= WALKS

    @classmethod
    def decode(cls, buffer: Buffer, version: int) -> Self:
        """The message in the whole buffer."""
        found, position = (cls._decoders.get(version) or cls.early_decoder(version))(buffer, 0)
        if position != len(buffer):
            raise MalformedMessage(f"{cls.__name__} v{version} leaves {len(buffer) - position} bytes unread")
        message: Self = found
        return message

    def encode(self, version: int) -> bytes:
        parts: list[Any] = []
        (self._encoders.get(version) or self.early_encoder(version))(self, parts)
        return b"".join(parts)

    @classmethod
    def _check_version(cls, version: int) -> None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ValueError(f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}")
