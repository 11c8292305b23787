"""Durations and times as people write them: `90s`, `PT1H30M`, `2026-01-31T12:00:00Z`, `-2h`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)\Z")
_ISO_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?\Z")


def parse_duration(text: str) -> int:
    """`90s`, `1.5h`, `7d`, or ISO-8601 such as `PT1H30M`, in milliseconds."""
    match = _DURATION.match(text)
    if match:
        return int(float(match[1]) * _UNITS_MS[match[2]])
    iso = _ISO_DURATION.match(text)
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return int(((days * 24 + hours) * 3600 + minutes * 60 + seconds) * 1000)
    raise ValueError(f"'{text}' is not a duration; write 90s, 15m, 2h, 7d or PT1H30M")


def parse_time(text: str, now_ms: int) -> int:
    """Epoch milliseconds, an ISO-8601 time (UTC unless it says otherwise), or `-2h` for two hours ago."""
    if text.isdigit():
        return int(text)
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return now_ms - parse_duration(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a time; write 2026-01-31T12:00:00Z, epoch milliseconds or -2h") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
