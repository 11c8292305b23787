"""Scenarios: a sequence of faults, waits and other steps, scripted in YAML or JSON.

    steps:
      - error: {api: Produce, error: NOT_LEADER_OR_FOLLOWER, times: 2, as: moved}
      - wait: {fault: moved, times: 2, timeout: 5}
      - advance: {minutes: 10}
      - kill
      - up

A step is the name of a fault or of one of the verbs below, with its options.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ottla.embedded.faults import KINDS, Fault
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import yaml  # type: ignore[import-untyped]

    from ottla.embedded.broker import Broker
else:
    yaml = lazy("yaml")

Step: TypeAlias = tuple[str, dict[str, Any]]
Scenario: TypeAlias = "str | PathLike[str] | Mapping[str, Any] | Sequence[Any]"


class ScenarioError(ValueError):
    """A scenario that cannot be run; the message names the step."""


def load(scenario: Scenario, verbs: Collection[str] | None = None) -> list[Step]:
    """The steps of a scenario: a file, parsed data, or a list of steps. The default `verbs` are those of one broker."""
    origin = "the scenario"
    data: Any = scenario
    if isinstance(scenario, (str, PathLike)):
        origin = str(scenario)
        data = parse(Path(scenario).read_text(encoding="utf-8"), origin)
    if isinstance(data, Mapping):
        unknown = sorted(set(data) - {"steps", "name"})
        if unknown or "steps" not in data:
            raise ScenarioError(f"{origin}: a scenario has `steps:` (and perhaps `name:`), not {unknown or 'nothing'}")
        data = data["steps"]
    if isinstance(data, (str, bytes)) or not isinstance(data, Sequence):
        raise ScenarioError(f"{origin}: `steps:` must be a list of steps")
    known = [*KINDS, *(Run.VERBS if verbs is None else verbs)]
    return [_step(origin, number, step, known) for number, step in enumerate(data, 1)]


def parse(text: str, origin: str = "the scenario") -> Any:
    """Parse JSON, or YAML, which needs PyYAML."""
    found = _parsed(text, origin)
    if isinstance(found, str):  # it would look like a file path
        raise ScenarioError(f"{origin}: a scenario is a list of steps, not {found[:80]!r}")
    return found


def _parsed(text: str, origin: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        load = yaml.safe_load
    except ImportError:
        raise ScenarioError(f"{origin}: YAML needs PyYAML: pip install 'ottla[yaml]', or write it as JSON") from None
    try:
        return load(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{origin}: {error}") from error


def _step(origin: str, number: int, step: Any, known: Collection[str]) -> Step:
    if isinstance(step, str):
        step = {step: {}}
    if not isinstance(step, Mapping) or len(step) != 1:
        raise ScenarioError(f"{origin}, step {number}: a step is one verb with its options, not {step!r}")
    ((verb, options),) = step.items()
    if verb not in known:
        raise ScenarioError(f"{origin}, step {number}: there is no {verb!r}; choose one of {', '.join(known)}")
    if options is None:
        options = {}
    if not isinstance(options, Mapping):
        options = {"": options}
    return verb, dict(options)


async def run_scenario(broker: Broker, scenario: Scenario) -> list[dict[str, Any]]:
    """Run the steps in order and return the result of each. The first step that fails ends the scenario."""
    return await run_steps(Run(broker), scenario)


async def run_steps(run: Run, scenario: Scenario) -> list[dict[str, Any]]:
    done = []
    for number, (verb, options) in enumerate(load(scenario, run.VERBS), 1):
        try:
            outcome = await run.step(verb, options)
        except (ValueError, TypeError, KeyError, AssertionError, RuntimeError) as error:
            message = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise ScenarioError(f"step {number} ({verb}): {message}") from error
        done.append({"step": number, "verb": verb, **outcome})
    return done


class Run:
    """A running scenario."""

    VERBS: ClassVar[Collection[str]] = (
        *("wait", "remove", "clear", "sleep", "advance", "create", "append", "records"),
        *("down", "up", "kill", "restart"),
    )
    """Names of methods."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.faults: dict[str, Fault] = {}
        self.last: Fault | None = None

    async def step(self, verb: str, options: dict[str, Any]) -> dict[str, Any]:
        if verb not in KINDS:
            work: Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]] = getattr(self, verb)
            return await work(options) or {}
        name = options.pop("as", None)
        fault = self.last = self.new_fault(verb, options)
        if name is not None:
            self.faults[name] = fault
        return {"fault": fault.id}

    def new_fault(self, kind: str, options: dict[str, Any]) -> Fault:
        return self.broker.faults.apply(kind, **options)

    def fault(self, options: dict[str, Any]) -> Fault:
        name = options.get("fault", options.get(""))
        found = self.last if name is None else self.faults.get(name)
        if found is None:
            raise ValueError(f"no fault is called {name!r}: name the fault where it is created, with `as: {name}`")
        return found

    async def wait(self, options: dict[str, Any]) -> dict[str, Any]:
        fault = self.fault(options)
        await fault.wait_async(options.get("times", 1), options.get("timeout", 5.0))
        return {"fault": fault.id, "fired": fault.fired}

    async def remove(self, options: dict[str, Any]) -> dict[str, Any]:
        fault = self.fault(options)
        fault.remove()
        return {"fault": fault.id, "fired": fault.fired}

    async def clear(self, options: dict[str, Any]) -> None:
        self.broker.faults.clear()

    async def sleep(self, options: dict[str, Any]) -> None:
        await asyncio.sleep(options.get("", options.get("seconds", 0)))

    async def advance(self, options: dict[str, Any]) -> None:
        self.broker.clock.advance(**options)

    async def create(self, options: dict[str, Any]) -> None:
        topic = self.broker.topic(options[""] if "" in options else options["topic"])
        topic.create(options.get("partitions", -1), options.get("config"))

    async def append(self, options: dict[str, Any]) -> dict[str, Any]:
        topic = self.broker.topic(options["topic"])
        done = topic.append(options["records"], partition=options.get("partition"))
        await topic.until_readable(done)
        return {"appended": len(done)}

    async def records(self, options: dict[str, Any]) -> dict[str, Any]:
        topic = self.broker.topic(options["topic"])
        found = await topic.wait_for_all(count=options.get("count", 1), timeout=options.get("timeout", 5.0))
        return {"records": len(found)}

    async def down(self, options: dict[str, Any]) -> None:
        await self.broker.down()

    async def up(self, options: dict[str, Any]) -> None:
        await self.broker.up()

    async def kill(self, options: dict[str, Any]) -> None:
        await self.broker.kill()

    async def restart(self, options: dict[str, Any]) -> None:
        await self.broker.restart()
