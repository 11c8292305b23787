"""The operations for the guided tours."""

from __future__ import annotations

from typing import Any, Final

from ottla.console.operations import BadRequest, Call, NotFound, operation
from ottla.console.sandbox import Sandbox
from ottla.console.tours.logs import COMPACTION, LOOK_UP, RECORD
from ottla.console.tours.people import REBALANCE, TRANSACTION
from ottla.console.tours.replication import REPLICAS
from ottla.console.tours.tour import Stage, Tour

TOURS: Final = {each.name: each for each in (RECORD, LOOK_UP, REPLICAS, REBALANCE, COMPACTION, TRANSACTION)}


class Guide:
    """The current tour of a console."""

    def __init__(self) -> None:
        self.sandbox = Sandbox()
        self._stage: Stage | None = None
        self._tour: Tour | None = None
        self._at = 0

    async def start(self, tour: Tour) -> dict[str, Any]:
        await self.sandbox.start()
        self._stage, self._tour, self._at = Stage(self.sandbox), tour, -1
        return await self.next(self.sandbox.id)

    async def next(self, run: str) -> dict[str, Any]:
        if self._stage is None or self._tour is None or not run or run != self.sandbox.id:
            raise NotFound("this tour has ended: another one was started, or nobody continued it for a while")
        if self._at + 1 >= len(self._tour.steps):
            raise BadRequest("that was the last step")
        self._at += 1
        step = self._tour.steps[self._at]
        self._stage.notes = []
        await step.action(self._stage)
        return {
            "run": self.sandbox.id,
            "step": self._at,
            "steps": len(self._tour.steps),
            "title": step.title,
            "text": step.text,
            "notes": self._stage.notes,
            "look": [{**each, **self._stage.kept.get("look", {})} for each in step.look],
        }

    async def stop(self) -> None:
        self._stage = self._tour = None
        await self.sandbox.stop()


@operation("GET", "/tours")
async def list_tours(call: Call) -> Any:
    """The guided tours."""
    return [
        {
            "name": each.name,
            "title": each.title,
            "summary": each.summary,
            "steps": [step.title for step in each.steps],
        }
        for each in TOURS.values()
    ]


@operation("POST", "/tours/{tour}/start", body={"type": "object"}, changes=False)
async def start_tour(call: Call) -> Any:
    """Start a tour on its own cluster, in memory and separate from all real data."""
    tour = TOURS.get(call.path["tour"])
    if tour is None:
        raise NotFound(f"there is no tour {call.path['tour']!r}; the tours are {', '.join(TOURS)}")
    return await call.source.guide.start(tour)


@operation(
    "POST",
    "/tours/next",
    body={"type": "object", "required": ["run"], "properties": {"run": {"type": "string"}}},
    changes=False,
)
async def next_step(call: Call) -> Any:
    """Do the next step of the current tour."""
    return await call.source.guide.next(call.text("run"))


@operation("POST", "/tours/stop", body={"type": "object"}, changes=False)
async def stop_tour(call: Call) -> Any:
    """End the tour, and its cluster."""
    await call.source.guide.stop()
    return {}
