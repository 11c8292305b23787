"""A cache for names that clients choose, limited in number and size: the least recently used entry is removed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
Key = tuple[str, ...]


class LruCache(Generic[T]):
    """The `entries_max` most recently used entries, or fewer if the names in their keys exceed `characters_max`."""

    __slots__ = ("_entries", "characters", "characters_max", "entries_max")

    def __init__(self, entries_max: int, characters_max: int) -> None:
        self.entries_max = entries_max
        self.characters_max = characters_max
        self.characters = 0
        """The characters of all names in the keys."""
        self._entries: OrderedDict[Key, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> T | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: Key, entry: T) -> T:
        """Add a new entry and return it."""
        entries = self._entries
        entries[key] = entry
        self.characters += _length(key)
        while len(entries) > self.entries_max or self.characters > self.characters_max:
            oldest, _ = entries.popitem(last=False)
            self.characters -= _length(oldest)
        return entry

    def clear(self) -> None:
        self._entries.clear()
        self.characters = 0


def _length(key: Key) -> int:
    return sum(map(len, key))
