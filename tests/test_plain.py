"""Plain classes compare and show their values."""

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
