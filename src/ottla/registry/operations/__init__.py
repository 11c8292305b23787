"""The operations of the registry. An operation only reads the state and returns records and an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..records import Record

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The answer, and the records that must be in the log before it is sent."""

    answer: T
    records: list[Record] = field(default_factory=list)
