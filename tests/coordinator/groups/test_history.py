"""The history of groups is bounded, no matter what clients do."""

from ottla.coordinator.groups.history import ALL_EVENTS_MAX, EVENTS_MAX, GENERATION, JOINED, GroupEvent, GroupHistory


def event(number: int, kind: str = JOINED) -> GroupEvent:
    return GroupEvent(number, kind, f"member-{number}")


def test_a_million_groups_keep_the_newest_events() -> None:
    history = GroupHistory()
    for number in range(1_000_000):
        history.note(f"group-{number}", event(number))
    kept = [number for number in range(1_000_000) if history.of(f"group-{number}")]
    assert kept == list(range(1_000_000 - ALL_EVENTS_MAX, 1_000_000))
    assert history.count(JOINED) == 1_000_000


def test_a_busy_group_keeps_its_newest_events_and_leaves_room_for_others() -> None:
    history = GroupHistory()
    history.note("quiet", event(0))
    for number in range(10 * ALL_EVENTS_MAX):
        history.note("busy", event(number, GENERATION))
    assert [each.at_ms for each in history.of("busy")] == list(range(10 * ALL_EVENTS_MAX))[-EVENTS_MAX:]
    assert history.of("quiet") == (event(0),)


def test_the_least_recently_active_group_is_dropped_first() -> None:
    history = GroupHistory()
    for number in range(ALL_EVENTS_MAX):
        history.note("first" if number == 0 else f"group-{number}", event(number))
    history.note("first", event(1))
    assert len(history.of("first")) == 2
    assert history.of("group-1") == ()
    assert history.of("group-2") != ()


def test_a_deleted_group_is_forgotten() -> None:
    history = GroupHistory()
    for turn in range(3 * ALL_EVENTS_MAX):
        history.note("brief", event(turn))
        history.forget("brief")
    history.forget("never seen")
    history.note("other", event(0))
    assert history.of("brief") == ()
    assert history.of("other") == (event(0),)
