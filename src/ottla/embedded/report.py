"""The report on the broker of a failed test: topics, groups, faults, and the last requests of clients."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from ottla.embedded.topics import Topic
from ottla.errors import KafkaError
from ottla.server.request_log import ControlEvent

if TYPE_CHECKING:
    from ottla.embedded.broker import Embedded

_TOPICS_MAX: Final = 20
_RECORDS_MAX: Final = 10
_REQUESTS_MAX: Final = 10


def report(
    broker: Embedded, known_topics: Collection[str] = (), known_groups: Collection[str] = (), prefix: str = ""
) -> str:
    """The report as text, without topics and groups from before the test or, on a shared broker, of other tests."""
    if not broker.is_running:
        return "the broker is not running"
    lines = [
        *_topics(broker, [name for name in broker.topics() if name not in known_topics and prefix in name]),
        *_groups(broker, [name for name in broker.groups() if name not in known_groups and prefix in name]),
        *(f"fault: {fault.text}, fired {fault.fired} times" for fault in broker.faults.all),
        *_requests(broker, prefix),
    ]
    return "\n".join(lines)


def _topics(broker: Embedded, names: list[str]) -> Iterator[str]:
    if not names:
        yield "no topics"
    for name in names[:_TOPICS_MAX]:
        topic = Topic(broker, name)
        try:
            records = topic.records_with_states()
        except KafkaError as error:
            yield f"topic {name}: {error.message}"
            continue
        held = f"{len(records)} record{'' if len(records) == 1 else 's'}"
        yield f"topic {name}: {held} in {topic.partitions} partition{'' if topic.partitions == 1 else 's'}"
        if len(records) > _RECORDS_MAX:
            yield f"  … {len(records) - _RECORDS_MAX} before these"
        for record, state in records[-_RECORDS_MAX:]:
            yield f"  {record}" + ("" if state is None else f" ({state})")
    if len(names) > _TOPICS_MAX:
        yield f"… and {len(names) - _TOPICS_MAX} more topics"


def _groups(broker: Embedded, names: list[str]) -> Iterator[str]:
    for name in names:
        group = broker.group(name)
        yield f"group {name}: {group.state}"
        for member in group.members():
            yield f"  member {member}"
        lags = group.lags()
        for (topic, index), offset in group.committed().items():
            yield f"  {topic}-{index}: committed {offset}, lag {lags.get((topic, index), 'unknown')}"


def _requests(broker: Embedded, prefix: str) -> Iterator[str]:
    clients: dict[str, list[str]] = {}
    for request in broker.requests():
        if request.api == ControlEvent.api:
            continue
        if prefix and not any(prefix in name for name in (*request.topics, *request.groups)):
            continue
        clients.setdefault(f"{request.client_id} ({request.peer})", []).append(str(request))
    for client, requests in clients.items():
        yield f"client {client}: {len(requests)} requests, the last ones:"
        for text, count in _runs(requests)[-_REQUESTS_MAX:]:
            yield f"  {text}" + (f" ({count} times)" if count > 1 else "")


def _runs(items: list[str]) -> list[tuple[str, int]]:
    """Merge equal neighbours, with their count: an idle consumer repeats the same request."""
    runs: list[tuple[str, int]] = []
    for item in items:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    return runs
