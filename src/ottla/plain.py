"""Slotted classes and named tuples without the compilation that an import waits for.

A dataclass makes its methods from source text when its module is imported, 0.3 to 1.3 ms each, and `typing.NamedTuple`
compiles a constructor and each annotation, 0.15 to 0.3 ms. That is for modules that are not needed to start a broker;
the others write their constructor themselves and take the rest from `Plain`, or take `NamedTuple` from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


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


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    try:
        from _collections import _tuplegetter as _getter  # what collections.namedtuple has, too
    except ImportError:
        from operator import itemgetter

        def _getter(index: int, doc: str) -> property:
            return property(itemgetter(index), doc=doc)

    class _NamedTupleType(type):
        """Takes the fields out of a class body, in the order of their annotations."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if bases[0] is not tuple and not hasattr(bases[0], "_fields"):
                fields = body["_fields"] = body["__match_args__"] = tuple(body["__annotations__"])
                body["_field_defaults"] = {field: body[field] for field in fields if field in body}
                for index, field in enumerate(fields):
                    body[field] = _getter(index, f"Alias for field number {index}")
            body["__slots__"] = ()
            return super().__new__(cls, name, bases, body)

    class NamedTuple(tuple, metaclass=_NamedTupleType):
        """As the one of `typing`; the constructor of a class is compiled when the first of it is made."""

        def __new__(cls, *values: Any, **named: Any) -> Any:
            given = {field: f"{field}=_defaults[{field!r}]" for field in cls._field_defaults}
            parameters = ", ".join(given.get(field, field) for field in cls._fields)
            source = f"lambda _cls, {parameters}: _new(_cls, ({', '.join(cls._fields)},))"
            made = eval(source, {"_new": tuple.__new__, "_defaults": cls._field_defaults})
            made.__name__, made.__qualname__ = "__new__", f"{cls.__qualname__}.__new__"
            cls.__new__ = staticmethod(made)
            return cls(*values, **named)

        @classmethod
        def _make(cls, values: Any) -> Any:
            return cls(*values)

        def _replace(self, **changed: Any) -> Any:
            made = type(self)(*map(changed.pop, self._fields, self))
            if changed:
                raise ValueError(f"{type(self).__name__} has no field {', '.join(changed)}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({values})"
