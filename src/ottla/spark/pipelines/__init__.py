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
"""The module that each public name lives in; `ottla.spark` imports one when its name is asked for."""
