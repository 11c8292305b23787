"""What clients did and saw, one operation after another, as JSON lines that any language can write.

An operation is a transaction, or a single poll or send outside of one:

    {"process": 3, "outcome": "ok", "steps": [["send", 0, 17, 204], ["poll", {"0": [[200, 13], [201, 14]]}]]}

A send shows the partition, the value and its offset (null if unknown). A poll shows what it returned, by
partition: pairs of offset and value. Values are unique within a partition. `outcome` is "ok" (it was committed), "fail"
(it was aborted, or refused as a whole) or "info" (nobody knows). An operation with "moves": true let its process's
consumer start somewhere else (an assignment, a seek, a new consumer), so that its polls follow nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

OK, FAIL, INFO = "ok", "fail", "info"


@dataclass
class Send:
    partition: int
    value: int
    offset: int | None = None


@dataclass
class Poll:
    records: dict[int, list[tuple[int, int]]]
    """Offset and value of each record, by partition, in the order in which they came."""


@dataclass
class Operation:
    process: int
    outcome: str
    steps: list[Send | Poll] = field(default_factory=list)
    moves: bool = False
    number: int = -1
    """Its position in the history."""

    @property
    def sends(self) -> list[Send]:
        return [step for step in self.steps if isinstance(step, Send)]

    @property
    def polls(self) -> list[Poll]:
        return [step for step in self.steps if isinstance(step, Poll)]

    def to_json(self) -> str:
        steps: list[object] = []
        for step in self.steps:
            if isinstance(step, Send):
                steps.append(["send", step.partition, step.value, step.offset])
            else:
                steps.append(["poll", {str(partition): records for partition, records in step.records.items()}])
        made = {"process": self.process, "outcome": self.outcome, "steps": steps}
        return json.dumps({**made, "moves": True} if self.moves else made)


def read_operation(line: str) -> Operation:
    data = json.loads(line)
    steps: list[Send | Poll] = []
    for step in data["steps"]:
        if step[0] == "send":
            steps.append(Send(step[1], step[2], step[3]))
        else:
            steps.append(
                Poll(
                    {
                        int(partition): [(offset, value) for offset, value in records]
                        for partition, records in step[1].items()
                    }
                )
            )
    return Operation(data["process"], data["outcome"], steps, data.get("moves", False))


def read_history(lines: Iterable[str]) -> Iterator[Operation]:
    for line in lines:
        if line.strip():
            yield read_operation(line)


def write_history(path: Path, operations: Iterable[Operation]) -> None:
    path.write_text("".join(operation.to_json() + "\n" for operation in operations))
