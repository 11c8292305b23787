"""Plain classes compare and show their values; named tuples are those of typing."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

from ottla import plain
from ottla.plain import Plain


class Point(Plain):
    __slots__ = ("seen", "x")
    HIDDEN = ("seen",)

    def __init__(self, x: int, seen: int = 0) -> None:
        self.x = x
        self.seen = seen


def test_equality_and_text() -> None:
    assert Point(1) == Point(1, seen=5)
    assert Point(1) != Point(2)
    assert Point(1) != (1,)
    assert repr(Point(3, seen=1)) == "Point(x=3)"


class Theirs(typing.NamedTuple):
    """Said of both."""

    x: int
    y: str | None
    z: int = 5

    @property
    def sum(self) -> int:
        return self.x + self.z


class Ours(plain.NamedTuple):
    """Said of both."""

    x: int
    y: str | None
    z: int = 5

    @property
    def sum(self) -> int:
        return self.x + self.z


class Narrower(Ours):
    def __str__(self) -> str:
        return f"{self.x} to {self.z}"


def test_named_tuples_are_those_of_typing() -> None:
    for theirs, ours in (
        (Theirs(1, "a"), Ours(1, "a")),
        (Theirs(x=1, y=None, z=2), Ours(x=1, y=None, z=2)),
        (Theirs(1, y="b")._replace(x=7), Ours(1, y="b")._replace(x=7)),
        (Theirs._make((1, "c", 3)), Ours._make((1, "c", 3))),
    ):
        assert ours == theirs == tuple(ours)
        assert type(ours) is Ours
        assert hash(ours) == hash(theirs)
        assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
        assert ours._asdict() == theirs._asdict()
        assert (ours.x, ours.y, ours.z, ours.sum) == (theirs.x, theirs.y, theirs.z, theirs.sum)
        for copied in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            assert type(copied) is Ours
            assert copied == ours
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__", "__doc__"):
        assert getattr(Ours, name) == getattr(Theirs, name)
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)


def test_named_tuples_refuse_what_those_of_typing_refuse() -> None:
    for kind in (Theirs, Ours):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
            kind(1)  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            kind(1, "a", 3, 4)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'w'"):
            kind(1, "a", w=3)  # type: ignore[call-arg]
        with pytest.raises((TypeError, ValueError), match="w"):
            kind(1, "a")._replace(w=3)  # type: ignore[call-arg]
        with pytest.raises(AttributeError):
            kind(1, "a").x = 2  # type: ignore[misc]
        with pytest.raises(AttributeError):
            kind(1, "a").w = 2  # type: ignore[union-attr]


def test_a_narrower_named_tuple() -> None:
    made = Narrower(1, "a")
    assert str(made) == "1 to 5"
    assert type(made._replace(z=6)) is Narrower
    assert made == Ours(1, "a")
    match made:
        case Narrower(x, y, z):
            assert (x, y, z) == (1, "a", 5)
