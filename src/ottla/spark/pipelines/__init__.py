"""Pipelines between topics and tables: each is one function of `ottla.spark` and one verb of `ottla pipeline`."""

from typing import Final

FUNCTIONS: Final = {
    "PipelineError": "errors",
    "archive": "archive",
    "compact": "compact",
    "parse": "parse",
    "quality": "quality",
    "read_snapshot": "snapshot",
    "read_stats": "stats",
    "replay": "replay",
    "snapshot": "snapshot",
    "sql": "sql",
    "stats": "stats",
    "upkeep": "upkeep",
    "verify": "verify",
}
"""The module of each public name. `ottla.spark` imports it when the name is first used."""
