"""What can be done with the registry. An operation reads the state and returns records and an answer, no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..records import Record

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The answer, and the records that have to be in the log before it is given."""

    answer: T
    records: list[Record] = field(default_factory=list)
