"""Slotted classes that compare and show their values: dataclasses without the compilation that an import waits for.

A dataclass makes its methods from source text when its module is imported, 0.3 to 1.3 ms each. That is for modules that
are not needed to start a broker; the others write their constructor themselves and take the rest from here.
"""

from __future__ import annotations

from typing import Any


class Plain:
    """Equal if all values are; `HIDDEN` names those that do not count."""

    __slots__: tuple[str, ...] = ()
    HIDDEN: tuple[str, ...] = ()

    def _values(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__ if name not in self.HIDDEN]

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, type(self)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__ if name not in self.HIDDEN)
        return f"{type(self).__name__}({values})"
